/* lend.h - weights as another process opens them. */
#ifndef COPPICE_CUDA_LEND_H
#define COPPICE_CUDA_LEND_H

#include "kernels/program/backend_program.h"

/* As backend_program_ops have it. */
MUST_CHECK int lend_weights(const struct backend_weights *weights, struct backend_lent *ret);

#endif
