/* sched_seqs_test.c - sequences in a real scheduler: drafts, forks, trims; who computes a prompt
 * and who waits for it; what is not shared. */
#include "sched_fixture.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "daemon/control/lanes.h"
#include "daemon/control/pins.h"
#include "daemon/control/seqs.h"
#include "daemon/control/sessions.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/seq/wait.h"
#include "daemon/sched/verbs/sessions.h"

#include "daemon/sched/core/state.h"
#include "daemon/sched/round.h"
#include "kvstore/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The linker has publications come by here. */
static _Atomic bool publication_fails;
int __real_store_seq_publish(struct store_seq *q, uint64_t now_ns);
int __wrap_store_seq_publish(struct store_seq *q, uint64_t now_ns);

int __wrap_store_seq_publish(struct store_seq *q, uint64_t now_ns)
{
	return publication_fails ? -ENOMEM : __real_store_seq_publish(q, now_ns);
}

/* Ids of prompts that are not computed are the daemon's memory: a user has its share of it in all
 * of its sessions, as before once they are. */
static void prompts_have_a_share_of_memory(void **state)
{
	static uint32_t ids[1024];
	struct harness h;
	struct client c, twin, stranger;
	struct store_match match;
	uint64_t seqs[3], theirs;
	uint32_t n_theirs = 1024 - 3 * 1024 / 10; /* the last tenth but for what he leaves */

	(void)state;
	harness_init(&h);
	h.config.domain_prompt_bytes = 2 * sizeof(ids);
	h.config.prompt_bytes = 3 * sizeof(ids);
	harness_start(&h);
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	client_start(&twin, &h, 1000, &fixture_shape, 1 << 20);
	client_start(&stranger, &h, 1001, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&c, ids, 1024, &seqs[0], &match), 0);
	assert_int_equal(client_open(&c, ids, 1024, &seqs[1], &match), 0);
	assert_int_equal(client_open(&c, ids, 1, &seqs[2], &match), -EDQUOT);
	assert_int_equal(client_open(&twin, ids, 1, &theirs, &match), -EDQUOT);
	assert_int_equal(client_open(&stranger, ids, n_theirs + 1, &theirs, &match), -EDQUOT);
	assert_int_equal(client_open(&stranger, ids, n_theirs, &theirs, &match), 0);
	assert_int_equal(harness_status(&h).store.prompt_bytes,
			 2 * sizeof(ids) + n_theirs * sizeof(ids[0]));
	assert_int_equal(client_open(&stranger, ids, 1, &theirs, &match), -EDQUOT);
	assert_ends(client_do(&c, (struct abi_entry){.kind = ABI_FORK, .seq = seqs[0]}, NULL, 0),
		    -EDQUOT, ABI_TOO_MANY_PROMPTS);
	assert_int_equal(client_close(&c, seqs[1]), 0);
	assert_int_equal(client_open(&c, ids, 1024, &seqs[1], &match), 0);
	client_compute(&c, seqs[0], ids, 1024);
	assert_int_equal(client_open(&c, ids, 1, &seqs[2], &match), 0);
	client_end(&stranger);
	client_end(&twin);
	client_end(&c);
	assert_int_equal(harness_status(&h).store.prompt_bytes, 0);
	harness_stop(&h);
}

/* More than are closed in a turn, whose prompts have a claim, ids that are not computed and tokens
 * in pages that nobody else will ever find. */
static void leave_open(struct client *c)
{
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t ids[FIXTURE_IDS] = {1000 + i, 8, 9};
		struct store_match match;
		uint64_t seq;

		assert_int_equal(client_open(c, ids, FIXTURE_IDS, &seq, &match), 0);
		assert_true(match.claimed);
		assert_ends(client_extend(c, seq, ids, 4), 0, ABI_OK);
	}
}

static void assert_as_before(struct harness *h, const struct sched_status *before)
{
	struct sched_status now = harness_status(h);

	assert_int_equal(now.store.n_seqs, before->store.n_seqs);
	assert_int_equal(now.store.n_claims, before->store.n_claims);
	assert_int_equal(now.store.prompt_bytes, before->store.prompt_bytes);
	assert_int_equal(now.store.n_pages, before->store.n_pages);
	assert_int_equal(now.store.n_nodes, before->store.n_nodes);
}

static void free_lane(struct client *c, uint32_t number)
{
	struct lane_call lane = {.lane = number};
	struct sched_request rq = {.serve = verb_lane_free.serve,
				   .session = c->session,
				   .room = &lane};

	assert_int_equal(harness_call(c->h, &rq), 0);
}

