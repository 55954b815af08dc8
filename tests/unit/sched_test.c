/* sched_test.c - entries and requests through a real scheduler: what each fault is told, what it leaves as it was, who keeps
 * company with whom. */
#include "sched_harness.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const struct work_shape SHAPE = {.n_layers = 2,
					.n_q_heads = 4,
					.n_kv_heads = 2,
					.head_dim = 16,
					.page_tokens = 16,
					.dtype = WORK_FP32};
static const uint32_t IDS[] = {7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
			       17, 18, 19, 20, 21, 22, 23, 24, 25, 26};
#define N_IDS (sizeof(IDS) / sizeof(IDS[0]))

struct fixture {
	struct harness h;
	struct client c;
	uint64_t seq;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct store_match match;

	harness_init(&f->h);
	harness_start(&f->h);
	client_start(&f->c, &f->h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&f->c, IDS, 4, &f->seq, &match), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	client_end(&f->c);
	harness_stop(&f->h);
	free(f);
	return 0;
}

static void assert_ends(struct abi_completion got, int status, enum abi_reason reason)
{
	assert_int_equal(got.status, status);
	assert_int_equal(got.reason, reason);
}

static void nop_completes(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 1000; i++)
		assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0), 0,
			    ABI_OK);
}

static void entries_complete_once_and_in_order(void **state)
{
	struct fixture *f = *state;
	uint64_t first = f->c.ticket + 1;

	for (uint32_t i = 0; i < ABI_LANE_SLOTS; i++)
		client_submit(&f->c, (struct abi_entry){.kind = i % 3 ? ABI_NOP : 99}, NULL, 0);
	client_wait(&f->c, f->c.ticket);
	for (uint32_t i = 0; i < ABI_LANE_SLOTS; i++) {
		struct abi_completion got = ring_completion(f->c.lane, first + i);

		assert_int_equal(got.ticket, first + i);
		assert_int_equal(got.reason, i % 3 ? ABI_OK : ABI_BAD_KIND);
	}
}

static void a_step_needs_an_extension(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	assert_ends(client_step(&f->c, &rec, 0), -EINVAL, ABI_NOT_EXTENDED);
	client_compute(&f->c, f->seq, IDS, 4);
	assert_ends(client_step(&f->c, &rec, 0), -EINVAL, ABI_NOT_EXTENDED);
}

static void layers_ascend(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	assert_ends(client_extend(&f->c, f->seq, IDS, 4), 0, ABI_OK);
	assert_ends(client_step(&f->c, &rec, 1), -EINVAL, ABI_WRONG_LAYER);
}

static void a_failed_step_voids_its_extension_until_a_trim(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	assert_ends(client_extend(&f->c, f->seq, IDS, 4), 0, ABI_OK);
	assert_ends(client_step(&f->c, &rec, 5), -EINVAL, ABI_WRONG_LAYER);
	assert_ends(client_step(&f->c, &rec, 0), -ECANCELED, ABI_VOID);
	assert_ends(client_extend(&f->c, f->seq, IDS, 4), -ECANCELED, ABI_VOID);
	assert_int_equal(harness_status(&f->h).store.n_pages, 0);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq, .arg = 0},
			      NULL, 0),
		    0, ABI_OK);
	client_compute(&f->c, f->seq, IDS, 4);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 4);
}

static void extend_refuses(void **state)
{
	struct fixture *f = *state;
	struct abi_entry e = {.kind = ABI_EXTEND, .seq = f->seq, .count = 4};

	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_EXTEND, .seq = f->seq}, NULL,
			      0),
		    -EINVAL, ABI_NO_TOKENS);
	e.count = UINT32_MAX;
	assert_ends(client_do(&f->c, e, IDS, 16), -E2BIG, ABI_TOO_MANY_TOKENS);
	e.count = 4;
	assert_ends(client_do(&f->c, e, IDS, 12), -EINVAL, ABI_BAD_BODY);
	e.flags = 1u << 31;
	assert_ends(client_do(&f->c, e, IDS, 16), -EINVAL, ABI_BAD_FLAGS);
	e.flags = ABI_EXTEND_PARENTS;
	static const uint32_t cyclic[] = {1, 2, 3, 4, WORK_NONE, 1, 0, 0};

	assert_ends(client_do(&f->c, e, cyclic, 32), -EINVAL, ABI_BAD_PARENTS);
	assert_int_equal(harness_status(&f->h).store.n_pages, 0);
	assert_ends(client_extend(&f->c, f->seq, IDS, 4), 0, ABI_OK);
	assert_ends(client_extend(&f->c, f->seq, IDS, 4), -EBUSY, ABI_STILL_EXTENDED);
}

