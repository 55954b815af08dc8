/*
 * draw.h - random numbers of a fuzzer: the seed is printed, COPPICE_SEED repeats a run;
 * COPPICE_SECONDS bounds it.
 */
#ifndef COPPICE_FUZZ_DRAW_H
#define COPPICE_FUZZ_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct draw {
	uint64_t state;
	uint64_t end_ns; /* CLOCK_MONOTONIC: when the time is over */
};

void draw_init(struct draw *d,
	       double seconds); /* unless COPPICE_SECONDS says otherwise; prints the seed */
bool draw_goes_on(const struct draw *d); /* is there time left? */
uint64_t draw_bits(struct draw *d);
uint32_t draw_below(struct draw *d, uint32_t below); /* below >= 1 */
bool draw_one_in(struct draw *d, uint32_t n);
/* A number near one of the borders that programs trip over, or any. */
uint64_t draw_border(struct draw *d);
void draw_fill(struct draw *d, void *to, size_t bytes);

#endif
