/*
 * sched_tiers_test.c - KV that leaves the pool and comes back: a real scheduler, the CPU backend, host memory and a file.
 *
 * What attention gives for the last token of a prompt is compared, bit by bit, with what it gave in a scheduler whose pool
 * holds everything: wrong KV anywhere before that token would show.
 */
#include "sched_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define N_LAYERS 2u
#define N_HEADS 4u
#define HEAD_DIM 64u
#define ROW (N_HEADS * HEAD_DIM) /* values */
#define CHUNK 64u /* tokens of an extension */
#define N_CHUNKS 8u
#define DOC_TOKENS (CHUNK * N_CHUNKS) /* 16 pages of 128 KiB: one extent of 2 MiB */
#define N_DOCS 6u
#define LONG_DOC 9u
#define LONG_CHUNKS 24u /* 48 pages, where the pool has room for 16 beside the stage */
#define LONG_TOKENS (CHUNK * LONG_CHUNKS)
#define ARENA_BYTES (UINT64_C(1) << 20)
#define WAIT_NS UINT64_C(20000000000)

static const struct work_shape SHAPE = {.n_layers = N_LAYERS,
					.n_q_heads = N_HEADS,
					.n_kv_heads = N_HEADS,
					.head_dim = HEAD_DIM,
					.page_tokens = 32,
					.dtype = WORK_FP32};

/* O of the last token of each prompt of whole chunks, by layer. */
static float expected[N_DOCS][N_CHUNKS][N_LAYERS][ROW];
static float expected_long[LONG_CHUNKS][N_LAYERS][ROW];

struct fixture {
	struct harness h;
	struct client c;
	char file[64]; /* empty: none */
};

static uint32_t token_of(uint32_t doc, uint32_t pos)
{
	return doc * 100000 + pos;
}

/* Q, K and V are functions of document, position and layer. */
static float value_of(uint32_t token, uint32_t layer, uint32_t tensor, uint32_t i)
{
	uint64_t x = ((uint64_t)token << 20 ^ (uint64_t)layer << 14 ^ tensor << 10 ^ i) + 1;

	x *= UINT64_C(0x9e3779b97f4a7c15);
	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return (float)(int32_t)(x >> 32) / (float)(UINT32_C(1) << 30);
}

static void fill(struct client *c, uint32_t doc, uint32_t pos, uint32_t n, uint32_t layer)
{
	float *at = (float *)(void *)c->arena;

	for (uint32_t tensor = 0; tensor < 3; tensor++)
		for (uint32_t t = 0; t < n; t++)
			for (uint32_t i = 0; i < ROW; i++)
				*at++ = value_of(token_of(doc, pos + t), layer, tensor, i);
}

/* Tokens [pos, pos + n) of a document, all layers; O of the last goes to ret [N_LAYERS][ROW]. */
static void compute(struct client *c, uint64_t seq, uint32_t doc, uint32_t pos, uint32_t n,
		    float ret[N_LAYERS][ROW])
{
	struct abi_step_seq rec = client_step_seq(c, seq, n);
	uint32_t ids[CHUNK];

	assert_true(n <= CHUNK);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = token_of(doc, pos + i);
	assert_int_equal(client_extend(c, seq, ids, n).status, 0);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		fill(c, doc, pos, n, layer);
		assert_int_equal(client_step(c, &rec, layer).status, 0);
		memcpy(ret[layer], c->arena + rec.o + (n - 1) * ROW * sizeof(float),
		       ROW * sizeof(float));
	}
}

static struct store_match await_match(struct client *c, uint64_t seq, struct store_match match)
{
	struct sched_request rq = {.verb = SCHED_SEQ_WAIT,
				   .session = c->session,
				   .in.seq = {seq, WAIT_NS}};

	if (!match.pending)
		return match;
	assert_int_equal(harness_call(c->h, &rq), 0);
	return rq.out.seq.match;
}

/* Passes merge states where one go adds up keys one after the other: the same but for rounding. */
static void assert_close(float (*got)[ROW], float (*want)[ROW])
{
	double sum = 0, norm = 0;

	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (uint32_t i = 0; i < ROW; i++) {
			double x = (double)got[layer][i], y = (double)want[layer][i];
			sum += (x - y) * (x - y);
			norm += y * y;
		}
	if (!(sum <= norm * 1e-12))
		fail_msg("off by %g of %g", sum, norm);
}

