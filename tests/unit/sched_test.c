/* sched_test.c - entries and requests through a real scheduler: what each fault is told, what it
 * leaves as it was. */
#include "sched_fixture.h"

#include "daemon/control/arenas.h"
#include "daemon/control/lanes.h"
#include "daemon/control/seqs.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/core/arena_number.h"
#include "daemon/sched/verbs/models.h"
#include "daemon/sched/verbs/sessions.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

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
	client_compute(&f->c, f->seq, fixture_ids, 4);
	assert_ends(client_step(&f->c, &rec, 0), -EINVAL, ABI_NOT_EXTENDED);
}

static void entries_end_as_the_extension_that_they_need(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq recs[2] = {client_step_seq(&f->c, f->seq, 4)};
	struct abi_entry accept = {.kind = ABI_ACCEPT, .seq = f->seq};
	struct abi_entry step = {.kind = ABI_STEP, .count = 2};
	struct store_match match;
	struct abi_completion first, both;
	uint64_t other;

	assert_int_equal(client_open(&f->c, fixture_ids + 9, 4, &other, &match), 0);
	assert_ends(client_extend(&f->c, other, fixture_ids + 9, 4), 0, ABI_OK);
	first = client_extend(&f->c, f->seq, fixture_ids, 0);
	assert_ends(first, -EINVAL, ABI_NO_TOKENS);
	assert_ends_as(client_step(&f->c, recs, 0), first);
	assert_ends_as(client_do(&f->c, accept, NULL, 0), first);
	assert_ends(client_extend(&f->c, f->seq, NULL, 0), -EINVAL, ABI_NO_TOKENS);
	assert_ends_as(client_step(&f->c, recs, 0), first);
	recs[1] = recs[0];
	recs[0].seq = other;
	both = client_do(&f->c, step, recs, sizeof(recs));
	assert_ends_as(both, first);
	assert_int_equal(both.where, 1);
	assert_ends_as(client_step(&f->c, recs, 0), first);
	client_compute(&f->c, f->seq, fixture_ids, 4);
	assert_ends(client_step(&f->c, &recs[1], 0), -EINVAL, ABI_NOT_EXTENDED);
}

static void layers_ascend(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
	assert_ends(client_step(&f->c, &rec, 1), -EINVAL, ABI_WRONG_LAYER);
}

static void a_failed_step_voids_its_extension_until_a_trim(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
	struct abi_completion first = client_step(&f->c, &rec, 5);

	assert_ends(first, -EINVAL, ABI_WRONG_LAYER);
	assert_int_equal(first.cause, 0);
	assert_ends_as(client_step(&f->c, &rec, 0), first);
	assert_ends_as(client_extend(&f->c, f->seq, fixture_ids, 4), first);
	assert_ends_as(client_do(&f->c, (struct abi_entry){.kind = ABI_FORK, .seq = f->seq}, NULL,
				 0),
		       first);
	assert_int_equal(harness_status(&f->h).store.n_pages, 0);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq, .arg = 0},
			      NULL, 0),
		    0, ABI_OK);
	client_compute(&f->c, f->seq, fixture_ids, 4);
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
	assert_ends(client_do(&f->c, e, fixture_ids, 16), -E2BIG, ABI_TOO_MANY_TOKENS);
	e.count = 4;
	assert_ends(client_do(&f->c, e, fixture_ids, 12), -EINVAL, ABI_BAD_BODY);
	e.flags = 1u << 31;
	assert_ends(client_do(&f->c, e, fixture_ids, 16), -EINVAL, ABI_BAD_FLAGS);
	e.flags = ABI_EXTEND_PARENTS;
	static const uint32_t cyclic[] = {1, 2, 3, 4, WORK_NONE, 1, 0, 0};

	assert_ends(client_do(&f->c, e, cyclic, 32), -EINVAL, ABI_BAD_PARENTS);
	assert_int_equal(harness_status(&f->h).store.n_pages, 0);
	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), -EBUSY, ABI_STILL_EXTENDED);
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
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&c, fixture_ids, 4, &seq, &match), 0);
	assert_ends(client_extend(&c, seq, ids, n), -ENOSPC, ABI_NO_ROOM);
	assert_int_equal(harness_status(&h).store.n_pages, 0);
	client_compute(&c, seq, fixture_ids, 4);
	client_end(&c);
	harness_stop(&h);
	free(ids);
}

/* An extension by 4 ids whose body lies there. */
static struct abi_completion extend_from(struct fixture *f, uint64_t body, uint32_t body_bytes)
{
	struct client *c = &f->c;
	uint64_t t = client_submit(c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0) + 1;

