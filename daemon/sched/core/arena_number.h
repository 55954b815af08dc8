/*
 * arena_number.h - numbers of a session's arenas: (generation << 16 | place), so that an entry
 * which names one that was freed is told from those that name what came to its place.
 */
#ifndef COPPICED_ARENA_NUMBER_H
#define COPPICED_ARENA_NUMBER_H

#include <stdint.h>

/* place: from 1. */
static inline uint32_t arena_number(uint32_t place, uint16_t generation)
{
	return (uint32_t)generation << 16 | place;
}

static inline uint32_t arena_place(uint32_t number)
{
	return number & UINT16_MAX;
}

static inline uint16_t arena_generation(uint32_t number)
{
	return (uint16_t)(number >> 16);
}

#endif
