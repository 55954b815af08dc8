/* draw.c - xorshift from the seed, and values that lie on or about borders of sizes and types. */
#include "draw.h"
#include "proto/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void draw_init(struct draw *d, double seconds)
{
	const char *seed = getenv("COPPICE_SEED"), *limit = getenv("COPPICE_SECONDS");
	uint64_t start = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);

	if (limit)
		seconds = strtod(limit, NULL);
	printf("COPPICE_SEED=%llu, at most %g s\n", (unsigned long long)start, seconds);
	fflush(stdout);
	d->state = start * UINT64_C(0x9e3779b97f4a7c15) | 1;
	d->end_ns = clock_now_ns() + (uint64_t)(seconds * 1e9);
}

bool draw_goes_on(const struct draw *d)
{
	return clock_now_ns() < d->end_ns;
}

uint64_t draw_bits(struct draw *d)
{
	d->state ^= d->state << 13;
	d->state ^= d->state >> 7;
	d->state ^= d->state << 17;
	return d->state * UINT64_C(0x2545f4914f6cdd1d);
}

uint32_t draw_below(struct draw *d, uint32_t below)
{
	return (uint32_t)((draw_bits(d) >> 32) % below);
}

bool draw_one_in(struct draw *d, uint32_t n)
{
	return draw_below(d, n) == 0;
}

uint64_t draw_border(struct draw *d)
{
	static const uint64_t borders[] = {0,	       1,	   2,
					   4,	       8,	   15,
					   16,	       17,	   64,
					   80,	       255,	   256,
					   257,	       4096,	   65535,
					   65536,      1u << 18,   1u << 20,
					   1u << 21,   1u << 30,   INT32_MAX,
					   UINT32_MAX, 1ull << 32, 1ull << 40,
					   INT64_MAX,  1ull << 63, UINT64_MAX - 7,
					   UINT64_MAX};
	uint64_t any = borders[draw_below(d, sizeof(borders) / sizeof(*borders))];

	if (draw_one_in(d, 4))
		return draw_bits(d) >> draw_below(d, 64);
	return any + (draw_one_in(d, 2) ? draw_below(d, 17) - UINT64_C(8) : 0);
}

void draw_fill(struct draw *d, void *to, size_t bytes)
{
	uint8_t *p = to;

	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		uint64_t bits = draw_bits(d);

		memcpy(p + i, &bits, bytes - i < sizeof(bits) ? bytes - i : sizeof(bits));
	}
}
