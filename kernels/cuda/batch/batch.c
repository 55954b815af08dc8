/* batch.c - see batch.h. */
#include "batch_chosen.h"
#include "batch_impl.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_A_QUERY 2048u
#define BUS_BYTES_A_NS 40u
/* From the first kernel's begin until attention is on all multiprocessors, but for what comes
 * across the bus. */
#define SETTLE_NS UINT64_C(4000)

int batch_init(struct batch *b, struct pool *pool, const struct costs *costs, uint32_t n_blocks,
	       bool wide)
{
	*b = (struct batch){.pool = pool, .costs = costs, .wide = wide};
	b->n_blocks = b->all_blocks = n_blocks;
	pthread_mutex_init(&b->ahead.lock, NULL);
	if (cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaMallocHost((void **)&b->clocks, BATCH_FRAMES * sizeof(*b->clocks)) != cudaSuccess ||
	    cudaMallocHost((void **)&b->tells, BATCH_FRAMES * sizeof(*b->tells)) != cudaSuccess ||
	    cudaMalloc((void **)&b->ticket, 2 * sizeof(*b->ticket)) != cudaSuccess ||
	    cudaMemsetAsync(b->ticket, 0, 2 * sizeof(*b->ticket), b->stream) != cudaSuccess)
		return -ENOMEM;
	memset(b->clocks, 0, BATCH_FRAMES * sizeof(*b->clocks));
	memset(b->tells, 0, BATCH_FRAMES * sizeof(*b->tells));
	for (uint32_t i = 0; i < BATCH_FRAMES; i++) {
		b->frames[i].clock = &b->clocks[i];
		b->frames[i].device = &b->staged[i % BATCH_STAGED];
	}
	return stand_init(b);
}

void batch_done(struct batch *b)
{
	stand_leave(b);
	if (b->stream)
		cudaStreamSynchronize(b->stream);
	for (uint32_t i = 0; i < BATCH_FRAMES; i++)
		cudaFreeHost(b->frames[i].host.at);
	for (uint32_t i = 0; i < BATCH_STAGED; i++)
		cudaFree(b->staged[i].at);
	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		cudaFree(b->plans[i].device.at);
		plan_drop_tails(&b->plans[i]);
	}
	ahead_done(b);
	cudaFree(b->parts.at);
	cudaFree(b->chosen.units.at);
	cudaFree(b->chosen.programs.at);
	cudaFree(b->chosen.tables.at);
	cudaFree(b->ticket);
	cudaFreeHost(b->clocks);
	cudaFreeHost(b->tells);
	launch_chain_done(&b->chain);
	stand_done(b);
	free(b->needs);
	free(b->hosts);
	program_done(&b->program);
	peer_free(b->peer);
	if (b->stream)
		cudaStreamDestroy(b->stream);
	*b = (struct batch){0};
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static int send_program(struct upload *u, struct batch_plan *plan, const struct program *p)
{
	size_t bytes = plan_bytes(p), at = 0;
	char *host;
	int r = batch_grow(u->b, &u->frame->host, u->host_used + bytes + u->host_due, true);

	if (r)
		return r;
	host = upload_host(u, bytes);
	for (int i = 0; i < PROGRAM_N_ARRAYS; i++) {
		size_t n = p->n[i] * program_entry_bytes(i);

		if (n)
			memcpy(host + at, p->arrays[i].at, n);
		at += align_up(n);
	}
	return batch_bring(u->b, plan->device.at, host, bytes);
}

static char *layer_of(const struct batch *b, const struct backend_job *job)
{
	uint64_t at =
		b->pool->base + job->layer * shape_head_bytes(job->shape) * job->shape->n_kv_heads;

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
		.n_rows = t->lse_to ? 2 * job->list->n_rows : job->list->n_rows,
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
		u->frame->bus_ns += ((uint64_t)in.n_copies * in.copy_bytes +
				     in.n_tokens * 4 * (uint64_t)job->shape->n_kv_heads *
					     job->shape->head_dim) /
				    BUS_BYTES_A_NS;
	u->b->last_in = in;
	return in;
}

