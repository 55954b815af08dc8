/*
 * units.h - sizes and times as people write them.
 */
#ifndef COPPICED_UNITS_H
#define COPPICED_UNITS_H

#include <stdint.h>

/* By value: good for an argument of printf, as units_size(n, 0).text. */
struct units_text {
	char text[32];
};

/* In the unit asked for, K, M, G or T, where that says it without a fraction; 'B': in bytes; else
 * and with 0 in the largest unit that does. */
struct units_text units_size(uint64_t bytes, char unit);
/* The unit that a size was typed with, for units_size; 0: it is none. */
char units_of(const char *typed);
/* "90 s", "2 h", "1 d": in the unit of so many nanoseconds, where that is one and says it without a
 * fraction; else and with 0 in the largest unit that does. */
struct units_text units_time(uint64_t ns, uint64_t unit_ns);

#endif