/* Opens the first n_chunks of a document, waits for what lies lower, computes the rest; every O that is known is right.
 * Returns how many tokens were there. */
static uint32_t use(struct client *c, uint32_t doc, uint32_t n_chunks)
{
	uint32_t tokens[DOC_TOKENS], n = n_chunks * CHUNK;
	float o[N_LAYERS][ROW];
	struct store_match match;
	uint64_t seq;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = token_of(doc, i);
	assert_int_equal(client_open(c, tokens, n, &seq, &match), 0);
	match = await_match(c, seq, match);
	for (uint32_t pos = match.cached; pos < n;) {
		uint32_t count = CHUNK - pos % CHUNK;
		compute(c, seq, doc, pos, count, o);
		pos += count;
		if (c->h->config.stage_bytes)
			assert_close(o, expected[doc][pos / CHUNK - 1]);
		else
			assert_memory_equal(o, expected[doc][pos / CHUNK - 1], sizeof(o));
	}
	assert_int_equal(client_close(c, seq), 0);
	return match.cached;
}

/* ---- what is expected ------------------------------------------------------------------------------------- */

static void compute_document(struct client *c, uint32_t doc, uint32_t n_chunks,
			     float (*ret)[N_LAYERS][ROW])
{
	struct store_match match;
	uint64_t seq;
	uint32_t first = token_of(doc, 0);

	assert_int_equal(client_open(c, &first, 1, &seq, &match), 0);
	for (uint32_t i = 0; i < n_chunks; i++)
		compute(c, seq, doc, i * CHUNK, CHUNK, ret[i]);
	assert_int_equal(client_close(c, seq), 0);
}

static int compute_expected(void **state)
{
	struct harness h;
	struct client c;

	(void)state;
	harness_init(&h);
	harness_start(&h);
	client_start(&c, &h, 1, &SHAPE, ARENA_BYTES);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		compute_document(&c, doc, N_CHUNKS, expected[doc]);
	compute_document(&c, LONG_DOC, LONG_CHUNKS, expected_long);
	client_end(&c);
	harness_stop(&h);
	return 0;
}

/* ---- with tiers ------------------------------------------------------------------------------------------- */

static void start(struct fixture *f)
{
	harness_start(&f->h);
	client_start(&f->c, &f->h, 1, &SHAPE, ARENA_BYTES);
}

static void stop(struct fixture *f)
{
	client_end(&f->c);
	harness_stop(&f->h);
}

/* A pool for two documents. */
static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	harness_init(&f->h);
	f->h.config.pool_bytes = 4u << 20;
	f->h.config.host_tier_bytes = 64u << 20;
	f->h.config.tier_depth = 8;
	strcpy(f->file, "/tmp/coppice-tier-XXXXXX");
	close(mkstemp(f->file));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unlink(f->file);
	free(f);
	return 0;
}

static void with_file(struct fixture *f, uint64_t bytes)
{
	strcpy(f->h.config.file_tier, f->file);
	f->h.config.file_tier_bytes = bytes;
}

static void what_left_the_pool_comes_back_from_host_memory(void **state)
{
	struct fixture *f = *state;

	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		assert_int_equal(use(&f->c, doc, N_CHUNKS), 0);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		assert_int_equal(use(&f->c, doc, N_CHUNKS), DOC_TOKENS - 1);
	struct sched_status status = harness_status(&f->h);
	assert_true(status.has_tiers);
	assert_true(status.tiers.tiers[STORE_HOST].hits > 0);
	assert_true(status.tiers.tiers[STORE_HOST].waited_ns > 0);
	assert_int_equal(status.tiers.slices_dropped, 0);
	assert_int_equal(status.tiers.tiers[STORE_FILE].capacity_bytes, 0);
	stop(f);
}

static void a_daemon_that_is_started_anew_finds_its_documents(void **state)
{
	struct fixture *f = *state;

	with_file(f, 64u << 20);
	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		use(&f->c, doc, N_CHUNKS);
	stop(f);
	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		assert_int_equal(use(&f->c, doc, N_CHUNKS), DOC_TOKENS - 1);
	assert_true(harness_status(&f->h).tiers.tiers[STORE_FILE].hits > 0);
	stop(f);
}