/* Ids of prompts that are not computed are the daemon's memory: a session has its share of it, as before once they are. */
static void prompts_have_a_share_of_memory(void **state)
{
	static uint32_t ids[1024];
	struct harness h;
	struct client c;
	struct store_match match;
	uint64_t seqs[3];

	(void)state;
	harness_init(&h);
	h.config.max_arena_bytes = 2 * sizeof(ids);
	harness_start(&h);
	client_start(&c, &h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&c, ids, 1024, &seqs[0], &match), 0);
	assert_int_equal(client_open(&c, ids, 1024, &seqs[1], &match), 0);
	assert_int_equal(client_open(&c, ids, 1, &seqs[2], &match), -EDQUOT);
	assert_ends(client_do(&c, (struct abi_entry){.kind = ABI_FORK, .seq = seqs[0]}, NULL, 0),
		    -EDQUOT, ABI_OVER_QUOTA);
	assert_int_equal(client_close(&c, seqs[1]), 0);
	assert_int_equal(client_open(&c, ids, 1024, &seqs[1], &match), 0);
	client_compute(&c, seqs[0], ids, 1024);
	assert_int_equal(client_open(&c, ids, 1, &seqs[2], &match), 0);
	client_end(&c);
	harness_stop(&h);
}

static void too_many_tokens_for_the_pool_change_nothing(void **state)
{
	struct fixture *f = *state;
	uint32_t n = 60000;
	uint32_t *ids = calloc(n, sizeof(*ids));
	struct harness h;
	struct client c;
	struct store_match match;
	uint64_t seq;

	(void)f;
	harness_init(&h);
	h.config.pool_bytes = h.config.extent_bytes;
	harness_start(&h);
	client_start(&c, &h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&c, IDS, 4, &seq, &match), 0);
	assert_ends(client_extend(&c, seq, ids, n), -ENOSPC, ABI_NO_ROOM);
	assert_int_equal(harness_status(&h).store.n_pages, 0);
	client_compute(&c, seq, IDS, 4);
	client_end(&c);
	harness_stop(&h);
	free(ids);
}

static void bodies_out_of_range_are_refused(void **state)
{
	struct fixture *f = *state;
	struct abi_entry e = {.kind = ABI_EXTEND, .seq = f->seq, .count = 4};

	for (int i = 0; i < 3; i++) {
		uint64_t t = client_submit(&f->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0) + 1;

		client_wait(&f->c, t - 1);
		e.ticket = t;
		e.body_bytes = i == 2 ? ABI_BODY_MAX_BYTES + 8 : 16;
		e.body = i == 0 ? ABI_BODY_ARENA_BYTES - 8 : i == 1 ? 4 : 0;
		f->c.ticket = t;
		f->c.lane->entries[ring_slot(t)] = e;
		ring_publish(f->c.lane, t);
		if (ring_daemon_asleep(f->h.board))
			ring_bell(f->c.bell);
		assert_ends(client_wait(&f->c, t), -EINVAL, ABI_BAD_BODY);
	}
}

