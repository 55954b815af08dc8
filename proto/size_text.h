/*
 * size_text.h - sizes as people write them. Never rounded: what is said is what was meant, in as
 * few digits as that allows.
 */
#ifndef COPPICE_SIZE_TEXT_H
#define COPPICE_SIZE_TEXT_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SIZE_UNITS "KMGT"

/* By value: good for an argument of printf, as size_text(n, 0).text. */
struct size_text {
	char text[32];
};

/* 0: it is no unit. */
static inline unsigned size_unit_shift(char unit)
{
	const char *at = unit ? strchr(SIZE_UNITS, unit & ~0x20) : NULL;

	return at ? 10 * (unsigned)(at - SIZE_UNITS + 1) : 0;
}

/* In the unit asked for, K, M, G or T, where that says it without a fraction; 'B': in bytes; else
 * and with 0 in the largest unit that does. */
static inline struct size_text size_text(uint64_t bytes, char unit)
{
	unsigned shift = size_unit_shift(unit);
	struct size_text t;

	if (unit != 'B' && (shift == 0 || bytes & ((UINT64_C(1) << shift) - 1)))
		for (shift = 40; shift && bytes & ((UINT64_C(1) << shift) - 1);)
			shift -= 10;
	if (bytes == 0 || shift == 0)
		snprintf(t.text, sizeof(t.text), "%" PRIu64, bytes);
	else
		snprintf(t.text, sizeof(t.text), "%" PRIu64 "%c", bytes >> shift,
			 SIZE_UNITS[shift / 10 - 1]);
	return t;
}

/* Of what was measured, and is no whole number of anything: in MiB. */
static inline struct size_text size_text_measured(uint64_t bytes)
{
	return size_text(bytes >> 20 << 20, 0);
}

#endif