static int run_attend(struct upload *u, const struct backend_job *job,
		      const struct batch_plan *plan, const struct tables *t)
{
	struct batch *b = u->b;
	struct device_attend attend = plan->attend;
	uint64_t entries = (uint64_t)plan->n_parts * job->shape->n_q_heads;

	attend.shape = shape_on_device(job->shape);
	attend.shape.n_kv_heads = backend_job_heads(job);
	attend.rows = (const void *)(uintptr_t)t->rows_to;
	attend.n_rows = job->list->n_rows;
	attend.pool = layer_of(b, job) + job->head * attend.shape.head_bytes;
	attend.part_o = b->parts.at;
	attend.part_stats = (float *)b->parts.at + entries * job->shape->head_dim;
	attend.ticket = b->ticket;
	attend.patched = t->patched;
	attend.n_blocks = b->n_blocks;
	b->last = attend;
	b->last_exchange.n_rows = 0;
	b->n_last++;
	if (attend.n_units && batch_expect(b, device_attend(&attend, b->stream)) != 0)
		return -EIO;
	return batch_expect(b, device_merge(&attend, b->stream));
}

/* Of chosen blocks: no plan, no partials. */
static int run_chosen(struct upload *u, const struct backend_job *job,
		      const struct chosen_job *chosen, const struct tables *t)
{
	struct batch *b = u->b;
	struct device_attend attend = {
		.shape = shape_on_device(job->shape),
		.rows = (const void *)(uintptr_t)t->rows_to,
		.n_rows = job->list->n_rows,
		.pool = layer_of(b, job),
		.ticket = b->ticket,
		.n_blocks = b->n_blocks,
	};

	b->last_exchange.n_rows = 0;
	b->n_last++;
	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += chosen->n_slots * DEVICE_SLOT_GROUPS * DEVICE_GROUP_TOKENS *
				     4 * (uint64_t)job->shape->head_dim;
	b->counters.kv_bytes_alone += job->list->kv_tokens_alone * 4 *
				      (uint64_t)job->shape->head_dim * job->shape->n_kv_heads;
	return chosen_launch(u, chosen, &attend);
}

/* What all devices have of the rows is to become one, where it is wanted. */
static int add_exchange(struct upload *u, const struct backend_job *job, const struct tables *t)
{
	struct batch *b = u->b;
	struct peer_rows rows = {
		.o = t->o_to,
		.lse = t->lse_to,
		.dests = t->rows_to + job->list->n_rows * sizeof(struct device_row),
		.n_rows = job->list->n_rows,
		.n_heads = job->shape->n_q_heads,
		.head_dim = job->shape->head_dim,
		.bf16 = job->shape->dtype == WORK_BF16,
	};

	peer_describe(b, &rows, &b->last_exchange);
	return peer_add(b->peer, &rows);
}

/* Rows whose O went to device memory on the way to where it is wanted. */
static int run_outbound(struct upload *u, const struct backend_job *job, const struct tables *t)
{
	uint32_t n = 0;

	if (!t->o)
		return 0;
	for (uint32_t i = 0; i < job->list->n_rows; i++) {
		if (t->o[i].to)
			t->o[n++] = t->o[i];
	}
	return batch_expect(u->b, device_outbound(t->o, n,
						  backend_job_heads(job) *
							  (uint32_t)shape_group_bytes(job->shape),
						  u->b->stream));
}

/* Makes a plan; one that the device does not get is nobody's. */
static int send_plan(struct upload *u, const struct backend_job *job, const bool *wanted,
		     struct batch_plan **ret)
{
	int r = plan_prepare(u->b, job, wanted, ret);

	if (r)
		return r;
	r = send_program(u, *ret, &u->b->program);
	if (r)
		(*ret)->plan_id = 0;
	return r;
}

/* A plan of those rows alone whose output is wanted. */
static int send_plan_of_wanted(struct upload *u, const struct backend_job *job,
			       struct batch_plan **ret)
{
	bool *wanted = malloc(job->tree->n_queries);
	int r;