static void flip(const char *path, long at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 16;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void what_was_altered_in_the_file_is_computed_anew(void **state)
{
	struct fixture *f = *state;
	uint32_t n_cached = 0;

	with_file(f, 64u << 20);
	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		use(&f->c, doc, N_CHUNKS);
	stop(f);
	for (long at = 4l << 20; at < 64l << 20; at += 600000)
		flip(f->file, at);
	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		n_cached += use(&f->c, doc, N_CHUNKS);
	assert_true(n_cached < N_DOCS * (DOC_TOKENS - 1));
	stop(f);
}

static uint32_t seed(void)
{
	const char *text = getenv("COPPICE_SEED");
	uint32_t value = text ? (uint32_t)strtoul(text, NULL, 0) : (uint32_t)time(NULL);

	print_message("seed %u\n", value);
	return value;
}

/* Everything moves all the time, some of it is dropped, and nothing wrong is served. */
static void documents_at_random_through_tiny_tiers_are_right(void **state)
{
	struct fixture *f = *state;
	uint32_t random = seed();

	f->h.config.host_tier_bytes = 4u << 20;
	with_file(f, 24u << 20);
	start(f);
	for (uint32_t i = 0; i < 60; i++) {
		random = random * 1664525 + 1013904223;
		use(&f->c, (random >> 8) % N_DOCS, 1 + (random >> 16) % N_CHUNKS);
		if (i % 20 < 19)
			continue;
		assert_true(harness_status(&f->h).tiers.tiers[STORE_HOST].bytes_in > 0);
		stop(f);
		start(f);
	}
	stop(f);
}

/* Two who want the same, and one who does not wait but computes. */
static void who_does_not_wait_computes(void **state)
{
	struct fixture *f = *state;
	uint32_t tokens[DOC_TOKENS];
	float o[N_LAYERS][ROW];
	struct store_match match;
	uint64_t seq, other;

	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		use(&f->c, doc, N_CHUNKS);
	for (uint32_t i = 0; i < DOC_TOKENS; i++)
		tokens[i] = token_of(0, i);
	assert_int_equal(client_open(&f->c, tokens, DOC_TOKENS, &seq, &match), 0);
	assert_int_equal(client_open(&f->c, tokens, DOC_TOKENS, &other, &match), 0);
	assert_true(match.pending > 0 && match.fetching);
	for (uint32_t pos = 0; pos < DOC_TOKENS; pos += CHUNK) {
		compute(&f->c, seq, 0, pos, CHUNK, o);
		assert_memory_equal(o, expected[0][pos / CHUNK], sizeof(o));
	}
	assert_int_equal(await_match(&f->c, other, match).cached, DOC_TOKENS - 1);
	client_close(&f->c, seq);
	client_close(&f->c, other);
	stop(f);
}

static void a_bad_file_leaves_host_memory(void **state)
{
	struct fixture *f = *state;
	int fd = open(f->file, O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, "this is no tier file", 20), 20);
	close(fd);
	with_file(f, 64u << 20);
	start(f);
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		use(&f->c, doc, N_CHUNKS);
	assert_int_equal(use(&f->c, 0, N_CHUNKS), DOC_TOKENS - 1);
	assert_int_equal(harness_status(&f->h).tiers.tiers[STORE_FILE].capacity_bytes, 0);
	stop(f);
}

static void memory_that_cannot_be_had_leaves_the_pool(void **state)
{
	struct fixture *f = *state;

	f->h.config.host_tier_bytes = UINT64_C(1) << 45;
	start(f);
	use(&f->c, 0, N_CHUNKS);
	assert_int_equal(use(&f->c, 0, N_CHUNKS), DOC_TOKENS - 1);
	assert_false(harness_status(&f->h).has_tiers);
	stop(f);
}

/* ---- paths longer than the pool ---------------------------------------------------------------------------- */

static void start_small(struct fixture *f)
{
	f->h.config.stage_bytes = 2u << 20;
	start(f);
}

static uint64_t open_long(struct client *c, uint32_t n, struct store_match *ret)
{
	static uint32_t tokens[LONG_TOKENS];
	uint64_t seq;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = token_of(LONG_DOC, i);
	assert_int_equal(client_open(c, tokens, n, &seq, ret), 0);
	*ret = await_match(c, seq, *ret);
	return seq;
}

