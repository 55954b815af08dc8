/*
 * units.h - units that people write, and times; sizes are in proto/size_text.h.
 */
#ifndef COPPICED_UNITS_H
#define COPPICED_UNITS_H

#include "proto/size_text.h"

#include <stdint.h>

/* The unit that a size was typed with, for size_text; 0: it is none. */
char units_of(const char *typed);
/* "90 s", "2 h", "1 d": in the unit of so many nanoseconds, where that is one and says it without a
 * fraction; else and with 0 in the largest unit that does. */
struct size_text units_time(uint64_t ns, uint64_t unit_ns);

#endif