static void arenas_are_checked(void **state)
{
	struct fixture *f = *state;
	const struct abi_step_seq good = client_step_seq(&f->c, f->seq, 4);
	struct {
		struct abi_step_seq rec;
		enum abi_reason reason;
	} cases[12];
	int n = 0;

#define CASE(field, value, why) \
	do { \
		cases[n].rec = good; \
		cases[n].rec.field = (value); \
		cases[n++].reason = (why); \
	} while (0)
	CASE(arena_in, 2, ABI_BAD_ARENA);
	CASE(arena_out, UINT32_MAX, ABI_BAD_ARENA);
	CASE(q, 1, ABI_MISALIGNED);
	CASE(v_stride, 6, ABI_MISALIGNED);
	CASE(q, f->c.arena_bytes, ABI_OUT_OF_ARENA);
	CASE(k, f->c.arena_bytes - 8, ABI_OUT_OF_ARENA);
	CASE(v, UINT64_MAX - 3, ABI_OUT_OF_ARENA);
	CASE(o, UINT64_MAX - 1023, ABI_OUT_OF_ARENA);
	CASE(k_stride, UINT32_MAX - 3, ABI_OUT_OF_ARENA);
	CASE(lse, f->c.arena_bytes, ABI_OUT_OF_ARENA);
	CASE(n_new, 3, ABI_WRONG_COUNT);
	CASE(seq, f->seq + (1ull << 32), ABI_STALE_SEQ);
#undef CASE
	for (int i = 0; i < n; i++) {
		struct abi_entry trim = {.kind = ABI_TRIM, .seq = f->seq};

		assert_ends(client_extend(&f->c, f->seq, IDS, 4), 0, ABI_OK);
		struct abi_completion got = client_step(&f->c, &cases[i].rec, 0);

		assert_int_equal(got.reason, cases[i].reason);
		assert_true(got.status < 0);
		assert_ends(client_do(&f->c, trim, NULL, 0), 0, ABI_OK);
	}
}

static void handles_of_others_are_stale(void **state)
{
	struct fixture *f = *state;
	struct client other;

	client_start(&other, &f->h, 1001, &SHAPE, 1 << 20);
	assert_ends(client_extend(&other, f->seq, IDS, 4), -ESTALE, ABI_STALE_SEQ);
	assert_int_equal(client_close(&other, f->seq), -ESTALE);
	assert_int_equal(client_close(&f->c, f->seq), 0);
	assert_ends(client_extend(&f->c, f->seq, IDS, 4), -ESTALE, ABI_STALE_SEQ);
	assert_int_equal(client_close(&f->c, f->seq), -ESTALE);
	client_end(&other);
}

static void a_sequence_stays_in_its_lane(void **state)
{
	struct fixture *f = *state;
	struct client side = f->c;

	side.lane = aligned_alloc(128, sizeof(*side.lane));
	memset(side.lane, 0, sizeof(*side.lane));
	side.ticket = 0;
	struct sched_request add = {.verb = SCHED_LANE_ADD,
				    .session = side.session,
				    .in.lane = {2, side.lane, -1}};
	struct sched_request remove = {.verb = SCHED_LANE_REMOVE,
				       .session = side.session,
				       .in.lane = {.lane = 2}};

	assert_int_equal(harness_call(&f->h, &add), 0);
	assert_ends(client_extend(&side, f->seq, IDS, 4), -EINVAL, ABI_WRONG_LANE);
	assert_int_equal(harness_call(&f->h, &remove), 0);
	free(side.lane);
}

static void a_sequence_twice_in_a_step_is_refused(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq recs[2] = {client_step_seq(&f->c, f->seq, 4),
				       client_step_seq(&f->c, f->seq, 4)};

	assert_ends(client_extend(&f->c, f->seq, IDS, 4), 0, ABI_OK);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_STEP, .count = 2}, recs,
			      sizeof(recs)),
		    -EINVAL, ABI_SEQ_TWICE);
}

static void a_lane_that_makes_no_sense_gets_one_answer(void **state)
{
	struct fixture *f = *state;
	struct client other;
	uint64_t ticket;

	client_start(&other, &f->h, 1001, &SHAPE, 1 << 20);
	ticket = client_submit(&other, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	client_wait(&other, ticket);
	ring_publish(other.lane, ticket + ABI_LANE_SLOTS + 1);
	ring_bell(other.bell);
	assert_ends(client_wait(&other, ticket + 1), -EPROTO, ABI_BAD_TICKET);
	ring_publish(other.lane, 0);
	ring_bell(other.bell);
	nop_completes(state);
	assert_int_equal(ring_done(other.lane), ticket + 1);
	client_end(&other);
}

static void a_draft_waits_for_its_accept(void **state)
{
	struct fixture *f = *state;
	static const uint32_t ids_parents[] = {50, 51, 52, 53, WORK_NONE, 0, 0, 2};
	static const uint32_t stranger[] = {0, 1, 3}, path[] = {0, 2, 3};
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);
	struct abi_entry accept = {.kind = ABI_ACCEPT, .seq = f->seq, .count = 3};

	client_compute(&f->c, f->seq, IDS, 4);
	assert_ends(client_do(&f->c, accept, path, sizeof(path)), -EINVAL, ABI_NOT_EXTENDED);
	assert_ends(client_do(&f->c,
			      (struct abi_entry){.kind = ABI_EXTEND,
						 .seq = f->seq,
						 .count = 4,
						 .flags = ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS},
			      ids_parents, sizeof(ids_parents)),
		    0, ABI_OK);
	assert_ends(client_do(&f->c, accept, path, sizeof(path)), -EBUSY, ABI_STILL_EXTENDED);
	for (uint32_t layer = 0; layer < SHAPE.n_layers; layer++)
		assert_ends(client_step(&f->c, &rec, layer), 0, ABI_OK);
	assert_ends(client_extend(&f->c, f->seq, IDS, 4), -EBUSY, ABI_NOT_ACCEPTED);
	assert_ends(client_do(&f->c, accept, stranger, sizeof(stranger)), -EINVAL, ABI_BAD_INDICES);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 4);
	assert_ends(client_do(&f->c, accept, path, sizeof(path)), 0, ABI_OK);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 7);
	client_compute(&f->c, f->seq, IDS, 1);
}