	if (!wanted)
		return -ENOMEM;
	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		wanted[i] = job->io[i].o != 0;
	r = send_plan(u, job, wanted, ret);
	free(wanted);
	return r;
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
		r = batch_grow(b, &b->parts,
			       (uint64_t)(*ret)->n_parts * job->shape->n_q_heads *
				       (job->shape->head_dim + 2) * sizeof(float),
			       false);
	return r;
}

static void count_job(struct batch *b, const struct backend_job *job, const struct batch_plan *plan)
{
	uint64_t key_bytes = 4 * (uint64_t)job->shape->head_dim * backend_job_heads(job);

	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += plan->n_groups * DEVICE_GROUP_TOKENS * key_bytes;
	b->counters.kv_bytes_alone += job->list->kv_tokens_alone * key_bytes;
}

/* Launches that are to be a chain. Who only appends needs no plan. */
static int run_job(struct upload *u, const struct backend_job *job, const struct batch_need *need)
{
	bool wanted = job->list->n_rows && need->n_wanted;
	struct batch_plan *plan = NULL;
	struct device_inbound in;
	struct chosen_job chosen;
	struct tables tables;
	int r = 0;

	if (wanted)
		r = job->chosen ? chosen_ready(u, job, &chosen) : ready_plan(u, job, need, &plan);
	if (!r && plan && plan->growth.n_patches)
		r = batch_grow(u->b, &u->frame->host,
			       u->host_used + u->host_due +
				       align_up(plan->growth.n_patches *
						sizeof(struct device_patch)),
			       true);
	if (r)
		return r;
	tables_make(u, job, &need->place, &tables);
	in = make_inbound(u, job, plan, need, &tables);
	r = batch_expect(u->b, device_inbound(&in, u->b->stream));
	if (r || !wanted)
		return r;
	if (job->chosen) {
		r = run_chosen(u, job, &chosen, &tables);
		return r ? r : run_outbound(u, job, &tables);
	}
	plan->used = plan->plan_id ? ++u->b->uses : 0;
	count_job(u->b, job, plan);
	u->plan = plan;
	r = run_attend(u, job, plan, &tables);
	if (!r && tables.lse_to)
		return add_exchange(u, job, &tables);
	return r ? r : run_outbound(u, job, &tables);
}

/* The same of one that a launch stands for, which has all but the tables. */
static void call_job(struct upload *u, const struct backend_job *job, const struct batch_need *need)
{
	struct batch_plan *plan = plan_find(u->b, job->plan_id, job->shape);
	struct device_inbound in;
	struct tables tables;

	tables_make(u, job, &need->place, &tables);
	in = make_inbound(u, job, plan, need, &tables);
	plan->used = ++u->b->uses;
	count_job(u->b, job, plan);
	u->plan = plan;
	stand_call(u->b, &in);
}

/* ---- batches -------------------------------------------------------------------------------- */

static bool frame_is_done(const struct batch_frame *frame)
{
	return __atomic_load_n(&frame->clock->id, __ATOMIC_ACQUIRE) == frame->id;
}

static void frame_count(struct batch *b, struct batch_frame *frame)
{
	const struct device_clock *clock = frame->clock;

	frame->counted = true;
	if (clock->begin_ns && clock->end_ns > clock->begin_ns)
		b->counters.busy_ns += clock->end_ns - clock->begin_ns;
	b->counters.exchange_ns = clock->exchanged.ns;
	b->counters.exchange_bytes = clock->exchanged.given_bytes + peer_gathered_bytes(b->peer);
	b->done_id = frame->id > b->done_id ? frame->id : b->done_id;
}

static int find_needs(struct batch *b, const struct backend_batch *batch, size_t *ret_host,
		      size_t *ret_device)
{
	*ret_host = *ret_device = 0;
	if (batch->n_jobs > b->needs_room) {
		struct batch_need *needs = realloc(b->needs, batch->n_jobs * sizeof(*needs));

		if (!needs)
			return -ENOMEM;
		b->needs = needs;
		b->needs_room = batch->n_jobs;
	}
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		b->needs[i] = tables_need(b, &batch->jobs[i]);
		tables_count(&batch->jobs[i], &b->needs[i], ret_host, ret_device);
	}
	return 0;
}

