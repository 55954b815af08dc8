/*
 * batch_job.c - a job: its plan on the device, its tables, and its launches, as one chain or by a
 * launch that stands. What a job is made from is ready before anything of it is launched; jobs of
 * chosen blocks have no plan and no partials. See batch_impl.h.
 */
#include "batch_chosen.h"
#include "batch_impl.h"

#include "proto/cleanup.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUS_BYTES_A_NS 40u

static int send_schedule(struct upload *u, struct batch_plan *plan, const struct schedule *p)
{
	size_t bytes = plan_bytes(p), at = 0;
	char *host;
	int r = upload_grow(u, u->host_used + bytes + u->host_due);

	if (r)
		return r;
	host = upload_host(u, bytes);
	for (int i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		size_t n = p->n[i] * schedule_entry_bytes(i);

		if (n)
			memcpy(host + at, p->arrays[i].at, n);
		at += align_up(n);
	}
	return queue_bring(&u->b->queue, plan->device.at, host, bytes);
}

static char *layer_of(const struct batch *b, const struct backend_job *job)
{
	uint64_t at =
		b->pool->base + job->layer * kv_head_bytes(job->shape) * job->shape->n_kv_heads;

	return (char *)(uintptr_t)at;
}

static struct device_inbound make_inbound(struct upload *u, const struct backend_job *job,
					  struct batch_plan *plan, const struct batch_need *need,
					  struct tables *t)
{
	struct device_inbound in = {
		.shape = shape_on_device(job->shape),
		.copies = t->q,
		.pool = layer_of(u->b, job),
		.rows_from = t->rows,
		.rows_to = (void *)(uintptr_t)t->rows_to,
		.n_tokens = need->n_tokens,
		.n_copies = t->q ? job->list->n_rows : 0,
		.n_rows = job_n_rows(job) + (t->lse_to ? job->list->n_rows : 0),
		.copy_bytes = (uint32_t)shape_row_bytes(job->shape),
		.aligned = need->place.aligned_kv,
		.begin_ns = u->begun ? NULL : &u->frame->clock->begin_ns,
	};
	struct device_token *tokens = upload_host(u, in.n_tokens * sizeof(*tokens));

	tables_fill_tokens(u->b, job, tokens);
	tables_describe_copies(t, in.n_copies, &in);
	in.tokens = tokens;
	in.patches = tables_take_patches(u, plan, &in.n_patches);
	t->patched = in.n_patches > 0;
	u->begun = true;
	if (in.n_copies)
		u->frame->bus_ns +=
			((uint64_t)in.n_copies * in.copy_bytes +
			 in.n_tokens * job->shape->n_kv_heads * kv_token_bytes(job->shape)) /
			BUS_BYTES_A_NS;
	u->b->last_in = in;
	return in;
}

static struct device_attend make_attend(struct batch *b, const struct backend_job *job,
					const struct batch_plan *plan, const struct tables *t)
{
	struct device_attend attend = plan->attend;
	uint64_t entries = (uint64_t)plan->n_parts * shape_row_heads(job->shape);

	attend.shape = shape_on_device(job->shape);
	attend.shape.n_kv_heads = backend_job_heads(job);
	attend.rows = (const void *)(uintptr_t)t->rows_to;
	attend.n_rows = job_n_rows(job);
	attend.pool = layer_of(b, job) + job->head * attend.shape.head_bytes;
	attend.part_o = b->parts.at;
	attend.part_stats = (float *)b->parts.at + entries * job->shape->head_dim;
	attend.ticket = b->ticket;
	attend.patched = t->patched;
	attend.n_blocks = b->n_blocks;
	attend.bounded = job->list->bounded;
	b->last = attend;
	b->last_exchange.n_rows = 0;
	b->n_last++;
	return attend;
}

