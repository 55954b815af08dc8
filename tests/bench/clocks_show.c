/*
 * clocks_show.c - launches attention with clocks, and prints what they say; see clocks.h. A
 * launch's figures are read whole before the next: medians are of launches, not of blocks of
 * several.
 */
#include "clocks.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCHES 11u

/* The medians of launches, phase by phase. */
static void print(const struct clocks_phase (*of)[CLOCKS_PHASES], uint32_t n, const char *name,
		  const char *policy)
{
	printf("%s/%s, us:\n  %-20s %7s %8s %8s %8s\n", name, policy, "phase", "blocks", "median",
	       "p90", "worst");
	for (uint32_t phase = 0; phase < CLOCKS_PHASES; phase++) {
		double median[LAUNCHES], p90[LAUNCHES], worst[LAUNCHES];

		for (uint32_t i = 0; i < n; i++) {
			median[i] = of[i][phase].median;
			p90[i] = of[i][phase].p90;
			worst[i] = of[i][phase].worst;
		}
		printf("  %-20s %7u %8.2f %8.2f %8.2f\n", of[0][phase].name, of[0][phase].n,
		       bench_median(median, n), bench_median(p90, n), bench_median(worst, n));
	}
}

int clocks_show(struct card_run *run, const char *name, const char *policy)
{
	struct device_clocks *clocks = malloc(sizeof(*clocks));
	struct clocks_phase of[LAUNCHES][CLOCKS_PHASES];
	int r = clocks ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < LAUNCHES && !r; i++) {
		r = run->card->clocks(run->backend, CARD_FLUSH_BYTES, clocks);
		if (!r)
			clocks_read(clocks, of[i]);
	}
	free(clocks);
	if (!r)
		print((const struct clocks_phase(*)[CLOCKS_PHASES])of, LAUNCHES, name, policy);
	else
		fprintf(stderr, "coppice-bench: --clocks: %s\n",
			r == -ENOTSUP ? "this module has none; coppice-cuda-clocks.so has"
				      : strerror(-r));
	return r;
}
#endif