/* Tokens [pos, end) of the long document, at most step at a time; known outputs are right. */
static void go_on(struct client *c, uint64_t seq, uint32_t pos, uint32_t end, uint32_t step)
{
	float o[N_LAYERS][ROW];

	while (pos < end) {
		uint32_t n = CHUNK - pos % CHUNK;

		n = n < step ? n : step;
		compute(c, seq, LONG_DOC, pos, n, o);
		pos += n;
		if (pos % CHUNK == 0)
			assert_close(o, expected_long[pos / CHUNK - 1]);
	}
}

static void a_document_longer_than_the_pool_is_computed_and_found(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS, CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	seq = open_long(&f->c, LONG_TOKENS, &match);
	assert_int_equal(match.cached, LONG_TOKENS - 1);
	go_on(&f->c, seq, LONG_TOKENS - 1, LONG_TOKENS, 1);
	assert_int_equal(client_close(&f->c, seq), 0);
	assert_true(harness_status(&f->h).n_passes > 0);
	assert_true(harness_status(&f->h).staged_bytes > 0);
	stop(f);
}

static void tokens_are_decoded_behind_it_one_by_one(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS - 2 * CHUNK, CHUNK);
	go_on(&f->c, seq, LONG_TOKENS - 2 * CHUNK, LONG_TOKENS, 1);
	assert_int_equal(client_close(&f->c, seq), 0);
	stop(f);
}

/* Tokens that are only stored, half of them behind what the pool has room for, and then attended to. */
static void what_is_only_appended_needs_no_passes(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint32_t ids[CHUNK];
	uint64_t seq;

	start_small(f);
	seq = open_long(&f->c, 1, &match);
	for (uint32_t pos = 0; pos < LONG_TOKENS - CHUNK; pos += CHUNK) {
		struct abi_step_seq rec = client_step_seq(&f->c, seq, CHUNK);
		for (uint32_t i = 0; i < CHUNK; i++)
			ids[i] = token_of(LONG_DOC, pos + i);
		assert_int_equal(client_extend(&f->c, seq, ids, CHUNK).status, 0);
		for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
			struct abi_entry e = {.kind = ABI_STEP,
					      .count = 1,
					      .layer = layer,
					      .flags = ABI_STEP_APPEND_ONLY};
			fill(&f->c, LONG_DOC, pos, CHUNK, layer);
			assert_int_equal(client_do(&f->c, e, &rec, sizeof(rec)).status, 0);
		}
	}
	go_on(&f->c, seq, LONG_TOKENS - CHUNK, LONG_TOKENS, CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	stop(f);
}

static void a_restart_finds_it_in_the_file(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	with_file(f, 64u << 20);
	start_small(f);
	seq = open_long(&f->c, 1, &match);
	go_on(&f->c, seq, 0, LONG_TOKENS, CHUNK);
	stop(f);
	start(f);
	seq = open_long(&f->c, LONG_TOKENS, &match);
	assert_int_equal(match.cached, LONG_TOKENS - 1);
	go_on(&f->c, seq, LONG_TOKENS - 1, LONG_TOKENS, 1);
	assert_int_equal(client_close(&f->c, seq), 0);
	stop(f);
}

/* Two pages of a layer are all that the stage has room for. */
static void a_stage_of_a_few_pages_does(void **state)
{
	const struct work_shape wide = {.n_layers = 1,
					.n_q_heads = 16,
					.n_kv_heads = 16,
					.head_dim = 128,
					.page_tokens = 64,
					.dtype = WORK_FP32};
	struct fixture *f = *state;
	struct store_match match;
	uint32_t ids[CHUNK];
	struct client c;
	uint64_t seq;

	start_small(f);
	client_start(&c, &f->h, 1, &wide, UINT64_C(4) << 20);
	seq = open_long(&c, 1, &match);
	for (uint32_t i = 0; i < 8; i++) {
		for (uint32_t at = 0; at < CHUNK; at++)
			ids[at] = token_of(LONG_DOC, i * CHUNK + at);
		client_compute(&c, seq, ids, CHUNK);
	}
	assert_true(harness_status(&f->h).staged_bytes > 0);
	assert_int_equal(client_close(&c, seq), 0);
	client_end(&c);
	stop(f);
}