/* Of chosen blocks: no plan, no partials. */
static int run_chosen(struct upload *u, const struct backend_job *job,
		      const struct chosen_job *chosen, const struct tables *t)
{
	struct batch *b = u->b;
	struct device_attend attend = {
		.shape = shape_on_device(job->shape),
		.rows = (const void *)(uintptr_t)t->rows_to,
		.n_rows = job_n_rows(job),
		.pool = layer_of(b, job),
		.ticket = b->ticket,
		.n_blocks = b->n_blocks,
	};

	b->last_exchange.n_rows = 0;
	b->n_last++;
	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += chosen->n_kv_tiles * DEVICE_KV_TILE_BLOCKS * KV_BLOCK_TOKENS *
				     kv_token_bytes(job->shape);
	b->counters.kv_bytes_alone +=
		job->list->kv_tokens_alone * kv_token_bytes(job->shape) * job->shape->n_kv_heads;
	return chosen_launch(u, chosen, &attend);
}

/* What all devices have of the rows is to become one, where it is wanted. */
static int add_exchange(struct upload *u, const struct backend_job *job, const struct tables *t)
{
	struct batch *b = u->b;
	struct peer_rows rows = {
		.o = t->o_to,
		.lse = t->lse_to,
		.dests = t->rows_to + job_n_rows(job) * sizeof(struct device_row),
		.n_rows = job->list->n_rows,
		.n_heads = job->shape->n_q_heads,
		.head_dim = job->shape->head_dim,
		.bf16 = job->shape->dtype == WORK_BF16,
	};

	peer_describe(b->peer, &rows, &b->last_exchange);
	return peer_add(b->peer, &rows);
}

/* Rows whose O went to device memory on the way to where it is wanted. */
static struct device_outbound make_outbound(const struct backend_job *job, const struct tables *t)
{
	struct device_outbound out = {.copies = t->o,
				      .bytes = backend_job_heads(job) *
					       (uint32_t)shape_kv_block_bytes(job->shape)};

	for (uint32_t i = 0; t->o && i < job->list->n_rows; i++) {
		if (t->o[i].to)
			t->o[out.n++] = t->o[i];
	}
	return out;
}

/* Makes a plan; one that the device does not get is nobody's. */
static int send_plan(struct upload *u, const struct backend_job *job, const bool *wanted,
		     struct batch_plan **ret)
{
	const struct schedule *schedule;
	int r = plan_prepare(u->b, job, wanted, ret, &schedule);

	if (r || !schedule)
		return r;
	r = send_schedule(u, *ret, schedule);
	if (r)
		plan_forget(*ret);
	return r;
}

/* A plan of those rows alone whose output is wanted. */
static int send_plan_of_wanted(struct upload *u, const struct backend_job *job,
			       struct batch_plan **ret)
{
	CLEANUP_FREE bool *wanted = malloc(job->tree->n_queries);

	if (!wanted)
		return -ENOMEM;
	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		wanted[i] = job->io[i].o != 0;
	return send_plan(u, job, wanted, ret);
}

/* The job's plan, on the device. */
static int ready_plan(struct upload *u, const struct backend_job *job,
		      const struct batch_need *need, struct batch_plan **ret)
{
	struct batch *b = u->b;
	bool all = need->n_wanted == job->tree->n_queries;
	int r = 0;

	*ret = all ? plan_find(b, job->plan_id, job->shape) : NULL;
	if (!*ret && job->advanced && !(all && ahead_find(b, job)))
		r = -ESTALE;
	else if (!*ret)
		r = all ? send_plan(u, job, NULL, ret) : send_plan_of_wanted(u, job, ret);
	if (!r)
		r = queue_grow(&b->queue, &b->parts,
			       (uint64_t)(*ret)->n_parts * shape_row_heads(job->shape) *
				       (job->shape->head_dim + 2) * sizeof(float));
	return r;
}

void job_count(struct batch *b, const struct backend_job *job, const struct batch_plan *plan)
{
	uint64_t key_bytes = kv_token_bytes(job->shape) * backend_job_heads(job);

	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += plan->n_kv_blocks * KV_BLOCK_TOKENS * key_bytes;
	b->counters.kv_bytes_alone += job->list->kv_tokens_alone * key_bytes;
}