static void an_accept_of_no_draft_is_refused(void **state)
{
	struct fixture *f = *state;
	static const uint32_t zero;

	assert_ends(client_extend(&f->c, f->seq, IDS, 4), 0, ABI_OK);
	assert_ends(client_do(&f->c,
			      (struct abi_entry){.kind = ABI_ACCEPT, .seq = f->seq, .count = 1},
			      &zero, 4),
		    -EINVAL, ABI_NOT_DRAFT);
}

static void a_fork_is_a_sequence_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct abi_completion fork;

	client_compute(&f->c, f->seq, IDS, 4);
	fork = client_do(&f->c, (struct abi_entry){.kind = ABI_FORK, .seq = f->seq}, NULL, 0);
	assert_ends(fork, 0, ABI_OK);
	assert_int_not_equal(fork.value, f->seq);
	client_compute(&f->c, fork.value, IDS, 3);
	client_compute(&f->c, f->seq, IDS + 5, 3);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 10);
}

static void a_trim_beyond_the_end_is_refused(void **state)
{
	struct fixture *f = *state;

	client_compute(&f->c, f->seq, IDS, 4);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq, .arg = 5},
			      NULL, 0),
		    -EINVAL, ABI_TOO_LONG);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq, .arg = 2},
			      NULL, 0),
		    0, ABI_OK);
	client_compute(&f->c, f->seq, IDS + 9, 2);
}

static void the_second_opener_waits_and_finds_it_cached(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct store_match match;
	uint64_t seq, mine;

	assert_int_equal(client_close(&f->c, f->seq), 0);
	client_start(&other, &f->h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&f->c, IDS, N_IDS, &mine, &match), 0);
	assert_true(match.claimed);
	assert_int_equal(client_open(&other, IDS, N_IDS, &seq, &match), 0);
	assert_false(match.claimed);
	assert_int_equal(match.pending, N_IDS - 1);
	struct sched_request wait = {.verb = SCHED_SEQ_WAIT,
				     .session = other.session,
				     .in.seq = {seq, UINT64_C(10000000000)}};

	sched_post(f->h.sched, &wait);
	sched_post(f->h.sched, &(struct sched_request){.verb = SCHED_PROBE});
	assert_int_equal(harness_next_reply(&f->h)->verb, SCHED_PROBE);
	client_compute(&f->c, mine, IDS, N_IDS);
	assert_ptr_equal(harness_next_reply(&f->h), &wait);
	assert_int_equal(wait.code, 0);
	assert_int_equal(wait.out.seq.match.cached, N_IDS - 1);
	client_compute(&other, seq, IDS + N_IDS - 1, 1);
	assert_int_equal(harness_status(&f->h).store.tokens_dropped, 1);
	client_end(&other);
}

static void a_waiter_takes_over_when_the_claimant_goes(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct store_match match;
	uint64_t seq, mine;

	assert_int_equal(client_close(&f->c, f->seq), 0);
	client_start(&other, &f->h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&other, IDS, N_IDS, &seq, &match), 0);
	assert_int_equal(client_open(&f->c, IDS, N_IDS, &mine, &match), 0);
	struct sched_request wait = {.verb = SCHED_SEQ_WAIT,
				     .session = f->c.session,
				     .in.seq = {mine, UINT64_C(10000000000)}};
	struct sched_request end = {.verb = SCHED_SESSION_END, .session = other.session};

	client_compute(&other, seq, IDS, 5);
	sched_post(f->h.sched, &wait);
	sched_post(f->h.sched, &end);
	struct sched_request *a = harness_next_reply(&f->h), *b = harness_next_reply(&f->h);

	assert_true((a == &wait && b == &end) || (a == &end && b == &wait));
	assert_int_equal(wait.code, 0);
	assert_true(wait.out.seq.match.claimed);
	assert_int_equal(wait.out.seq.match.cached, 5);
}

