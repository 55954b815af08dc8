/* weights.h - weights in the machine's memory. */
#ifndef COPPICE_CPU_WEIGHTS_H
#define COPPICE_CPU_WEIGHTS_H

#include "kernels/program/backend_program.h"

struct backend_weights {
	char *base; /* owned mapping; the same for as long as they are there */
	uint64_t bytes;
	int fd; /* owned: memory that is lent; -1: nobody has asked */
	uint64_t moved_bytes; /* of the mapping, that are there */
	bool sealed;
};

/* As backend_program_ops have them. */
MUST_CHECK int cpu_weights_new(struct backend *b, uint64_t bytes, struct backend_weights **ret);
MUST_CHECK int cpu_weights_put(struct backend *b, struct backend_weights *weights, uint64_t offset,
			       const void *from, uint64_t bytes);
MUST_CHECK int cpu_weights_lend(struct backend *b, struct backend_weights *weights,
				struct backend_lent *ret);
void cpu_weights_free(struct backend *b, struct backend_weights *weights);

#endif
