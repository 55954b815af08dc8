/*
 * tiers_step.c - a decode step on a path as it lies in the store: plan, append, attention, for each
 * layer in turn. K and V of the token are whatever is in the arena.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
#include <errno.h>
#include <stdlib.h>

static uint64_t row_bytes(const struct work_shape *shape, uint32_t n_heads)
{
	return (uint64_t)n_heads * shape->head_dim * work_dtype_bytes(shape->dtype);
}

int tiers_step_init(struct tiers_step *t, struct tiers_bench *b, const struct work_shape *shape)
{
	*t = (struct tiers_step){.bench = b, .shape = *shape};
	return tiers_arena_init(&t->arena, b,
				2 * row_bytes(shape, shape->n_q_heads) +
					2 * row_bytes(shape, shape->n_kv_heads));
}

void tiers_step_done(struct tiers_step *t)
{
	if (t->arena.bench)
		tiers_arena_done(&t->arena);
	gather_done(&t->gather);
	free(t->slices);
	*t = (struct tiers_step){0};
}

static int slices_reserve(struct tiers_step *t, uint32_t n)
{
	if (n <= t->slices_capacity)
		return 0;
	struct work_slice *slices = realloc(t->slices, n * sizeof(*slices));
	if (!slices)
		return -ENOMEM;
	t->slices = slices;
	t->slices_capacity = n;
	return 0;
}

static void slices_copy(struct work_slice *to, const struct store_slice *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = (struct work_slice){from[i].page, from[i].first, from[i].count};
}

/* The path's slices and behind them the token's; its place in *ret_slot. */
static int slices_take(struct tiers_step *t, struct store_seq *q, uint32_t *ret_slot)
{
	uint32_t n_slots;
	const struct store_slice *slots = store_seq_slots(q, &n_slots);
	int r = store_seq_is_resident(q) && n_slots == 1 ? gather_begin(&t->gather, q) : -EINVAL;
	uint32_t n = t->gather.n_slices;

	if (!r)
		r = slices_reserve(t, n + 1);
	if (!r) {
		slices_copy(t->slices, t->gather.slices, n);
		slices_copy(t->slices + n, slots, 1);
		*ret_slot = n;
	}
	gather_end(&t->gather);
	return r;
}

static int layers_run(struct tiers_step *t, struct backend_job *job)
{
	const struct tiers_bench *b = t->bench;
	int r = 0;

	for (job->layer = 0; !r && job->layer < t->shape.n_layers; job->layer++) {
		r = b->ops->submit(b->backend, &(struct backend_batch){job, 1}, &t->n_asked);
		while (!r && t->n_done < t->n_asked)
			r = b->ops->completed(b->backend, &t->n_done);
	}
	return r;
}

int tiers_step_run(struct tiers_step *t, struct store_seq *q)
{
	uint64_t q_bytes = row_bytes(&t->shape, t->shape.n_q_heads),
		 k_bytes = row_bytes(&t->shape, t->shape.n_kv_heads), base = t->arena.base;
	uint32_t n_tokens = store_seq_n_tokens(q), slot;
	int r = slices_take(t, q, &slot);

	if (r)
		return r;
	struct work_node node = {.parent = WORK_NONE,
				 .n_tokens = n_tokens + 1,
				 .n_slices = slot + 1};
	struct work_query query = {.pos = n_tokens, .n_rows = 1};
	struct work_tree tree = {&node, t->slices, &query, 1, slot + 1, 1};
	struct backend_io io = {.q = base,
				.o = base + q_bytes,
				.k = base + 2 * q_bytes,
				.v = base + 2 * q_bytes + k_bytes,
				.q_stride = q_bytes,
				.o_stride = q_bytes,
				.k_stride = k_bytes,
				.v_stride = k_bytes,
				.slots = t->slices + slot,
				.n_slots = 1};
	struct work_list list = {0};
	struct backend_job job = {.shape = &t->shape,
				  .tree = &tree,
				  .list = &list,
				  .io = &io,
				  .plan_id = ++t->plan_id};
	r = tiers_plan(t->bench, &t->shape, &tree, &list);
	if (!r)
		r = layers_run(t, &job);
	plan_list_done(&list);
	return r;
}
#endif