/* A claims, B takes over and stalls, C is not left waiting. */
static void a_claim_taken_over_lapses_too(void **state)
{
	struct harness h;
	struct client a, b, c;
	struct store_match match;
	uint64_t of_a, of_b, of_c;

	(void)state;
	harness_init(&h);
	h.config.claim_ms = 50;
	harness_start(&h);
	client_start(&a, &h, 1000, &SHAPE, 1 << 20);
	client_start(&b, &h, 1000, &SHAPE, 1 << 20);
	client_start(&c, &h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&a, IDS, N_IDS, &of_a, &match), 0);
	assert_int_equal(client_open(&b, IDS, N_IDS, &of_b, &match), 0);
	assert_int_equal(client_open(&c, IDS, N_IDS, &of_c, &match), 0);
	struct sched_request waits[] = {{.verb = SCHED_SEQ_WAIT,
					 .session = b.session,
					 .in.seq = {of_b, UINT64_C(20000000000)}},
					{.verb = SCHED_SEQ_WAIT,
					 .session = c.session,
					 .in.seq = {of_c, UINT64_C(20000000000)}}};

	sched_post(h.sched, &waits[0]);
	sched_post(h.sched, &waits[1]);
	assert_ptr_equal(harness_next_reply(&h), &waits[0]);
	assert_true(waits[0].out.seq.match.claimed);
	assert_ptr_equal(harness_next_reply(&h), &waits[1]);
	assert_true(waits[1].out.seq.match.claimed);
	client_end(&a);
	client_end(&b);
	client_end(&c);
	harness_stop(&h);
}

static void a_wait_ends_at_its_deadline(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t first, second;

	assert_int_equal(client_close(&f->c, f->seq), 0);
	assert_int_equal(client_open(&f->c, IDS, N_IDS, &first, &match), 0);
	assert_int_equal(client_open(&f->c, IDS, N_IDS, &second, &match), 0);
	struct sched_request wait = {.verb = SCHED_SEQ_WAIT,
				     .session = f->c.session,
				     .in.seq = {second, UINT64_C(20000000)}};

	assert_int_equal(harness_call(&f->h, &wait), -ETIMEDOUT);
	assert_int_equal(wait.out.seq.match.pending, N_IDS - 1);
}

static void domains_do_not_share(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct store_match match;
	uint64_t seq;

	client_compute(&f->c, f->seq, IDS, 4);
	client_start(&other, &f->h, 1001, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&other, IDS, 4, &seq, &match), 0);
	assert_int_equal(match.cached, 0);
	client_end(&other);
}

static void model_shapes_are_checked(void **state)
{
	struct fixture *f = *state;
	struct work_shape bad[] = {SHAPE, SHAPE, SHAPE, SHAPE};
	static const char *const fields[] = {"n_layers", "n_q_heads", "n_kv_heads", "n_q_heads"};

	bad[0].n_layers = 0;
	bad[1].n_q_heads = 5;
	bad[2].n_kv_heads = 0;
	bad[3].n_q_heads = 34;
	for (int i = 0; i < 4; i++) {
		struct sched_request rq = {.verb = SCHED_MODEL_OPEN, .session = f->c.session};

		strcpy(rq.in.model.name, "bad");
		rq.in.model.shape = bad[i];
		assert_int_equal(harness_call(&f->h, &rq), -EINVAL);
		assert_string_equal(rq.field, fields[i]);
		assert_true(strlen(rq.message) > 10);
	}
}

static void a_draining_daemon_takes_no_new_sequences(void **state)
{
	struct fixture *f = *state;
	struct sched_request drain = {.verb = SCHED_DRAIN, .in.drain = true};
	struct store_match match;
	uint64_t seq;

	assert_int_equal(harness_call(&f->h, &drain), 0);
	assert_int_equal(client_open(&f->c, IDS, 4, &seq, &match), -ESHUTDOWN);
	client_compute(&f->c, f->seq, IDS, 4);
}