static int frame_take(struct batch *b, size_t host, size_t device, struct upload *ret)
{
	struct batch_frame *frame = &b->frames[(b->last_id + 1) % BATCH_FRAMES];
	int r;

	if (frame->id && !frame->counted) {
		if (batch_await(b) != 0)
			return -EIO;
		frame_count(b, frame);
	}
	r = batch_grow(b, &frame->host, host, true);
	if (!r)
		r = batch_grow(b, frame->device, device, false);
	frame->clock->begin_ns = 0;
	frame->begun_ns = frame->bus_ns = 0;
	*ret = (struct upload){.b = b, .frame = frame, .host_due = host};
	return r;
}

static int check_batch(struct batch *b, const struct backend_batch *batch)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct work_shape *shape = batch->jobs[i].shape;

		if (batch_page_bytes(b->pool, shape, NULL, 0) == 0)
			return -EINVAL;
		if (batch_expect(b, device_attend_init(shape->head_dim,
						       shape->dtype == WORK_BF16)) != 0)
			return -EIO;
	}
	return 0;
}

int batch_add_host(struct batch *b, uint64_t base, uint64_t bytes)
{
	struct batch_host *hosts = realloc(b->hosts, (b->n_hosts + 1) * sizeof(*hosts));

	if (!hosts)
		return -ENOMEM;
	b->hosts = hosts;
	hosts[b->n_hosts++] = (struct batch_host){base, bytes};
	return 0;
}

void batch_drop_host(struct batch *b, uint64_t base)
{
	for (uint32_t i = 0; i < b->n_hosts; i++) {
		if (b->hosts[i].base == base) {
			b->hosts[i] = b->hosts[--b->n_hosts];
			return;
		}
	}
}

/* Before the batch is called or launched. */
static void put_tells(struct batch *b, const struct backend_batch *batch, uint64_t id)
{
	struct device_tells *tells = &b->tells[id % BATCH_FRAMES];

	tells->n = batch->n_tells < DEVICE_TELLS ? batch->n_tells : DEVICE_TELLS;
	for (uint32_t i = 0; i < tells->n; i++) {
		tells->words[i].address = batch->tells[i].address;
		tells->words[i].value = batch->tells[i].value;
	}
	tells->id = id;
}

/* The batch is done when all that was launched is. */
static int finish(struct batch *b, uint64_t id)
{
	const struct peer_state *state = peer_state_of(b->peer);
	struct device_finish last = {.clock = b->frames[id % BATCH_FRAMES].clock,
				     .id = id,
				     .exchanged = state ? &state->exchanged : NULL,
				     .tells = &b->tells[id % BATCH_FRAMES]};

	return batch_expect(b, device_finish(&last, b->stream));
}

/* A job's launches are a chain, as buffers may grow between jobs; the last one ends with the batch,
 * unless that is concluded. */
static int run_chain(struct upload *u, const struct backend_batch *batch, uint32_t i)
{
	struct batch *b = u->b;
	int r;

	launch_chain_begin(&b->chain);
	r = run_job(u, &batch->jobs[i], &b->needs[i]);
	if (!r && i + 1 == batch->n_jobs && !b->peer)
		r = finish(b, b->last_id + 1);
	if (!r)
		return batch_expect(b, launch_chain_go(&b->chain, b->stream));
	launch_chain_drop();
	return r;
}

static int run_batch(struct upload *u, const struct backend_batch *batch)
{
	struct batch *b = u->b;
	int r = 0;

	for (uint32_t i = 0; i < batch->n_jobs && !r; i++)
		r = run_chain(u, batch, i);
	if (!r && batch->n_jobs == 0 && !b->peer)
		r = finish(b, b->last_id + 1);
	return r;
}