	client_wait(c, t - 1);
	c->ticket = t;
	c->lane->entries[ring_slot(t)] = (struct abi_entry){.kind = ABI_EXTEND,
							    .seq = f->seq,
							    .count = 4,
							    .ticket = t,
							    .body = body,
							    .body_bytes = body_bytes};
	ring_publish(c->lane, t);
	if (ring_daemon_asleep(f->h.board))
		ring_doorbell(c->doorbell);
	return client_wait(c, t);
}

static void bodies_out_of_range_are_refused(void **state)
{
	assert_ends(extend_from(*state, ABI_BODY_ARENA_BYTES - 8, 16), -EINVAL, ABI_BAD_BODY);
	assert_ends(extend_from(*state, 4, 16), -EINVAL, ABI_BAD_BODY);
	assert_ends(extend_from(*state, 0, ABI_BODY_MAX_BYTES + 8), -EINVAL, ABI_BAD_BODY);
}

static void a_body_may_end_where_their_room_ends(void **state)
{
	struct fixture *f = *state;

	memcpy(f->c.lane->bodies + ABI_BODY_ARENA_BYTES - 16, fixture_ids, 16);
	assert_ends(extend_from(f, ABI_BODY_ARENA_BYTES - 16, 16), 0, ABI_OK);
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

		assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
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

	client_start(&other, &f->h, 1001, &fixture_shape, 1 << 20);
	assert_ends(client_extend(&other, f->seq, fixture_ids, 4), -ESTALE, ABI_STALE_SEQ);
	assert_int_equal(client_close(&other, f->seq), -ESTALE);
	assert_int_equal(client_close(&f->c, f->seq), 0);
	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), -ESTALE, ABI_STALE_SEQ);
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
	struct lane_call call = {2, side.lane, -1};
	struct sched_request add = {.serve = verb_lane_seal.serve,
				    .session = side.session,
				    .room = &call};
	struct sched_request remove = {.serve = verb_lane_free.serve,
				       .session = side.session,
				       .room = &call};

	assert_int_equal(harness_call(&f->h, &add), 0);
	assert_ends(client_extend(&side, f->seq, fixture_ids, 4), -EINVAL, ABI_WRONG_LANE);
	assert_int_equal(harness_call(&f->h, &remove), 0);
	free(side.lane);
}

static void a_sequence_twice_in_a_step_is_refused(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq recs[2] = {client_step_seq(&f->c, f->seq, 4),
				       client_step_seq(&f->c, f->seq, 4)};

	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
	assert_ends_at(client_do(&f->c, (struct abi_entry){.kind = ABI_STEP, .count = 2}, recs,
				 sizeof(recs)),
		       -EINVAL, ABI_SEQ_TWICE, 1);
}

static void a_lane_that_makes_no_sense_gets_one_answer(void **state)
{
	struct fixture *f = *state;
	struct client other;
	uint64_t ticket;

	client_start(&other, &f->h, 1001, &fixture_shape, 1 << 20);
	ticket = client_submit(&other, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	client_wait(&other, ticket);
	ring_publish(other.lane, ticket + ABI_LANE_SLOTS + 1);
	ring_doorbell(other.doorbell);
	assert_ends(client_wait(&other, ticket + 1), -EPROTO, ABI_BAD_TICKET);
	ring_publish(other.lane, 0);
	ring_doorbell(other.doorbell);
	nop_completes(state);
	assert_int_equal(ring_done(other.lane), ticket + 1);
	client_end(&other);
}

/* For what another sequence claims, and does not compute. */
static void a_wait_ends_with_its_sequence(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	struct seq_wait_call call = {.for_ns = UINT64_MAX};
	struct sched_request wait = {.serve = verb_seq_wait.serve,
				     .session = f->c.session,
				     .room = &call};
	struct sched_request close = {.serve = verb_seq_close.serve,
				      .session = f->c.session,
				      .room = &call.seq};

	assert_int_equal(client_open(&f->c, fixture_ids, 4, &call.seq, &match), 0);
	assert_int_equal(match.pending, 3);
	sched_post(f->h.sched, &wait);
	sched_post(f->h.sched, &close);
	assert_ptr_equal(harness_next_reply(&f->h), &wait);
	assert_int_equal(wait.code, -ECANCELED);
	assert_string_equal(wait.message, "The sequence was closed while it waited.");
	assert_int_equal(call.match.pending, 0);
	assert_ptr_equal(harness_next_reply(&f->h), &close);
	assert_int_equal(close.code, 0);
}

static void model_shapes_are_checked(void **state)
{
	struct fixture *f = *state;
	struct work_shape bad[] = {fixture_shape, fixture_shape, fixture_shape, fixture_shape};
	static const char *const fields[] = {"n_layers", "n_q_heads", "n_kv_heads", "n_q_heads"};

	bad[0].n_layers = 0;
	bad[1].n_q_heads = 5;
	bad[2].n_kv_heads = 0;
	bad[3].n_q_heads = (WORK_HEADS_MAX + 1) * bad[3].n_kv_heads;
	for (int i = 0; i < 4; i++) {
		struct model_call call = {.name = "bad", .shape = bad[i]};
		struct sched_request rq = {.serve = verb_model_open.serve,
					   .session = f->c.session,
					   .room = &call};

		assert_int_equal(harness_call(&f->h, &rq), -EINVAL);
		assert_string_equal(rq.field, fields[i]);
		assert_true(strlen(rq.message) > 10);
	}
}

static void a_draining_daemon_takes_no_new_sequences(void **state)
{
	struct fixture *f = *state;
	bool on = true;
	struct sched_request drain = {.serve = verb_drain.serve, .room = &on};
	struct store_match match;
	uint64_t seq;

	assert_int_equal(harness_call(&f->h, &drain), 0);
	assert_int_equal(client_open(&f->c, fixture_ids, 4, &seq, &match), -ESHUTDOWN);
	client_compute(&f->c, f->seq, fixture_ids, 4);
}

static void open_entries_end_when_the_session_does(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct session_end_call call = {0};
	struct sched_request end = {.serve = sched_session_end, .room = &call};

	client_start(&other, &f->h, 1001, &fixture_shape, 1 << 20);
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
	struct arena_call call = {.arena = 2, .bytes = 1 << 20};
	struct sched_request add = {.serve = verb_arena_new.serve,
				    .session = f->c.session,
				    .room = &call};
	struct sched_request remove = {.serve = verb_arena_free.serve,
				       .session = f->c.session,
				       .room = &call};
	uint32_t n = 600, *ids = calloc(n, sizeof(*ids));
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, n);
	void *second = aligned_alloc(4096, 1 << 20);

	call.base = second;
	assert_int_equal(harness_call(&f->h, &add), 0);
	assert_ends(client_extend(&f->c, f->seq, ids, n), 0, ABI_OK);
	uint64_t ticket = client_submit(&f->c, (struct abi_entry){.kind = ABI_STEP, .count = 1},
					&rec, sizeof(rec));

	assert_int_equal(harness_call(&f->h, &remove), 0);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
	free(second);
	free(ids);
}

