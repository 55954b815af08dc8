/* sched_long_test.c - paths longer than the pool, whose KV streams through a stage. argv[1]: the
 * module of the backend, else it is the CPU's. */
#include "documents.h"

#include "proto/clock.h"
#include "daemon/control/pins.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void start_small(struct fixture *f)
{
	f->h.config.stage_bytes = 2u << 20;
	documents_start(f);
}

static uint64_t open_long(struct client *c, uint32_t n, struct store_match *ret)
{
	static uint32_t tokens[LONG_TOKENS];
	uint64_t seq;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = document_token(LONG_DOC, i);
	assert_int_equal(client_open(c, tokens, n, &seq, ret), 0);
	*ret = client_await(c, seq, *ret);
	return seq;
}

/* Tokens [pos, end) of the long document, at most step at a time; known outputs are right. */
static void go_on(struct client *c, uint64_t seq, uint32_t pos, uint32_t end, uint32_t step)
{
	float o[DOC_LAYERS][DOC_ROW];

	while (pos < end) {
		uint32_t n = DOC_CHUNK - pos % DOC_CHUNK;

		n = n < step ? n : step;
		document_compute(c, seq, LONG_DOC, pos, n, o);
		pos += n;
		if (pos % DOC_CHUNK == 0)
			assert_close(o, document_expected_long[pos / DOC_CHUNK - 1]);
	}
}

static void a_document_longer_than_the_pool_is_computed_and_found(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS, DOC_CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	seq = open_long(&f->c, LONG_TOKENS, &match);
	assert_int_equal(match.cached, LONG_TOKENS - 1);
	go_on(&f->c, seq, LONG_TOKENS - 1, LONG_TOKENS, 1);
	assert_int_equal(client_close(&f->c, seq), 0);
	assert_true(harness_status(&f->h).n_streamed > 0);
	assert_true(harness_status(&f->h).staged_bytes > 0);
	documents_stop(f);
}

/* Its last tokens, which are in no node of the tree yet, too. */
static void a_pin_keeps_all_of_it(void **state)
{
	struct fixture *f = *state;
	const uint32_t n = LONG_TOKENS - 8, other = 0;
	struct store_match match;
	uint64_t seq;

	f->h.config.domain_pin_percent = 100;
	f->h.config.host_tier_bytes = 12u << 20; /* less than all documents */
	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS - DOC_CHUNK, DOC_CHUNK);
	go_on(&f->c, seq, LONG_TOKENS - DOC_CHUNK, n, 8);
	struct pin_call call = {.what = seq, .for_ns = UINT64_C(600) * NS_PER_S};
	struct sched_request pin = {.serve = verb_seq_pin.serve,
				    .session = f->c.session,
				    .room = &call};

	assert_int_equal(client_extend(&f->c, seq, &other, 1).status, 0);
	assert_int_equal(harness_call(&f->h, &pin), -EBUSY);
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = seq, .arg = n};

	assert_int_equal(client_do(&f->c, trim, NULL, 0).status, 0);
	assert_int_equal(harness_call(&f->h, &pin), 0);
	assert_int_equal(client_close(&f->c, seq), 0);
	for (uint32_t i = 0; i < 2 * DOCS; i++)
		document_use(&f->c, i % DOCS, DOC_CHUNKS);
	seq = open_long(&f->c, LONG_TOKENS, &match);
	match = client_await(&f->c, seq, match);
	assert_int_equal(match.cached, n);
	assert_int_equal(client_close(&f->c, seq), 0);
	documents_stop(f);
}

static void tokens_are_decoded_behind_it_one_by_one(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS - 2 * DOC_CHUNK, DOC_CHUNK);
	go_on(&f->c, seq, LONG_TOKENS - 2 * DOC_CHUNK, LONG_TOKENS, 1);
	assert_int_equal(client_close(&f->c, seq), 0);
	documents_stop(f);
}

/* Tokens that are only stored, half of them behind what the pool has room for, and then attended
 * to. */
