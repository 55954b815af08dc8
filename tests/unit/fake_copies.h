/*
 * fake_copies.h - a CUDA runtime that has no GPU: streams are queues of copies of which any may go
 * on next, unless it waits for an event, so that whatever CUDA leaves open happens.
 */
#ifndef COPPICE_TESTS_FAKE_COPIES_H
#define COPPICE_TESTS_FAKE_COPIES_H

#include <stdbool.h>
#include <stdint.h>

extern struct fake_copies {
	uint32_t n_small_launches, n_pitched;
	uint32_t n_registered; /* memories, now */
	bool has_together; /* the driver has the call */
	bool refuses_memory, refuses_address; /* once */
} fake_copies;

/* COPPICE_SEED's random numbers, or the time's, which is printed. */
void fake_seed(void);
/* Below n. */
uint32_t fake_draw(uint32_t n);
/* A few operations of streams drawn at random. */
void fake_go_on(uint32_t n);

#endif
