/*
 * prefill_plans_test.c - of a prompt's chunk each slice is planned once for all layers, however
 * many slices a layer has, and not when its tokens are others.
 */
#include "documents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SEEN_MAX 64u

static struct {
	struct backend_ops ops;
	int (*submit)(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id);
	uint64_t ids[SEEN_MAX]; /* of plans, batch by batch */
	uint32_t n;
} seen;

static int note(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	assert_true(seen.n < SEEN_MAX && batch->n_jobs == 1);
	seen.ids[seen.n++] = batch->jobs[0].plan_id;
	return seen.submit(b, batch, ret_id);
}

static void start(struct fixture *f, uint32_t prefill_rows)
{
	f->h.config.pool_bytes = 16u << 20;
	f->h.config.prefill_rows = prefill_rows;
	seen.ops = *f->h.ops;
	seen.submit = seen.ops.submit;
	seen.ops.submit = note;
	f->h.ops = &seen.ops;
	documents_start(f);
}

static uint64_t open_document(struct fixture *f)
{
	uint32_t id = document_token(0, 0);
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(&f->c, &id, 1, &seq, &match), 0);
	return seq;
}

/* The chunk's batches from here on: so many in each layer, the same in all. */
static void compute_in(struct fixture *f, uint64_t seq, uint32_t chunk, uint32_t n_slices)
{
	float o[DOC_LAYERS][DOC_ROW];

	seen.n = 0;
	document_compute(&f->c, seq, 0, chunk * DOC_CHUNK, DOC_CHUNK, o);
	assert_right(&f->c, o, document_expected[0][chunk]);
	assert_int_equal(seen.n, n_slices * DOC_LAYERS);
	for (uint32_t i = 0; i < seen.n; i++) {
		assert_true(seen.ids[i] > 0);
		assert_true(seen.ids[i] == seen.ids[i % n_slices]);
		assert_true(i == 0 || n_slices == 1 || seen.ids[i] != seen.ids[i - 1]);
	}
}

static void slices_of_a_layer_are_those_of_the_next(void **state)
{
	struct fixture *f = *state;
	uint64_t seq;

	for (uint32_t n_slices = 1; n_slices <= 4; n_slices *= 2) {
		start(f, DOC_CHUNK / n_slices);
		seq = open_document(f);
		for (uint32_t chunk = 0; chunk < DOC_CHUNKS; chunk++)
			compute_in(f, seq, chunk, n_slices);
		assert_int_equal(client_close(&f->c, seq), 0);
		documents_stop(f);
		f->h.ops = &backend_cpu;
	}
}

/* The tokens are as many, at the same place, in other rows of the pool. */
static void tokens_that_come_in_the_place_of_others_are_planned_anew(void **state)
{
	struct abi_entry trim = {.kind = ABI_TRIM, .arg = DOC_CHUNK};
	struct fixture *f = *state;
	uint64_t seq, first;

	start(f, DOC_CHUNK);
	seq = open_document(f);
	compute_in(f, seq, 0, 1);
	compute_in(f, seq, 1, 1);
	first = seen.ids[0];
	trim.seq = seq;
	assert_int_equal(client_do(&f->c, trim, NULL, 0).status, 0);
	compute_in(f, seq, 1, 1);
	assert_true(seen.ids[0] != first);
	assert_int_equal(client_close(&f->c, seq), 0);
	documents_stop(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(slices_of_a_layer_are_those_of_the_next,
						documents_setup, documents_teardown),
		cmocka_unit_test_setup_teardown(
			tokens_that_come_in_the_place_of_others_are_planned_anew, documents_setup,
			documents_teardown),
	};

	if (documents_init(1, NULL))
		return 1;
	return cmocka_run_group_tests(tests, documents_expect, NULL);
}