static void what_is_only_appended_needs_no_legs(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint32_t ids[DOC_CHUNK];
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	for (uint32_t pos = 0; pos < LONG_TOKENS - DOC_CHUNK; pos += DOC_CHUNK) {
		struct abi_step_seq rec = client_step_seq(&f->c, seq, DOC_CHUNK);
		for (uint32_t i = 0; i < DOC_CHUNK; i++)
			ids[i] = document_token(LONG_DOC, pos + i);
		assert_int_equal(client_extend(&f->c, seq, ids, DOC_CHUNK).status, 0);
		for (uint32_t layer = 0; layer < DOC_LAYERS; layer++) {
			struct abi_entry e = {.kind = ABI_STEP,
					      .count = 1,
					      .layer = layer,
					      .flags = ABI_STEP_APPEND_ONLY};
			document_fill(&f->c, LONG_DOC, pos, DOC_CHUNK, layer);
			assert_int_equal(client_do(&f->c, e, &rec, sizeof(rec)).status, 0);
		}
	}
	go_on(&f->c, seq, LONG_TOKENS - DOC_CHUNK, LONG_TOKENS, DOC_CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	documents_stop(f);
}

/* ---- how much of it the backend has at a time ---- */

static struct {
	struct backend_ops ops;
	struct backend_tier_ops tier;
	int (*completed)(struct backend *b, uint64_t *ret_id);
	int (*leg)(struct backend *b, const struct backend_batch *batch,
		   const struct backend_leg *leg, uint64_t *ret_id);
	uint64_t ids[3]; /* of the last legs */
	uint64_t n, n_looks, done_id;
	uint32_t most; /* of these that the backend had */
} flying;

/* What is done is told some looks later: there is time to go ahead. */
static int count_completed(struct backend *b, uint64_t *ret_id)
{
	int r = flying.completed(b, ret_id);

	if (flying.n_looks++ % 16 == 0)
		flying.done_id = *ret_id;
	*ret_id = flying.done_id;
	return r;
}

static int count_leg(struct backend *b, const struct backend_batch *batch,
		     const struct backend_leg *leg, uint64_t *ret_id)
{
	uint32_t n = 0;
	int r = flying.leg(b, batch, leg, ret_id);

	flying.ids[flying.n++ % 3] = *ret_id;
	for (int i = 0; i < 3; i++)
		n += flying.ids[i] > flying.done_id;
	flying.most = n > flying.most ? n : flying.most;
	return r;
}

/* A page takes a whole batch. */
static void cost_much(struct backend *b, const struct work_shape *of, struct backend_cost *ret)
{
	(void)b;
	(void)of;
	*ret = (struct backend_cost){.fixed_ns = 1000, .kv_ns_per_byte = 1e3, .row_ns_per_byte = 1};
}

static void who_comes_waits_for_no_more_than_a_batch_of_it(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	memset(&flying, 0, sizeof(flying));
	flying.ops = *f->h.ops;
	flying.tier = *flying.ops.tier;
	flying.completed = flying.ops.completed;
	flying.leg = flying.tier.leg;
	flying.tier.leg = count_leg;
	flying.ops.tier = &flying.tier;
	flying.ops.completed = count_completed;
	flying.ops.cost = cost_much;
	f->h.ops = &flying.ops;
	f->h.config.batch_budget_ms = 1;
	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS, DOC_CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	assert_true(flying.n > 0);
	assert_int_equal(flying.most, 1);
	documents_stop(f);
}

static void a_restart_finds_it_in_the_file(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	documents_with_file(f, 64u << 20);
	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS, DOC_CHUNK);
	documents_stop(f);
	documents_start(f);
	seq = open_long(&f->c, LONG_TOKENS, &match);
	assert_int_equal(match.cached, LONG_TOKENS - 1);
	go_on(&f->c, seq, LONG_TOKENS - 1, LONG_TOKENS, 1);
	assert_int_equal(client_close(&f->c, seq), 0);
	documents_stop(f);
}