/* The long document's last token by n sequences in one step; returns how many bytes were staged. */
static uint64_t decode_together(struct fixture *f, uint32_t n)
{
	const uint32_t row_bytes = ROW * sizeof(float), id = token_of(LONG_DOC, LONG_TOKENS - 1);
	struct abi_step_seq recs[8];
	float o[8][N_LAYERS][ROW];
	uint64_t staged = harness_status(&f->h).staged_bytes;

	for (uint32_t i = 0; i < n; i++) {
		struct store_match match;
		uint64_t seq = open_long(&f->c, LONG_TOKENS, &match);
		uint64_t at = (uint64_t)i * 4 * row_bytes;

		assert_int_equal(match.cached, LONG_TOKENS - 1);
		assert_int_equal(client_extend(&f->c, seq, &id, 1).status, 0);
		recs[i] = client_step_seq(&f->c, seq, 1);
		recs[i].q = at;
		recs[i].k = at + row_bytes;
		recs[i].v = at + 2 * row_bytes;
		recs[i].o = at + 3 * row_bytes;
	}
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		struct abi_entry e = {.kind = ABI_STEP, .count = n, .layer = layer};

		fill(&f->c, LONG_DOC, LONG_TOKENS - 1, 1, layer);
		for (uint32_t i = 1; i < n; i++)
			memcpy(f->c.arena + recs[i].q, f->c.arena, 3 * row_bytes);
		assert_int_equal(client_do(&f->c, e, recs, n * sizeof(*recs)).status, 0);
		for (uint32_t i = 0; i < n; i++)
			memcpy(o[i][layer], f->c.arena + recs[i].o, row_bytes);
	}
	for (uint32_t i = 0; i < n; i++) {
		assert_close(o[i], expected_long[LONG_CHUNKS - 1]);
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
	go_on(&f->c, seq, 0, LONG_TOKENS - CHUNK, CHUNK);
	go_on(&f->c, seq, LONG_TOKENS - CHUNK, LONG_TOKENS - 1, CHUNK);
	assert_int_equal(client_close(&f->c, seq), 0);
	uint64_t one = decode_together(f, 1), eight = decode_together(f, 8);
	assert_true(one > 0 && eight < 2 * one);
	stop(f);
}

static void others_are_served_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	struct client other;
	uint64_t seq;

	start_small(f);
	client_start(&other, &f->h, 1, &SHAPE, ARENA_BYTES);
	seq = open_long(&f->c, 1, &match);
	for (uint32_t i = 0; i < LONG_CHUNKS; i++) {
		go_on(&f->c, seq, i * CHUNK, (i + 1) * CHUNK, CHUNK);
		use(&other, i % N_DOCS, 1 + i % 3);
	}
	assert_int_equal(client_close(&f->c, seq), 0);
	client_end(&other);
	stop(f);
}

static void a_session_may_end_in_the_middle_of_passes(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t seq;

	start_small(f);
	for (uint32_t i = 0; i < 5; i++) {
		struct client other;

		client_start(&other, &f->h, 1, &SHAPE, ARENA_BYTES);
		seq = open_long(&other, 1, &match);
		go_on(&other, seq, 0, 16 * CHUNK, CHUNK);
		struct abi_step_seq rec = client_step_seq(&other, seq, CHUNK);
		uint32_t ids[CHUNK] = {0};
		assert_int_equal(client_extend(&other, seq, ids, CHUNK).status, 0);
		client_submit(&other, (struct abi_entry){.kind = ABI_STEP, .count = 1}, &rec,
			      sizeof(rec));
		client_end(&other);
		use(&f->c, i, 4);
	}
	stop(f);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_left_the_pool_comes_back_from_host_memory),
		CASE(a_daemon_that_is_started_anew_finds_its_documents),
		CASE(what_was_altered_in_the_file_is_computed_anew),
		CASE(documents_at_random_through_tiny_tiers_are_right),
		CASE(who_does_not_wait_computes),
		CASE(a_bad_file_leaves_host_memory),
		CASE(memory_that_cannot_be_had_leaves_the_pool),
		CASE(a_document_longer_than_the_pool_is_computed_and_found),
		CASE(tokens_are_decoded_behind_it_one_by_one),
		CASE(what_is_only_appended_needs_no_passes),
		CASE(a_restart_finds_it_in_the_file),
		CASE(a_stage_of_a_few_pages_does),
		CASE(what_sequences_share_is_staged_once),
		CASE(others_are_served_meanwhile),
		CASE(a_session_may_end_in_the_middle_of_passes),
	};

	return cmocka_run_group_tests_name("tiers of the scheduler", tests, compute_expected, NULL);
}
