/* fake_memory.h - a device's memory, which is counted, and a stream on which kernels read what they
 * were given until somebody waits for it: the CUDA runtime's part, played. For tests. */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCKS_MAX 64u

struct block {
	void *at; /* owned */
	size_t bytes;
	bool read; /* by what runs */
};

struct fake_memory {
	struct block blocks[BLOCKS_MAX];
	size_t bytes, peak_bytes;
	uint32_t n_waits;
	bool full;
};
extern struct fake_memory device;

/* What begins there; fails the test where nothing does. */
struct block *block_at(const void *at);

#endif
