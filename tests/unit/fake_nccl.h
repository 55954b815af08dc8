/* fake_nccl.h - what the fake libnccl.so.2 has seen. */
#ifndef COPPICE_TESTS_FAKE_NCCL_H
#define COPPICE_TESTS_FAKE_NCCL_H

#include <stdbool.h>
#include <stdint.h>

struct fake_nccl {
	int n_all; /* ranks of the newest communicator */
	char id; /* its id's first byte */
	uint32_t n_comms;
	_Atomic uint32_t n_gathers, n_open, n_aborted;
	_Atomic bool absent; /* another rank does not come: whoever meets it waits */
	_Atomic bool silent; /* another rank does not end: whatever ends waits for it */
	int ranks[16]; /* [n_comms]: whose */
};

struct fake_nccl *fake_nccl_find(void);

#endif