/* Two pages of a layer are all that the stage has room for. */
static void a_stage_of_a_few_pages_does(void **state)
{
	const struct work_shape wide = document_shape_of((struct work_shape){.n_layers = 1,
									     .n_q_heads = 16,
									     .n_kv_heads = 16,
									     .head_dim = 128,
									     .page_tokens = 64,
									     .dtype = WORK_FP32});
	struct fixture *f = *state;
	struct store_match match;
	uint32_t ids[DOC_CHUNK];
	struct client c;
	uint64_t seq;

	start_small(f);
	client_start(&c, &f->h, 1, &wide, UINT64_C(4) << 20);
	seq = open_long(&c, 1, &match);
	for (uint32_t i = 0; i < 8; i++) {
		for (uint32_t at = 0; at < DOC_CHUNK; at++)
			ids[at] = document_token(LONG_DOC, i * DOC_CHUNK + at);
		client_compute(&c, seq, ids, DOC_CHUNK);
	}
	assert_true(harness_status(&f->h).staged_bytes > 0);
	assert_int_equal(client_close(&c, seq), 0);
	client_end(&c);
	documents_stop(f);
}

/* The long document's last token by n sequences in one step; returns how many bytes were staged. */
static uint64_t decode_together(struct fixture *f, uint32_t n)
{
	const uint32_t id = document_token(LONG_DOC, LONG_TOKENS - 1);
	struct abi_step_seq recs[8];
	float o[8][DOC_LAYERS][DOC_ROW];
	uint64_t staged = harness_status(&f->h).staged_bytes;

	for (uint32_t i = 0; i < n; i++) {
		struct store_match match;
		uint64_t seq = open_long(&f->c, LONG_TOKENS, &match);
		uint64_t at = (uint64_t)i * 4 * DOC_ROW_BYTES;

		assert_int_equal(match.cached, LONG_TOKENS - 1);
		assert_int_equal(client_extend(&f->c, seq, &id, 1).status, 0);
		recs[i] = client_step_seq(&f->c, seq, 1);
		recs[i].q = at;
		recs[i].k = at + DOC_ROW_BYTES;
		recs[i].v = at + 2 * DOC_ROW_BYTES;
		recs[i].o = at + 3 * DOC_ROW_BYTES;
	}
	for (uint32_t layer = 0; layer < DOC_LAYERS; layer++) {
		struct abi_entry e = {.kind = ABI_STEP, .count = n, .layer = layer};

		document_fill(&f->c, LONG_DOC, LONG_TOKENS - 1, 1, layer);
		for (uint32_t i = 1; i < n; i++)
			memcpy(f->c.arena + recs[i].q, f->c.arena, 3 * DOC_ROW_BYTES);
		assert_int_equal(client_do(&f->c, e, recs, n * sizeof(*recs)).status, 0);
		for (uint32_t i = 0; i < n; i++)
			document_output(&f->c, recs[i].o, o[i][layer]);
	}
	for (uint32_t i = 0; i < n; i++) {
		assert_close(o[i], document_expected_long[LONG_CHUNKS - 1]);
		assert_int_equal(client_close(&f->c, recs[i].seq), 0);
	}
	return harness_status(&f->h).staged_bytes - staged;
}

static void what_sequences_share_is_staged_once(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS - DOC_CHUNK, DOC_CHUNK);
	go_on(&f->c, seq, LONG_TOKENS - DOC_CHUNK, LONG_TOKENS - 1, DOC_CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	uint64_t one = decode_together(f, 1), eight = decode_together(f, 8);
	assert_true(one > 0 && eight < 2 * one);
	documents_stop(f);
}

/* ---- what legs take ---- */

#define MS_NS UINT64_C(1000000)

#define TICK_NS UINT64_C(1000) /* of the clock, each time it is looked at */

static struct {
	int (*completed)(struct backend *b, uint64_t *ret_id);
	uint64_t now_ns, slow_ns; /* what each leg takes */
	uint64_t budget_ns, done_id;
	double leg_pages; /* that take as long as a batch may */
} played;

