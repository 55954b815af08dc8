/*
 * program_results.c - see program_results.h. The likeliest are those of a sort over all logits, bit
 * for bit; sums are taken in double.
 */
#include "program_results.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int by_logit(const void *a, const void *b)
{
	const struct program_top *x = a, *y = b;

	if (x->logit != y->logit)
		return x->logit < y->logit ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

static void check_top(const struct program_row *row, const float *logits, uint32_t n_vocab)
{
	struct program_top *sorted = calloc(n_vocab, sizeof(*sorted));
	static const struct program_top none[PROGRAM_TOP_MAX];

	assert_non_null(sorted);
	for (uint32_t i = 0; i < n_vocab; i++)
		sorted[i] = (struct program_top){i, logits[i]};
	qsort(sorted, n_vocab, sizeof(*sorted), by_logit);
	assert_memory_equal(row->top, sorted, row->n_top * sizeof(*sorted));
	assert_memory_equal(row->top + row->n_top, none,
			    (PROGRAM_TOP_MAX - row->n_top) * sizeof(*none));
	free(sorted);
}

/* exp is good to 2 units in the last place, x - max to 2^-24 of at most 16 here, and 64 terms are
 * summed in fp32: 1e-5 is more than all of it, and a few units of lse itself. */
static void check_sums(const struct program_row *row, const float *logits, uint32_t n_vocab,
		       uint32_t next)
{
	double sum = 0;

	for (uint32_t i = 0; i < n_vocab; i++)
		sum += exp((double)logits[i]);
	assert_true(fabs((double)row->lse - log(sum)) < 1e-5);
	if (next == PROGRAM_NONE)
		assert_true(isnan(row->score));
	else
		assert_true(fabs((double)row->score - ((double)logits[next] - log(sum))) < 1e-5);
}

void results_check(const struct program_row *row, const float *logits, uint32_t n_vocab,
		   uint32_t next)
{
	check_top(row, logits, n_vocab);
	check_sums(row, logits, n_vocab, next);
}

double rows_error_of_all(const float *rows, const double *truth, uint32_t n, uint32_t width)
{
	double off = 0, all = 0;

	for (size_t i = 0; i < (size_t)n * width; i++) {
		off += ((double)rows[i] - truth[i]) * ((double)rows[i] - truth[i]);
		all += truth[i] * truth[i];
	}
	return all > 0 ? sqrt(off / all) : off;
}

double rows_error(const float *rows, const double *truth, uint32_t n, uint32_t width)
{
	double largest = 0;

	for (size_t r = 0; r < n; r++) {
		double off = 0, all = 0;

		for (size_t i = r * width; i < (r + 1) * width; i++) {
			off += ((double)rows[i] - truth[i]) * ((double)rows[i] - truth[i]);
			all += truth[i] * truth[i];
		}
		largest = fmax(largest, all > 0 ? sqrt(off / all) : off);
	}
	return largest;
}