static uint64_t slow_now_ns;

/* Whatever is done takes as long as sequences are closed at once. */
static uint64_t slow_clock(void)
{
	return slow_now_ns += 1000000;
}

static void what_is_open_goes_with_its_lane_or_session(void **state)
{
	struct fixture *f = *state;
	struct sched_status before = harness_status(&f->h), open;
	struct client c;

	f->h.sched->core.clock = slow_clock;
	for (int i = 0; i < 2; i++) {
		client_start(&c, &f->h, 1001, &fixture_shape, 1 << 20);
		leave_open(&c);
		open = harness_status(&f->h);
		assert_int_equal(open.store.n_seqs, before.store.n_seqs + 20);
		assert_int_equal(open.store.n_claims, before.store.n_claims + 20);
		assert_int_equal(open.store.n_pages, before.store.n_pages + 20);
		assert_true(open.store.prompt_bytes > before.store.prompt_bytes);
		if (i == 0) {
			free_lane(&c, 1);
			assert_as_before(&f->h, &before);
		}
		client_end(&c);
		assert_as_before(&f->h, &before);
	}
}

static void what_is_open_in_another_lane_stays(void **state)
{
	struct fixture *f = *state;
	struct abi_lane *memory = aligned_alloc(64, align_to(sizeof(*memory), 64));
	struct lane_call lane = {.lane = 2, .shared = memory, .notify_fd = -1};
	struct seq_open_call open = {.model = f->c.model,
				     .lane = 2,
				     .tokens = client_tokens(fixture_ids, 4),
				     .n_tokens = 4};
	struct sched_request rq = {.serve = verb_lane_seal.serve,
				   .session = f->c.session,
				   .room = &lane};

	assert_non_null(memory);
	memset(memory, 0, sizeof(*memory));
	assert_int_equal(harness_call(&f->h, &rq), 0);
	rq.serve = verb_seq_open.serve;
	rq.room = &open;
	assert_int_equal(harness_call(&f->h, &rq), 0);
	assert_null(open.tokens); /* kept: no copy is made in which others wait */
	assert_int_equal(harness_status(&f->h).store.n_seqs, 2);
	free_lane(&f->c, 2);
	free(memory);
	assert_int_equal(harness_status(&f->h).store.n_seqs, 1);
	client_compute(&f->c, f->seq, fixture_ids, 4);
}

static int pin(struct client *c, uint64_t seq, char message[240])
{
	struct pin_call call = {.what = seq, .for_ns = UINT64_C(1000000000)};
	struct sched_request rq = {.serve = verb_seq_pin.serve,
				   .session = c->session,
				   .room = &call};
	int r = harness_call(c->h, &rq);

	snprintf(message, 240, "%s", rq.message);
	return r;
}

/* Pages of 16 tokens and 8 KiB, of a pool of 64 MiB: one percent of it keeps the first, not both.
 */
static void pins_of_a_user_have_a_share_of_the_pool(void **state)
{
	static uint32_t ids[2][1024];
	char message[240];
	struct harness h;
	struct client c, stranger;
	struct store_match match;
	uint64_t seqs[2], theirs;

	(void)state;
	harness_init(&h);
	h.config.domain_pin_percent = 1;
	harness_start(&h);
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	client_start(&stranger, &h, 1001, &fixture_shape, 1 << 20);
	for (uint32_t i = 0; i < 2; i++) {
		ids[i][0] = i;
		assert_int_equal(client_open(&c, ids[i], 1024, &seqs[i], &match), 0);
		client_compute(&c, seqs[i], ids[i], 1024);
	}
	assert_int_equal(client_open(&stranger, ids[0], 1024, &theirs, &match), 0);
	client_compute(&stranger, theirs, ids[0], 1024);
	assert_int_equal(pin(&c, seqs[0], message), 0);
	assert_int_equal(pin(&c, seqs[1], message), -EDQUOT);
	assert_non_null(strstr(message, "(domain_pin_percent): unpin some."));
	assert_int_equal(pin(&c, seqs[0], message), 0);
	assert_int_equal(pin(&stranger, theirs, message), 0);
	assert_int_equal(harness_status(&h).store.pinned_bytes, 2 * 64 * 8192);
	client_end(&stranger);
	client_end(&c);
	harness_stop(&h);
}

