/*
 * clocks.c - see clocks.h. A phase of a block is from one mark to another; a block that lacks
 * either has none of it. Q and KV come side by side: both are timed from where the tile was known.
 */
#include "clocks.h"

#ifdef BENCH_HAVE_KERNELS
#include <assert.h>
#include <stdlib.h>

static const struct {
	const char *name;
	enum clock_mark from, to;
} phases[] = {
	{"tile known", CLOCK_BEGIN, CLOCK_TILE},  {"its Q", CLOCK_TILE, CLOCK_Q},
	{"its first KV", CLOCK_TILE, CLOCK_KV},	  {"folded", CLOCK_KV, CLOCK_FOLDED},
	{"written", CLOCK_FOLDED, CLOCK_WRITTEN}, {"other tiles", CLOCK_WRITTEN, CLOCK_END},
};

enum { N_PHASES = sizeof(phases) / sizeof(phases[0]) };

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static struct clocks_phase phase_of(const char *name, double *us, uint32_t n)
{
	struct clocks_phase phase = {.name = name, .n = n};

	if (n == 0)
		return phase;
	qsort(us, n, sizeof(*us), compare);
	phase.median = us[n / 2];
	phase.p90 = us[n * 9 / 10];
	phase.worst = us[n - 1];
	return phase;
}

static bool between(const uint64_t *marks, enum clock_mark from, enum clock_mark to, double *ret_us)
{
	if (!marks[from] || !marks[to])
		return false;
	*ret_us = ((double)marks[to] - (double)marks[from]) / 1e3;
	return true;
}

/* The first that begins, and the last that ends; 0: there is none. */
static void find_ends(const uint64_t (*blocks)[CLOCK_MARKS], uint64_t *ret_first,
		      uint64_t *ret_last)
{
	*ret_first = *ret_last = 0;
	for (uint32_t i = 0; i < CLOCK_BLOCKS; i++) {
		uint64_t begin = blocks[i][CLOCK_BEGIN], end = blocks[i][CLOCK_END];

		if (begin && (!*ret_first || begin < *ret_first))
			*ret_first = begin;
		if (end > *ret_last)
			*ret_last = end;
	}
}

void clocks_read(const struct device_clocks *clocks, struct clocks_phase *ret)
{
	double us[CLOCK_BLOCKS];
	uint64_t first, last, merge_first, merge_last;
	uint32_t n;

	find_ends(clocks->blocks, &first, &last);
	find_ends(clocks->merges, &merge_first, &merge_last);
	for (uint32_t phase = 0; phase < N_PHASES; phase++) {
		n = 0;
		for (uint32_t i = 0; i < CLOCK_BLOCKS; i++)
			n += between(clocks->blocks[i], phases[phase].from, phases[phase].to,
				     &us[n]);
		ret[phase] = phase_of(phases[phase].name, us, n);
	}
	n = 0;
	for (uint32_t i = 0; i < CLOCK_BLOCKS; i++) {
		if (clocks->blocks[i][CLOCK_END])
			us[n++] = (double)(last - clocks->blocks[i][CLOCK_END]) / 1e3;
	}
	ret[N_PHASES] = phase_of("waits for the last", us, n);
	us[0] = merge_last > last ? (double)(merge_last - last) / 1e3 : 0;
	ret[N_PHASES + 1] = phase_of("merge, after it", us, merge_last > 0);
}

static_assert(N_PHASES + 2 == CLOCKS_PHASES, "a place for each");
#endif
