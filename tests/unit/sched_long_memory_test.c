/*
 * sched_long_memory_test.c - memory that runs out while a path longer than the pool is streamed:
 * the step says so, and the next one, of another sequence, succeeds when there is memory again.
 *
 * Arrays never shrink: of those of a step each fails to grow once, in the order in which they come.
 * The client, which is this thread, has memory.
 */
#include "documents.h"
#include "short_memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define FAILURES_MAX 100 /* far more than there are arrays */
#define VIEW_ARRAYS 6 /* of a leg's view alone */

static uint64_t open_document(struct client *c, uint32_t *ret_pos)
{
	static uint32_t tokens[LONG_TOKENS];
	struct store_match match;
	uint64_t seq;

	for (uint32_t i = 0; i < LONG_TOKENS; i++)
		tokens[i] = document_token(LONG_DOC, i);
	assert_int_equal(client_open(c, tokens, LONG_TOKENS, &seq, &match), 0);
	*ret_pos = client_await(c, seq, match).cached;
	return seq;
}

static void extend(struct client *c, uint64_t seq, uint32_t pos)
{
	uint32_t ids[DOC_CHUNK];

	for (uint32_t i = 0; i < DOC_CHUNK; i++)
		ids[i] = document_token(LONG_DOC, pos + i);
	assert_int_equal(client_extend(c, seq, ids, DOC_CHUNK).status, 0);
}

/* All but the last chunk is stored, and nothing attended to: no leg has been. */
static void append_all_but_one(struct client *c)
{
	struct abi_entry step = {.kind = ABI_STEP, .count = 1, .flags = ABI_STEP_APPEND_ONLY};
	struct abi_step_seq rec;
	uint32_t pos;
	uint64_t seq = open_document(c, &pos);

	rec = client_step_seq(c, seq, DOC_CHUNK);
	for (; pos < LONG_TOKENS - DOC_CHUNK; pos += DOC_CHUNK) {
		extend(c, seq, pos);
		for (step.layer = 0; step.layer < DOC_LAYERS; step.layer++) {
			document_fill(c, LONG_DOC, pos, DOC_CHUNK, step.layer);
			assert_int_equal(client_do(c, step, &rec, sizeof(rec)).status, 0);
		}
	}
	assert_int_equal(client_close(c, seq), 0);
}

/* The last chunk, with the n-th array that is to grow not growing, but for the last layer's, behind
 * which the store's grow. Returns whether it was computed. */
static bool compute_last(struct client *c, unsigned n)
{
	uint32_t pos;
	uint64_t seq = open_document(c, &pos);
	struct abi_step_seq rec = client_step_seq(c, seq, DOC_CHUNK);
	float o[DOC_LAYERS][DOC_ROW];
	int status = 0;

	assert_int_equal(pos, LONG_TOKENS - DOC_CHUNK);
	extend(c, seq, pos);
	for (uint32_t layer = 0; layer < DOC_LAYERS && status == 0; layer++) {
		short_memory_fails_in(layer == 0 ? n : 0);
		document_fill(c, LONG_DOC, pos, DOC_CHUNK, layer);
		status = client_step(c, &rec, layer).status;
		document_output(c, rec.o + (DOC_CHUNK - 1) * DOC_ROW_BYTES, o[layer]);
	}
	assert_true(status == 0 || status == -ENOMEM);
	short_memory_fails_in(0);
	if (status == 0)
		assert_close(o, document_expected_long[LONG_CHUNKS - 1]);
	assert_int_equal(client_close(c, seq), 0);
	return status == 0;
}

static void a_step_that_finds_no_memory_says_so(void **state)
{
	struct fixture *f = *state;
	unsigned n_failed = 0;

	short_memory_spare();
	f->h.config.stage_bytes = 2u << 20;
	documents_start(f);
	append_all_but_one(&f->c);
	/* What could not grow can the next time, and the one behind it cannot. */
	while (!compute_last(&f->c, n_failed ? 2 : 1))
		assert_in_range(++n_failed, 1, FAILURES_MAX);
	print_message("%u steps failed\n", n_failed);
	assert_true(n_failed > VIEW_ARRAYS);
	assert_true(harness_status(&f->h).n_streamed > 0);
	documents_stop(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_step_that_finds_no_memory_says_so,
						documents_setup, documents_teardown),
	};

	return cmocka_run_group_tests(tests, documents_expect, NULL);
}
