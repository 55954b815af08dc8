/*
 * chosen_windows_test.c - streamed legs of many rows, whose windows a backend chooses by itself: it
 * is told of every window that is there, however many of them a page has. The backend is the CPU's,
 * and takes none of it.
 */
#include "sched_harness.h"

#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define WINDOW_TOKENS 32u
#define CHUNK 1024u /* by 32 heads: as many rows as go to such a backend */
#define CHUNKS 4u /* twice what the pool has room for */

static uint32_t n_asked, n_kept, n_there; /* jobs; windows */

static bool count_windows(struct backend *b, const struct backend_job *job)
{
	const struct backend_chosen *chosen = job->chosen;

	(void)b;
	if (chosen->block_tokens != WINDOW_TOKENS)
		return false; /* a batch's */
	n_asked++;
	for (uint32_t i = 0, pos = 0; i < chosen->n_slices; pos += chosen->slices[i++].count)
		if (chosen->slices[i].page != WORK_NONE)
			n_there += ceil_div(pos + chosen->slices[i].count, WINDOW_TOKENS) -
				   pos / WINDOW_TOKENS;
	for (uint32_t i = 0; i < chosen->n_blocks; i++)
		n_kept += chosen->kept[i / 64] >> i % 64 & 1;
	return false;
}

static void cost_little(struct backend *b, const struct work_shape *shape, struct backend_cost *ret)
{
	(void)b;
	(void)shape;
	*ret = (struct backend_cost){.fixed_ns = 1,
				     .kv_ns_per_byte = 1e-6,
				     .row_ns_per_byte = 1e-9};
}

static void harness_of_windows(struct harness *h)
{
	static struct backend_ops ops;

	ops = backend_cpu;
	ops.takes_chosen = count_windows;
	ops.cost = cost_little;
	harness_init(h);
	h->ops = &ops;
	h->config.pool_bytes = 6u << 20;
	h->config.stage_bytes = 2u << 20;
	h->config.host_tier_bytes = 64u << 20;
	h->config.tier_depth = 8;
	harness_start(h);
	n_asked = n_kept = n_there = 0;
}

static void expect_all_windows(uint32_t page_tokens)
{
	const struct work_shape shape = {1, 32, 4, 64, page_tokens, WORK_FP32, 0.1f, 0, 0};
	struct store_match match;
	uint32_t ids[CHUNK], first = 1;
	struct harness h;
	struct client c;
	uint64_t seq;

	harness_of_windows(&h);
	client_start(&c, &h, 1, &shape, 32u << 20);
	memset(c.arena, 0, c.arena_bytes);
	assert_int_equal(client_open(&c, &first, 1, &seq, &match), 0);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		for (uint32_t t = 0; t < CHUNK; t++)
			ids[t] = 1 + i * CHUNK + t;
		client_compute(&c, seq, ids, CHUNK);
	}
	assert_true(n_asked > 0);
	assert_int_equal(n_kept, n_there);
	client_end(&c);
	harness_stop(&h);
}

static void of_pages_of_one_window(void **state)
{
	(void)state;
	expect_all_windows(32);
}

static void of_pages_of_two(void **state)
{
	(void)state;
	expect_all_windows(64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_pages_of_one_window),
		cmocka_unit_test(of_pages_of_two),
	};

	return cmocka_run_group_tests_name("windows of streamed legs", tests, NULL, NULL);
}