/* What names a freed arena never reaches the one that came to its place. */
static void a_freed_arenas_number_is_not_the_next_ones(void **state)
{
	struct fixture *f = *state;
	struct arena_call call = {.arena = 1};
	struct sched_request remove = {.serve = verb_arena_free.serve,
				       .session = f->c.session,
				       .room = &call};
	struct sched_request add = {.serve = verb_arena_new.serve,
				    .session = f->c.session,
				    .room = &call};
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = f->seq};

	assert_int_equal(harness_call(&f->h, &remove), 0);
	call = (struct arena_call){arena_number(1, 1), f->c.arena, f->c.arena_bytes};
	assert_int_equal(harness_call(&f->h, &add), 0);

	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 1), 0, ABI_OK);
	assert_ends(client_step(&f->c, &rec, 0), -EINVAL, ABI_BAD_ARENA);
	assert_ends(client_do(&f->c, trim, NULL, 0), 0, ABI_OK);
	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 1), 0, ABI_OK);
	rec.arena_in = rec.arena_out = call.arena;
	assert_ends(client_step(&f->c, &rec, 0), 0, ABI_OK);
}

static void open_entries_end_when_the_scheduler_does(void **state)
{
	struct fixture *f = *state;
	struct harness h;
	struct client c;

	(void)f;
	harness_init(&h);
	harness_start(&h);
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	for (int i = 0; i < 100; i++)
		client_submit(&c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	harness_stop(&h);
	assert_int_equal(ring_done(c.lane), 100);
	client_unmap(&c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nop_completes),
		TEST(entries_complete_once_and_in_order),
		TEST(a_step_needs_an_extension),
		TEST(entries_end_as_the_extension_that_they_need),
		TEST(layers_ascend),
		TEST(a_failed_step_voids_its_extension_until_a_trim),
		TEST(extend_refuses),
		TEST(too_many_tokens_for_the_pool_change_nothing),
		TEST(bodies_out_of_range_are_refused),
		TEST(a_body_may_end_where_their_room_ends),
		TEST(arenas_are_checked),
		TEST(handles_of_others_are_stale),
		TEST(a_sequence_stays_in_its_lane),
		TEST(a_sequence_twice_in_a_step_is_refused),
		TEST(a_lane_that_makes_no_sense_gets_one_answer),
		TEST(a_wait_ends_with_its_sequence),
		TEST(model_shapes_are_checked),
		TEST(a_draining_daemon_takes_no_new_sequences),
		TEST(open_entries_end_when_the_session_does),
		TEST(a_freed_arena_fails_its_own_steps_alone),
		TEST(a_freed_arenas_number_is_not_the_next_ones),
		TEST(open_entries_end_when_the_scheduler_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