static void open_entries_end_when_the_session_does(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct sched_request end = {.verb = SCHED_SESSION_END};

	client_start(&other, &f->h, 1001, &SHAPE, 1 << 20);
	end.session = other.session;
	for (int i = 0; i < 200; i++)
		client_submit(&other, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	assert_int_equal(harness_call(&f->h, &end), 0);
	assert_int_equal(ring_done(other.lane), 200);
	client_unmap(&other);
}

/* A freed arena takes the steps that use it along, and no others. */
static void a_freed_arena_fails_its_own_steps_alone(void **state)
{
	struct fixture *f = *state;
	struct sched_request add = {.verb = SCHED_ARENA_ADD, .session = f->c.session};
	struct sched_request remove = {.verb = SCHED_ARENA_REMOVE,
				       .session = f->c.session,
				       .in.arena.arena = 2};
	uint32_t n = 600, *ids = calloc(n, sizeof(*ids));
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, n);
	void *second = aligned_alloc(4096, 1 << 20);

	add.in.arena.arena = 2;
	add.in.arena.base = second;
	add.in.arena.bytes = 1 << 20;
	assert_int_equal(harness_call(&f->h, &add), 0);
	assert_ends(client_extend(&f->c, f->seq, ids, n), 0, ABI_OK);
	uint64_t ticket = client_submit(&f->c, (struct abi_entry){.kind = ABI_STEP, .count = 1},
					&rec, sizeof(rec));

	assert_int_equal(harness_call(&f->h, &remove), 0);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
	free(second);
	free(ids);
}

static void draft_trees_are_of_a_bounded_size(void **state)
{
	struct fixture *f = *state;
	uint32_t n = 1025, *body = calloc(2 * n, sizeof(*body));
	struct abi_entry e = {.kind = ABI_EXTEND,
			      .seq = f->seq,
			      .count = n,
			      .flags = ABI_EXTEND_PARENTS};

	for (uint32_t i = 0; i < n; i++)
		body[n + i] = i - 1;
	assert_ends(client_do(&f->c, e, body, 8 * n), -E2BIG, ABI_TOO_MANY_TOKENS);
	free(body);
}

static void open_entries_end_when_the_scheduler_does(void **state)
{
	struct fixture *f = *state;
	struct harness h;
	struct client c;

	(void)f;
	harness_init(&h);
	harness_start(&h);
	client_start(&c, &h, 1000, &SHAPE, 1 << 20);
	for (int i = 0; i < 100; i++)
		client_submit(&c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	harness_stop(&h);
	assert_int_equal(ring_done(c.lane), 100);
	client_unmap(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(nop_completes),
		TEST(entries_complete_once_and_in_order),
		TEST(a_step_needs_an_extension),
		TEST(layers_ascend),
		TEST(a_failed_step_voids_its_extension_until_a_trim),
		TEST(extend_refuses),
		TEST(prompts_have_a_share_of_memory),
		TEST(too_many_tokens_for_the_pool_change_nothing),
		TEST(bodies_out_of_range_are_refused),
		TEST(arenas_are_checked),
		TEST(handles_of_others_are_stale),
		TEST(a_sequence_stays_in_its_lane),
		TEST(a_sequence_twice_in_a_step_is_refused),
		TEST(a_lane_that_makes_no_sense_gets_one_answer),
		TEST(a_draft_waits_for_its_accept),
		TEST(an_accept_of_no_draft_is_refused),
		TEST(a_fork_is_a_sequence_of_its_own),
		TEST(a_trim_beyond_the_end_is_refused),
		TEST(the_second_opener_waits_and_finds_it_cached),
		TEST(a_waiter_takes_over_when_the_claimant_goes),
		TEST(a_claim_taken_over_lapses_too),
		TEST(a_wait_ends_at_its_deadline),
		TEST(domains_do_not_share),
		TEST(model_shapes_are_checked),
		TEST(a_draining_daemon_takes_no_new_sequences),
		TEST(open_entries_end_when_the_session_does),
		TEST(a_freed_arena_fails_its_own_steps_alone),
		TEST(draft_trees_are_of_a_bounded_size),
		TEST(open_entries_end_when_the_scheduler_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
