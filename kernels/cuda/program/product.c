/*
 * product.c - where a tensor lies, and a product on the batches' stream.
 *
 * A product that cuBLASLt refuses is a failure of the device: nothing is computed in its place.
 */
#include "product.h"

#include "program.h"

#include <cuda_runtime_api.h>

struct device_vector product_vector(const struct backend_program *program,
				    const struct program_tensor *t)
{
	return (struct device_vector){.at = program->weights->base + t->offset,
				      .type = t->dtype,
				      .n = t->n_in};
}

int product_run(struct batch *b, const struct backend_program *program,
		const struct lt_product *product)
{
	int r = lt_multiply(program->lt, product, program->scratch.workspace, b->queue.stream);

	return r ? queue_expect(&b->queue, cudaErrorUnknown) : 0;
}

bool product_takes_few(const struct device_few *few)
{
	struct device_few bare = *few;

	bare.norm.at = NULL;
	return device_some_takes(&bare) ? !few->norm.at : device_few_takes(few);
}

int product_few(struct batch *b, const struct backend_program *program,
		const struct device_few *few)
{
	const struct device_some_room room = {program->scratch.workspace, LT_WORKSPACE_BYTES,
					      program->scratch.counters};
	struct launch_to to = queue_to(&b->queue);

	return queue_expect(&b->queue, device_some_takes(few)
					       ? device_some(few, &room, b->all_blocks, to)
					       : device_few(few, b->all_blocks, to));
}
