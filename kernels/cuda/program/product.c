/*
 * product.c - where a tensor lies, whose kernels make a product, and one on the batches' stream.
 *
 * A product that cuBLASLt refuses is a failure of the device: nothing is computed in its place.
 */
#include "product.h"

#include "many.h"
#include "pair.h"
#include "program.h"
#include "tall.h"

#include <assert.h>
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

/* Whose kernels make it. A norm is none of them but of few rows: there it is a launch before. */
enum product_way { WAY_NONE, WAY_FEW, WAY_SOME, WAY_PAIR, WAY_TALL, WAY_MANY };

static enum product_way find_way(const struct device_few *few)
{
	if (device_some_takes(few))
		return WAY_SOME;
	if (device_pair_takes(few))
		return WAY_PAIR;
	if (device_tall_takes(few))
		return WAY_TALL;
	if (device_many_takes(few))
		return WAY_MANY;
	return device_few_takes(few) ? WAY_FEW : WAY_NONE;
}

bool product_takes_few(const struct device_few *few)
{
	struct device_few bare = *few;

	bare.norm.at = NULL;
	switch (find_way(&bare)) {
	case WAY_NONE:
		return false;
	case WAY_FEW:
		return device_few_takes(few);
	default:
		return !few->norm.at;
	}
}

static_assert(SOME_PARTS_BYTES <= LT_WORKSPACE_BYTES, "sums of parts lie in the workspace");

int product_few(struct batch *b, const struct backend_program *program,
		const struct device_few *few)
{
	const struct device_some_room room = {program->scratch.workspace,
					      program->scratch.counters};
	struct launch_to to = queue_to(&b->queue);

	switch (find_way(few)) {
	case WAY_SOME:
		return queue_expect(&b->queue, device_some(few, &room, b->all_blocks, to));
	case WAY_PAIR:
		return queue_expect(&b->queue, device_pair(few, b->all_blocks, to));
	case WAY_TALL:
		return queue_expect(&b->queue, device_tall(few, b->all_blocks, to));
	case WAY_MANY:
		return queue_expect(&b->queue, device_many(few, b->all_blocks, to));
	default:
		return queue_expect(&b->queue, device_few(few, b->all_blocks, to));
	}
}