static void a_draft_waits_for_its_accept(void **state)
{
	struct fixture *f = *state;
	static const uint32_t ids_parents[] = {50, 51, 52, 53, WORK_NONE, 0, 0, 2};
	static const uint32_t stranger[] = {0, 1, 3}, path[] = {0, 2, 3};
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);
	struct abi_entry accept = {.kind = ABI_ACCEPT, .seq = f->seq, .count = 3};

	client_compute(&f->c, f->seq, fixture_ids, 4);
	assert_ends(client_do(&f->c, accept, path, sizeof(path)), -EINVAL, ABI_NOT_EXTENDED);
	assert_ends(client_do(&f->c,
			      (struct abi_entry){.kind = ABI_EXTEND,
						 .seq = f->seq,
						 .count = 4,
						 .flags = ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS},
			      ids_parents, sizeof(ids_parents)),
		    0, ABI_OK);
	assert_ends(client_do(&f->c, accept, path, sizeof(path)), -EBUSY, ABI_STILL_EXTENDED);
	for (uint32_t layer = 0; layer < fixture_shape.n_layers; layer++)
		assert_ends(client_step(&f->c, &rec, layer), 0, ABI_OK);
	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), -EBUSY, ABI_NOT_ACCEPTED);
	assert_ends(client_do(&f->c, accept, stranger, sizeof(stranger)), -EINVAL, ABI_BAD_INDICES);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 4);
	assert_ends(client_do(&f->c, accept, path, sizeof(path)), 0, ABI_OK);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 7);
	client_compute(&f->c, f->seq, fixture_ids, 1);
}

static void an_accept_of_no_draft_is_refused(void **state)
{
	struct fixture *f = *state;
	static const uint32_t zero;

	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
	assert_ends(client_do(&f->c,
			      (struct abi_entry){.kind = ABI_ACCEPT, .seq = f->seq, .count = 1},
			      &zero, 4),
		    -EINVAL, ABI_NOT_DRAFT);
}

static void a_fork_is_a_sequence_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct abi_completion fork;

	client_compute(&f->c, f->seq, fixture_ids, 4);
	fork = client_do(&f->c, (struct abi_entry){.kind = ABI_FORK, .seq = f->seq}, NULL, 0);
	assert_ends(fork, 0, ABI_OK);
	assert_int_not_equal(fork.value, f->seq);
	client_compute(&f->c, fork.value, fixture_ids, 3);
	client_compute(&f->c, f->seq, fixture_ids + 5, 3);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 10);
}

static void a_trim_beyond_the_end_is_refused(void **state)
{
	struct fixture *f = *state;

	client_compute(&f->c, f->seq, fixture_ids, 4);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq, .arg = 5},
			      NULL, 0),
		    -EINVAL, ABI_TOO_LONG);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq, .arg = 2},
			      NULL, 0),
		    0, ABI_OK);
	client_compute(&f->c, f->seq, fixture_ids + 9, 2);
}

static uint64_t tokens_matched(const struct client *c)
{
	struct sessions_page page = {0};
	struct sched_request rq = {.serve = verb_sessions.serve, .room = &page};
	uint32_t i = 0;

	assert_int_equal(harness_call(c->h, &rq), 0);
	while (i < page.n && page.infos[i].id != c->session->id)
		i++;
	assert_true(i < page.n);
	return page.infos[i].tokens_matched;
}

static void the_second_opener_waits_and_finds_it_cached(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct store_match match;
	uint64_t seq, mine;

	assert_int_equal(client_close(&f->c, f->seq), 0);
	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&f->c, fixture_ids, FIXTURE_IDS, &mine, &match), 0);
	assert_true(match.claimed);
	assert_int_equal(client_open(&other, fixture_ids, FIXTURE_IDS, &seq, &match), 0);
	assert_false(match.claimed);
	assert_int_equal(match.pending, FIXTURE_IDS - 1);
	struct seq_wait_call call = {.seq = seq, .for_ns = UINT64_C(10000000000)};
	struct sched_request wait = {.serve = verb_seq_wait.serve,
				     .session = other.session,
				     .room = &call};

	sched_post(f->h.sched, &wait);
	sched_post(f->h.sched, &(struct sched_request){.serve = sched_probe});
	assert_int_equal(harness_next_reply(&f->h)->serve, sched_probe);
	client_compute(&f->c, mine, fixture_ids, FIXTURE_IDS);
	assert_ptr_equal(harness_next_reply(&f->h), &wait);
	assert_int_equal(wait.code, 0);
	assert_int_equal(call.match.cached, FIXTURE_IDS - 1);
	assert_int_equal(tokens_matched(&other), FIXTURE_IDS - 1);
	assert_int_equal(tokens_matched(&f->c), 0);
	assert_int_equal(harness_status(&f->h).store.tokens_matched, FIXTURE_IDS - 1);
	client_compute(&other, seq, fixture_ids + FIXTURE_IDS - 1, 1);
	assert_int_equal(harness_status(&f->h).store.tokens_dropped, 1);
	client_end(&other);
}