int batch_submit(struct batch *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	struct upload u;
	size_t host, device;
	bool called;
	int r = b->failed ? -EIO : check_batch(b, batch);

	if (!r)
		r = find_needs(b, batch, &host, &device);
	if (r)
		return r;
	called = batch->n_jobs == 1 && stand_fits(b, &batch->jobs[0], &b->needs[0], host, device);
	r = called ? 0 : stand_leave(b);
	if (!r)
		r = frame_take(b, host, device, &u);
	if (!r)
		put_tells(b, batch, b->last_id + 1);
	b->n_last = 0;
	b->uses_before = b->uses;
	if (!r && called)
		call_job(&u, &batch->jobs[0], &b->needs[0]);
	else if (!r)
		r = run_batch(&u, batch);
	if (r) {
		b->failed = b->failed || r == -EIO;
		/* Jobs before this one may be reading tables that the next batch overwrites. */
		batch_await(b);
		return r;
	}
	u.frame->id = ++b->last_id;
	u.frame->counted = false;
	b->counters.batches++;
	*ret_id = b->last_id;
	stand_next(&u, batch->n_jobs == 1 ? &batch->jobs[0] : NULL);
	return 0;
}

/* Launched one by one: the first of a graph may wait for memory. */
int batch_conclude(struct batch *b)
{
	int r = peer_conclude(b);

	if (!r)
		r = finish(b, b->last_id);
	b->failed = b->failed || r;
	return r;
}

/* A device that has failed writes nothing any more, and says so when it is asked. */
static void look_for_failure(struct batch *b)
{
	cudaError_t r;

	if (++b->n_looks % LOOKS_A_QUERY)
		return;
	r = cudaStreamQuery(b->stream);
	if (r == cudaErrorNotReady)
		cudaGetLastError();
	else
		b->failed = batch_expect(b, r) != 0;
}

int batch_completed(struct batch *b, uint64_t *ret_id)
{
	uint32_t rank;

	b->failed = b->failed || peer_is_late(b->peer, &rank);
	while (b->done_id < b->last_id && !b->failed) {
		struct batch_frame *frame = &b->frames[(b->done_id + 1) % BATCH_FRAMES];

		if (!frame_is_done(frame)) {
			look_for_failure(b);
			break;
		}
		if (stand_again(b, frame->id))
			break;
		frame_count(b, frame);
		stand_note_done(b);
	}
	if (b->failed)
		return -EIO;
	*ret_id = b->done_id;
	return 0;
}

bool batch_settled(struct batch *b, uint64_t id)
{
	struct batch_frame *frame = &b->frames[id % BATCH_FRAMES];

	if (frame->id != id || !__atomic_load_n(&frame->clock->begin_ns, __ATOMIC_RELAXED))
		return false;
	if (!frame->begun_ns)
		frame->begun_ns = batch_now_ns();
	return batch_now_ns() - frame->begun_ns >= SETTLE_NS + frame->bus_ns;
}

int batch_move(struct batch *b, const struct work_shape *shape, const struct backend_move *moves,
	       uint32_t n)
{
	struct program_pages pages;
	bool wrong = false;

	if (batch_page_bytes(b->pool, shape, NULL, 0) == 0)
		return -EINVAL;
	pages = shape_pages(b, shape);
	for (uint32_t i = 0; i < n; i++) {
		const struct backend_move *move = &moves[i];
		struct device_move to = {
			.pool = (char *)(uintptr_t)b->pool->base,
			.head_bytes = shape_head_bytes(shape),
			.head_dim = shape->head_dim,
			.n_heads = shape->n_layers * shape->n_kv_heads,
			.from = shape_source(shape, &pages, move->from_page, move->from_row),
			.to = shape_source(shape, &pages, move->to_page, move->to_row),
			.from_row = move->from_row % DEVICE_GROUP_TOKENS,
			.to_row = move->to_row % DEVICE_GROUP_TOKENS,
		};

		wrong = wrong || batch_expect(b, device_move(&to, b->stream)) != 0;
	}
	if (wrong || batch_await(b) != 0) {
		b->failed = true;
		return -EIO;
	}
	return 0;
}