static void cost_by_pages(struct backend *b, const struct work_shape *of, struct backend_cost *ret)
{
	double page_bytes = 2.0 * of->page_tokens * of->n_kv_heads * of->head_dim *
			    (double)work_dtype_bytes(of->dtype);

	(void)b;
	*ret = (struct backend_cost){.fixed_ns = 1000,
				     .kv_ns_per_byte = (double)played.budget_ns /
						       (played.leg_pages * page_bytes)};
}

static uint64_t played_clock(void)
{
	return played.now_ns += TICK_NS;
}

static int completed_slowly(struct backend *b, uint64_t *ret_id)
{
	int r = played.completed(b, ret_id);

	played.now_ns += *ret_id > played.done_id ? played.slow_ns : 0;
	played.done_id = *ret_id;
	return r;
}

static void start_slow(struct fixture *f, uint32_t budget_ms, double leg_pages)
{
	static struct backend_ops ops;

	memset(&played, 0, sizeof(played));
	played.now_ns = clock_now_ns();
	played.budget_ns = budget_ms * MS_NS;
	played.leg_pages = leg_pages;
	ops = *f->h.ops;
	played.completed = ops.completed;
	ops.completed = completed_slowly;
	ops.cost = cost_by_pages;
	f->h.ops = &ops;
	f->h.config.batch_budget_ms = budget_ms;
	f->h.stepped = true;
	start_small(f);
	f->h.sched->core.clock = played_clock;
}

/* Of the long document's last token. */
struct taken {
	uint64_t n_legs;
	double ns; /* that its session has had */
};

static struct taken taken_by_a_token(struct fixture *f)
{
	uint64_t n = harness_status(&f->h).n_streamed;
	double ns = f->c.session->backend_ns;

	decode_together(f, 1);
	return (struct taken){harness_status(&f->h).n_streamed - n, f->c.session->backend_ns - ns};
}

static void compute_long(struct fixture *f)
{
	struct store_match match;
	uint64_t seq = open_long(&f->c, 1, &match);

	go_on(&f->c, seq, 0, LONG_TOKENS - 1, DOC_CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
}

static void slow_legs_are_shorter_and_count_as_they_are(void **state)
{
	struct fixture *f = *state;
	struct taken before, after;

	start_slow(f, 1000, 8.5);
	compute_long(f);
	before = taken_by_a_token(f);
	played.slow_ns = 4 * played.budget_ns;
	(void)taken_by_a_token(f);
	after = taken_by_a_token(f);
	assert_true(after.n_legs >= 2 * before.n_legs);
	assert_true(after.ns >= 2 * before.ns);
	documents_stop(f);
}

/* Of the least budgets too, where legs that are slow are modelled to take no millisecond. */
static void what_was_slow_for_a_while_is_so_no_longer(void **state)
{
	struct fixture *f = *state;
	struct taken before, slow;

	start_slow(f, 4, 8.5);
	compute_long(f);
	before = taken_by_a_token(f);
	played.slow_ns = 8 * played.budget_ns;
	(void)taken_by_a_token(f);
	slow = taken_by_a_token(f);
	assert_true(slow.n_legs >= 4 * before.n_legs);
	played.slow_ns = 0;
	(void)taken_by_a_token(f);
	assert_int_equal(taken_by_a_token(f).n_legs, before.n_legs);
	documents_stop(f);
}

static void others_are_served_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	struct client other;
	uint64_t seq;

	start_small(f);
	client_start(&other, &f->h, 1, &document_shape, DOC_ARENA_BYTES);
	seq = open_long(&f->c, 1, &match);
	for (uint32_t i = 0; i < LONG_CHUNKS; i++) {
		go_on(&f->c, seq, i * DOC_CHUNK, (i + 1) * DOC_CHUNK, DOC_CHUNK);
		document_use(&other, i % DOCS, 1 + i % 3);
	}
	assert_int_equal(client_close(&f->c, seq), 0);
	client_end(&other);
	documents_stop(f);
}

/* A layer of a chunk behind the long document's others; once its first leg is at work another
 * session of the same user computes something. */
