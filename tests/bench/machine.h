/*
 * machine.h - what this machine can do at most: reading memory, and multiplying and adding on
 * registers.
 */
#ifndef COPPICE_BENCH_MACHINE_H
#define COPPICE_BENCH_MACHINE_H

#include <stddef.h>
#include <stdint.h>

struct machine {
	uint32_t n_threads;
	char *buffer; /* owned mapping, much larger than the last-level cache */
	size_t bytes;
};

/* 0 or -ENOMEM. */
int machine_init(struct machine *m, uint32_t n_threads);
void machine_done(struct machine *m);

/* Bytes per second of a sum by vector loads over the buffer, all threads at once. */
double machine_read_rate(struct machine *m);
/* Multiply-adds per second with one broadcast operand, all on registers, in the widest vectors that
 * the kernels use here, all threads at once. */
double machine_fma_rate(struct machine *m);

#endif
