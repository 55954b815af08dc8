/* product.h - a program's tensors and products, as its launches have them. */
#ifndef COPPICE_CUDA_PRODUCT_H
#define COPPICE_CUDA_PRODUCT_H

#include "elements.h"
#include "few.h"
#include "kernels/cuda/batch/batch.h"
#include "scratch.h"

struct device_vector product_vector(const struct backend_program *program,
				    const struct program_tensor *t);
/* 0 or -EIO, which the queue remembers. */
MUST_CHECK int product_run(struct batch *b, const struct backend_program *program,
			   const struct lt_product *product);
/* Are its rows few, or some? */
bool product_takes_few(const struct device_few *few);
MUST_CHECK int product_few(struct batch *b, const struct backend_program *program,
			   const struct device_few *few);

#endif