/* More than are looked at in a round. */
static void a_crowd_of_waiters_is_answered(void **state)
{
	enum { N = 300 };
	static struct sched_request waits[N];
	static struct seq_wait_call calls[N];
	struct harness h;
	struct client c;
	struct store_match match;
	uint64_t mine, seq;

	(void)state;
	harness_init(&h);
	h.config.max_seqs = N + 1;
	harness_start(&h);
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&c, fixture_ids, FIXTURE_IDS, &mine, &match), 0);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(client_open(&c, fixture_ids, FIXTURE_IDS, &seq, &match), 0);
		calls[i] = (struct seq_wait_call){.seq = seq, .for_ns = UINT64_C(10000000000)};
		waits[i] = (struct sched_request){.serve = verb_seq_wait.serve,
						  .session = c.session,
						  .room = &calls[i]};
		sched_post(h.sched, &waits[i]);
	}
	client_compute(&c, mine, fixture_ids, FIXTURE_IDS);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(harness_next_reply(&h)->code, 0);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(calls[i].match.cached, FIXTURE_IDS - 1);
	client_end(&c);
	harness_stop(&h);
}

static uint64_t skipped_ns;

static uint64_t later_clock(void)
{
	return clock_now_ns() + skipped_ns;
}

static uint32_t answers_of_a_round(struct sched *s)
{
	uint32_t n = 0;

	sched_round(s);
	while (sched_reap(s))
		n++;
	return n;
}

/* The prompts of each are matched once more: others' steps come in between. So many are looked at
 * as the store has changed, and so many as they are over time. */
static void a_crowd_of_waiters_whose_time_is_over_is_answered_some_in_a_round(void **state)
{
	enum { N = 300, A_ROUND = 64 + 64 };
	static struct sched_request waits[N];
	static struct seq_wait_call calls[N];
	struct harness h;
	struct client c;
	struct store_match match;
	uint64_t seq;
	uint32_t n, n_answered = 0;

	(void)state;
	harness_init(&h);
	h.config.max_seqs = N + 1;
	h.config.claim_ms = 10000000; /* nobody takes it over */
	h.stepped = true;
	harness_start(&h);
	h.sched->core.clock = later_clock;
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&c, fixture_ids, FIXTURE_IDS, &seq, &match), 0);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(client_open(&c, fixture_ids, FIXTURE_IDS, &seq, &match), 0);
		calls[i] = (struct seq_wait_call){.seq = seq, .for_ns = UINT64_C(3600000000000)};
		waits[i] = (struct sched_request){.serve = verb_seq_wait.serve,
						  .session = c.session,
						  .room = &calls[i]};
		sched_post(h.sched, &waits[i]);
	}
	while (h.sched->waits.n < N)
		assert_int_equal(answers_of_a_round(h.sched), 0);
	skipped_ns = UINT64_C(7200000000000);
	for (int i = 0; i < 1000 && n_answered < N; i++, n_answered += n) {
		n = answers_of_a_round(h.sched);
		assert_in_range(n, 0, A_ROUND);
	}
	assert_int_equal(n_answered, N);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(waits[i].code, -ETIMEDOUT);
	client_end(&c);
	harness_stop(&h);
}

