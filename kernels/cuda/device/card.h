/* card.h - which GPU computes, how much memory it has, and whether it can: what is missing is said
 * in a sentence, with the way out. */
#ifndef COPPICE_CUDA_CARD_H
#define COPPICE_CUDA_CARD_H

#include "code.h"
#include "kernels/backend.h"
#include "proto/must_check.h"

struct card {
	int device; /* index */
	char name[64];
	int major, minor; /* compute capability */
	uint32_t n_blocks; /* multiprocessors */
};

/* The one that the config names, made the calling thread's. -EINVAL where there is none or it
 * cannot; -ENOMEM where the pool does not fit beside what is in use. Blocks. */
MUST_CHECK int card_find(const struct backend_config *config, struct card *ret, char *error,
			 size_t error_bytes);
/* What the card runs is not what was made for it: a sentence. False: it is. */
bool card_runs_other_code(const struct card *card, enum code code, char *ret, size_t bytes);
/* backend_ops' memory. The device is made the calling thread's. */
MUST_CHECK int card_memory(const char *device, struct backend_memory *ret, char *error,
			   size_t error_bytes);
/* backend_ops' kind. As above. */
MUST_CHECK int card_kind(const char *device, struct backend_kind *ret, char *error,
			 size_t error_bytes);

#endif