static void compute_beside(struct fixture *f, uint64_t seq, uint32_t layer, struct client *other)
{
	const struct abi_entry step = {.kind = ABI_STEP, .count = 1, .layer = layer};
	struct abi_step_seq rec = client_step_seq(&f->c, seq, DOC_CHUNK);
	const struct streamed *streamed = &f->h.sched->streamed;
	uint64_t ticket;

	document_fill(&f->c, LONG_DOC, LONG_TOKENS - DOC_CHUNK, DOC_CHUNK, layer);
	ticket = client_submit(&f->c, step, &rec, sizeof(rec));
	while (streamed->n_begun == 0)
		sched_round(f->h.sched);
	assert_int_equal(streamed->legs[1].kind, STREAMED_DEVICE);
	document_use(other, layer, 1);
	assert_int_equal(client_wait(&f->c, ticket).status, 0);
}

static void pages_of_legs_may_go_to_others(void **state)
{
	struct fixture *f = *state;
	uint32_t ids[DOC_CHUNK], pos = LONG_TOKENS - DOC_CHUNK;
	float o[DOC_LAYERS][DOC_ROW];
	struct store_match match;
	struct client other;
	uint64_t seq;

	start_slow(f, 1000, 2.5);
	client_start(&other, &f->h, 1, &document_shape, DOC_ARENA_BYTES);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, pos, DOC_CHUNK);
	for (uint32_t i = 0; i < DOC_CHUNK; i++)
		ids[i] = document_token(LONG_DOC, pos + i);
	assert_int_equal(client_extend(&f->c, seq, ids, DOC_CHUNK).status, 0);
	for (uint32_t layer = 0; layer < DOC_LAYERS; layer++) {
		struct abi_step_seq rec = client_step_seq(&f->c, seq, DOC_CHUNK);

		compute_beside(f, seq, layer, &other);
		document_output(&f->c, rec.o + (DOC_CHUNK - 1) * DOC_ROW_BYTES, o[layer]);
	}
	assert_close(o, document_expected_long[LONG_CHUNKS - 1]);
	assert_int_equal(client_close(&f->c, seq), 0);
	client_end(&other);
	documents_stop(f);
}

static void a_session_may_end_in_the_middle_of_legs(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	for (uint32_t i = 0; i < 5; i++) {
		struct client other;

		client_start(&other, &f->h, 1, &document_shape, DOC_ARENA_BYTES);
		seq = open_long(&other, 1, &match);
		go_on(&other, seq, 0, 16 * DOC_CHUNK, DOC_CHUNK);
		struct abi_step_seq rec = client_step_seq(&other, seq, DOC_CHUNK);
		uint32_t ids[DOC_CHUNK] = {0};
		assert_int_equal(client_extend(&other, seq, ids, DOC_CHUNK).status, 0);
		client_submit(&other, (struct abi_entry){.kind = ABI_STEP, .count = 1}, &rec,
			      sizeof(rec));
		client_end(&other);
		document_use(&f->c, i, 4);
	}
	documents_stop(f);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, documents_setup, documents_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_document_longer_than_the_pool_is_computed_and_found),
		CASE(a_pin_keeps_all_of_it),
		CASE(tokens_are_decoded_behind_it_one_by_one),
		CASE(what_is_only_appended_needs_no_legs),
		CASE(who_comes_waits_for_no_more_than_a_batch_of_it),
		CASE(a_restart_finds_it_in_the_file),
		CASE(a_stage_of_a_few_pages_does),
		CASE(what_sequences_share_is_staged_once),
		CASE(slow_legs_are_shorter_and_count_as_they_are),
		CASE(what_was_slow_for_a_while_is_so_no_longer),
		CASE(others_are_served_meanwhile),
		CASE(pages_of_legs_may_go_to_others),
		CASE(a_session_may_end_in_the_middle_of_legs),
	};

	int r = documents_init(argc, argv);

	return r ? r
		 : cmocka_run_group_tests_name("paths longer than the pool", tests,
					       documents_expect, NULL);
}
