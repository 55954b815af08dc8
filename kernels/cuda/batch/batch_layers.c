/*
 * batch_layers.c - see batch_layers.h. It is a batch like any other: it has a frame, takes the next
 * id and ends by the same launch, so it completes in order with all others. Rows' table and patches
 * come with the first layer, and no tokens with any; what follows finds them there.
 */
#include "batch_layers.h"

#include <errno.h>

static int ready(struct batch *b, const struct backend_job *job, size_t host_bytes,
		 struct batch_layers *ret)
{
	const struct backend_batch one = {.jobs = job, .n_jobs = 1};
	size_t host, device;
	int r = batch_check(b, &one);

	if (!r)
		r = stand_leave(b);
	if (!r)
		r = batch_find_needs(b, &one, &host, &device);
	if (!r)
		r = batch_take_frame(b, host + align_up(host_bytes), device, &ret->u);
	if (r)
		return r;
	batch_put_tells(b, &one, b->last_id + 1);
	b->n_last = 0;
	b->uses_before = b->uses;
	ret->begin_ns = &ret->u.frame->clock->begin_ns;
	ret->ending_ns = &ret->u.frame->clock->ending_ns;
	ret->u.begun = true; /* by the caller's first launch */
	return job_ready(&ret->u, job, &b->needs[0], &ret->in, &ret->attend);
}

int batch_layers_begin(struct batch *b, const struct backend_job *job, size_t host_bytes,
		       struct batch_layers *ret)
{
	struct batch_layers layers = {
		.job = job,
		.layer_bytes = kv_head_bytes(job->shape) * job->shape->n_kv_heads,
		.u.b = b,
	};
	int r = b->queue.failed ? -EIO : ready(b, job, host_bytes, &layers);

	if (r) {
		batch_layers_drop(&layers);
		b->queue.failed = b->queue.failed || r == -EIO;
		return r;
	}
	layers.pool = layers.in.pool;
	layers.tokens = layers.in.tokens;
	layers.in.n_tokens = 0;
	*ret = layers;
	return 0;
}

void *batch_layers_host(struct batch_layers *layers, size_t bytes)
{
	return upload_host(&layers->u, bytes);
}

char *batch_layers_pool(const struct batch_layers *layers, uint32_t layer)
{
	return layers->pool + layer * layers->layer_bytes;
}

static uint32_t count_slots(const struct backend_io *io)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < io->n_slots; i++)
		n += io->slots[i].count;
	return n;
}

/* Token t of a query is that of its row t. */
void batch_layers_places(const struct batch_layers *layers, struct device_place *to)
{
	const struct work_tree *tree = layers->job->tree;
	const struct device_token *token = layers->tokens;

	for (uint32_t i = 0; i < tree->n_queries; i++) {
		uint32_t n_tokens = count_slots(&layers->job->io[i]);

		for (uint32_t t = 0; t < tree->queries[i].n_rows; t++)
			*to++ = t < n_tokens ? (struct device_place){token[t].source, token[t].row}
					     : (struct device_place){DEVICE_NONE, 0};
		token += n_tokens;
	}
}

/* Rows that no token follows in place have ended: those behind them have a plan of their own, which
 * may have its memory. What is sent there waits for all that runs. */
static void forget_plan(struct batch *b, const struct batch_layers *layers)
{
	struct batch_plan *plan = plan_find(b, layers->job->plan_id, layers->job->shape);

	if (plan && plan == layers->u.plan && plan->n_tails == 0)
		plan->plan_id = plan->used = 0;
}

int batch_layers_attend(struct batch_layers *layers, uint32_t layer)
{
	struct batch *b = layers->u.b;
	const struct layer launches = {.inbound = &layers->in, .attend = &layers->attend};
	int r;

	layers->attend.pool = layers->in.pool = batch_layers_pool(layers, layer);
	layers->in.ahead = layers->attend.ahead = true;
	b->last_in = layers->in;
	b->last = layers->attend;
	r = batch_launch(b, &launches);
	job_count(b, layers->job, layers->u.plan);
	layers->in.n_rows = layers->in.n_patches = 0;
	layers->attend.patched = false;
	layers->attended = true;
	return r;
}

/* The plan's patches were this batch's to bring, whoever attends by them. */
static int bring_alone(struct batch_layers *layers)
{
	const struct layer launches = {.inbound = &layers->in};

	return batch_launch(layers->u.b, &launches);
}

int batch_layers_end(struct batch_layers *layers, bool ended, uint64_t *ret_id)
{
	struct batch *b = layers->u.b;
	int r = layers->attended ? 0 : bring_alone(layers);

	if (!r)
		r = batch_finish(b, b->last_id + 1);
	if (r)
		return r;
	if (ended)
		forget_plan(b, layers);
	*ret_id = batch_keep(&layers->u);
	stand_next(&layers->u, NULL);
	return 0;
}

void batch_layers_drop(struct batch_layers *layers)
{
	(void)!queue_await(&layers->u.b->queue); /* the queue remembers it */
}