static void a_waiter_takes_over_when_the_claimant_goes(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct store_match match;
	uint64_t seq, mine;

	assert_int_equal(client_close(&f->c, f->seq), 0);
	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&other, fixture_ids, FIXTURE_IDS, &seq, &match), 0);
	assert_int_equal(client_open(&f->c, fixture_ids, FIXTURE_IDS, &mine, &match), 0);
	struct seq_wait_call call = {.seq = mine, .for_ns = UINT64_C(10000000000)};
	struct session_end_call end_call = {0};
	struct sched_request wait = {.serve = verb_seq_wait.serve,
				     .session = f->c.session,
				     .room = &call};
	struct sched_request end = {.serve = sched_session_end,
				    .session = other.session,
				    .room = &end_call};

	client_compute(&other, seq, fixture_ids, 5);
	sched_post(f->h.sched, &wait);
	sched_post(f->h.sched, &end);
	struct sched_request *a = harness_next_reply(&f->h), *b = harness_next_reply(&f->h);

	assert_true((a == &wait && b == &end) || (a == &end && b == &wait));
	assert_int_equal(wait.code, 0);
	assert_true(call.match.claimed);
	assert_int_equal(call.match.cached, 5);
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
	client_start(&a, &h, 1000, &fixture_shape, 1 << 20);
	client_start(&b, &h, 1000, &fixture_shape, 1 << 20);
	client_start(&c, &h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&a, fixture_ids, FIXTURE_IDS, &of_a, &match), 0);
	assert_int_equal(client_open(&b, fixture_ids, FIXTURE_IDS, &of_b, &match), 0);
	assert_int_equal(client_open(&c, fixture_ids, FIXTURE_IDS, &of_c, &match), 0);
	struct seq_wait_call calls[] = {{.seq = of_b, .for_ns = UINT64_C(20000000000)},
					{.seq = of_c, .for_ns = UINT64_C(20000000000)}};
	struct sched_request waits[] = {
		{.serve = verb_seq_wait.serve, .session = b.session, .room = &calls[0]},
		{.serve = verb_seq_wait.serve, .session = c.session, .room = &calls[1]}};

	sched_post(h.sched, &waits[0]);
	sched_post(h.sched, &waits[1]);
	assert_ptr_equal(harness_next_reply(&h), &waits[0]);
	assert_true(calls[0].match.claimed);
	assert_ptr_equal(harness_next_reply(&h), &waits[1]);
	assert_true(calls[1].match.claimed);
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
	assert_int_equal(client_open(&f->c, fixture_ids, FIXTURE_IDS, &first, &match), 0);
	assert_int_equal(client_open(&f->c, fixture_ids, FIXTURE_IDS, &second, &match), 0);
	struct seq_wait_call call = {.seq = second, .for_ns = UINT64_C(20000000)};
	struct sched_request wait = {.serve = verb_seq_wait.serve,
				     .session = f->c.session,
				     .room = &call};

	assert_int_equal(harness_call(&f->h, &wait), -ETIMEDOUT);
	assert_int_equal(call.match.pending, FIXTURE_IDS - 1);
}

static void domains_do_not_share(void **state)
{
	struct fixture *f = *state;
	struct client other;
	struct store_match match;
	uint64_t seq;

	client_compute(&f->c, f->seq, fixture_ids, 4);
	client_start(&other, &f->h, 1001, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&other, fixture_ids, 4, &seq, &match), 0);
	assert_int_equal(match.cached, 0);
	client_end(&other);
}

/* Its step is done by then: what it computed is right, and is nobody's. */
static void tokens_without_room_to_be_published_are_void(void **state)
{
	struct fixture *f = *state;
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = f->seq, .arg = 4};

	client_compute(&f->c, f->seq, fixture_ids, 4);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 4);
	publication_fails = true;
	client_compute(&f->c, f->seq, fixture_ids + 4, 1);
	struct abi_completion next = client_extend(&f->c, f->seq, fixture_ids + 5, 1);

	assert_ends(next, -ENOMEM, ABI_NO_MEMORY);
	assert_int_equal(next.cause, next.ticket - 1);
	publication_fails = false;
	assert_int_equal(harness_status(&f->h).store.n_tokens, 4);
	assert_ends(client_do(&f->c, trim, NULL, 0), 0, ABI_OK);
	client_compute(&f->c, f->seq, fixture_ids + 4, 1);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 5);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define STEPPED(name) cmocka_unit_test_setup_teardown(name, fixture_setup_stepped, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(prompts_have_a_share_of_memory),
		STEPPED(what_is_open_goes_with_its_lane_or_session),
		STEPPED(what_is_open_in_another_lane_stays),
		TEST(pins_of_a_user_have_a_share_of_the_pool),
		TEST(a_draft_waits_for_its_accept),
		TEST(an_accept_of_no_draft_is_refused),
		TEST(a_fork_is_a_sequence_of_its_own),
		TEST(a_trim_beyond_the_end_is_refused),
		TEST(the_second_opener_waits_and_finds_it_cached),
		TEST(a_crowd_of_waiters_is_answered),
		TEST(a_crowd_of_waiters_whose_time_is_over_is_answered_some_in_a_round),
		TEST(a_waiter_takes_over_when_the_claimant_goes),
		TEST(a_claim_taken_over_lapses_too),
		TEST(a_wait_ends_at_its_deadline),
		TEST(domains_do_not_share),
		TEST(tokens_without_room_to_be_published_are_void),
		TEST(draft_trees_are_of_a_bounded_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