/* What a job is made from, before anything of it is launched. */
static int ready_job(struct upload *u, const struct backend_job *job, const struct batch_need *need,
		     struct batch_plan **ret_plan, struct chosen_job *ret_chosen)
{
	struct batch_plan *plan = NULL;
	size_t patches;
	int r = job->chosen ? chosen_ready(u, job, ret_chosen) : ready_plan(u, job, need, &plan);

	*ret_plan = plan;
	if (r || !plan || !plan->growth.n_patches)
		return r;
	patches = align_up(plan->growth.n_patches * sizeof(struct device_patch));
	return upload_grow(u, u->host_used + u->host_due + patches);
}

int batch_launch(struct batch *b, const struct layer *layer)
{
	return queue_expect(&b->queue, layer_launch(layer, queue_to(&b->queue)));
}

/* Schedules are made between what comes before attention and what comes behind it. */
static int launch_chosen(struct upload *u, const struct backend_job *job,
			 const struct chosen_job *chosen, const struct tables *t,
			 const struct layer *layer)
{
	struct layer before = {.inbound = layer->inbound};
	struct layer behind = {.outbound = layer->outbound, .finish = layer->finish};
	int r = batch_launch(u->b, &before);

	if (!r)
		r = run_chosen(u, job, chosen, t);
	return r ? r : batch_launch(u->b, &behind);
}

/* Launches that are to be a chain. Who only appends needs no plan. finish: NULL, or the batch's, of
 * its last job. */
int job_run(struct upload *u, const struct backend_job *job, const struct batch_need *need,
	    const struct device_finish *finish)
{
	bool wanted = job->list->n_rows && need->n_wanted;
	struct batch_plan *plan = NULL;
	struct layer layer = {.finish = finish};
	struct device_outbound outbound;
	struct device_attend attend;
	struct device_inbound in;
	struct chosen_job chosen;
	struct tables tables;
	int r = wanted ? ready_job(u, job, need, &plan, &chosen) : 0;

	if (r)
		return r;
	tables_make(u, job, &need->place, &tables);
	in = make_inbound(u, job, plan, need, &tables);
	layer.inbound = &in;
	if (!wanted)
		return batch_launch(u->b, &layer);
	if (!tables.lse_to) {
		outbound = make_outbound(job, &tables);
		layer.outbound = &outbound;
	}
	if (job->chosen)
		return launch_chosen(u, job, &chosen, &tables, &layer);
	plan_use(u->b, plan);
	job_count(u->b, job, plan);
	u->plan = plan;
	attend = make_attend(u->b, job, plan, &tables);
	layer.attend = &attend;
	r = batch_launch(u->b, &layer);
	if (!r && tables.lse_to)
		r = add_exchange(u, job, &tables);
	if (r)
		plan->plan_id = 0; /* the tokens that it took in are not on the device */
	return r;
}

int job_ready(struct upload *u, const struct backend_job *job, const struct batch_need *need,
	      struct device_inbound *ret_in, struct device_attend *ret_attend)
{
	struct batch_plan *plan = NULL;
	struct tables tables;
	int r = ready_job(u, job, need, &plan, NULL);

	if (r)
		return r;
	tables_make(u, job, &need->place, &tables);
	*ret_in = make_inbound(u, job, plan, need, &tables);
	plan_use(u->b, plan);
	u->plan = plan;
	*ret_attend = make_attend(u->b, job, plan, &tables);
	return 0;
}

/* The same of one that a launch stands for, which has all but the tables. */
void job_call(struct upload *u, const struct backend_job *job, const struct batch_need *need)
{
	struct batch_plan *plan = plan_find(u->b, job->plan_id, job->shape);
	struct device_inbound in;
	struct tables tables;

	tables_make(u, job, &need->place, &tables);
	in = make_inbound(u, job, plan, need, &tables);
	plan->used = ++u->b->uses;
	job_count(u->b, job, plan);
	u->plan = plan;
	stand_call(u->b, &in);
}
