/* batch.c - see batch.h. */
#include "batch.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG2_E 1.4426950408889634
#define ALIGN 256u

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static void say(char *error, size_t error_bytes,
						      const char *format, ...)
{
	va_list args;

	if (!error || error_bytes == 0)
		return;
	va_start(args, format);
	vsnprintf(error, error_bytes, format, args);
	va_end(args);
}

static bool check_shape(const struct work_shape *s, char *error, size_t error_bytes)
{
	if (s->n_layers == 0 || s->n_kv_heads == 0 || s->n_q_heads == 0)
		say(error, error_bytes, "a model needs layers, query heads and KV heads");
	else if (s->n_q_heads % s->n_kv_heads != 0)
		say(error, error_bytes, "%u query heads are no multiple of %u KV heads",
		    s->n_q_heads, s->n_kv_heads);
	else if (s->n_q_heads / s->n_kv_heads > 16)
		say(error, error_bytes, "%u query heads to a KV head; at most 16 can be done",
		    s->n_q_heads / s->n_kv_heads);
	else if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256)
		say(error, error_bytes,
		    "head_dim %u is not 64, 128 or 256, which the GPU computes; backend = cpu "
		    "takes it",
		    s->head_dim);
	else if (s->page_tokens != 16 && s->page_tokens != 32 && s->page_tokens != 64)
		say(error, error_bytes, "page_tokens %u is not 16, 32 or 64", s->page_tokens);
	else if (s->dtype == WORK_FP32)
		say(error, error_bytes,
		    "dtype fp32 is not computed on the GPU: use fp16 or bf16, or backend = cpu");
	else if (s->dtype != WORK_FP16 && s->dtype != WORK_BF16)
		say(error, error_bytes, "dtype %d is not fp16 or bf16", (int)s->dtype);
	else
		return true;
	return false;
}

uint64_t batch_page_bytes(const struct pool *pool, const struct work_shape *shape, char *error,
			  size_t error_bytes)
{
	uint64_t bytes;

	if (!check_shape(shape, error, error_bytes))
		return 0;
	bytes = 4 * (uint64_t)shape->head_dim * shape->page_tokens;
	if (__builtin_mul_overflow(bytes, shape->n_kv_heads, &bytes) ||
	    __builtin_mul_overflow(bytes, shape->n_layers, &bytes) || bytes > pool->extent_bytes) {
		say(error, error_bytes,
		    "a page of %u tokens, %u layers and %u KV heads is larger than an extent of "
		    "%llu bytes",
		    shape->page_tokens, shape->n_layers, shape->n_kv_heads,
		    (unsigned long long)pool->extent_bytes);
		return 0;
	}
	return bytes;
}

static struct program_pages pages_of(const struct batch *b, const struct work_shape *shape)
{
	uint64_t bytes = batch_page_bytes(b->pool, shape, NULL, 0);

	return (struct program_pages){
		.per_extent = (uint32_t)(b->pool->extent_bytes / bytes),
		.page_sources = bytes / DEVICE_SOURCE_BYTES,
		.extent_sources = b->pool->extent_bytes / DEVICE_SOURCE_BYTES,
	};
}

static uint32_t source_of(const struct work_shape *shape, const struct program_pages *pages,
			  uint32_t page, uint32_t row)
{
	uint64_t at = page / pages->per_extent * pages->extent_sources +
		      page % pages->per_extent * pages->page_sources;

	return (uint32_t)(at + row / DEVICE_GROUP_TOKENS * DEVICE_GROUP_TOKENS * 4 *
				       shape->head_dim / DEVICE_SOURCE_BYTES);
}

static uint64_t head_bytes_of(const struct work_shape *shape)
{
	return (uint64_t)shape->page_tokens * 4 * shape->head_dim;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Grows a buffer; what runs may be using the old one. */
static int grow(struct batch *b, struct batch_buffer *buffer, size_t bytes, bool host)
{
	void *at = NULL;

	if (bytes <= buffer->bytes)
		return 0;
	bytes += bytes / 2;
	if (cudaStreamSynchronize(b->stream) != cudaSuccess)
		return -EIO;
	if ((host ? cudaMallocHost(&at, bytes) : cudaMalloc(&at, bytes)) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	if (host)
		cudaFreeHost(buffer->at);
	else
		cudaFree(buffer->at);
	*buffer = (struct batch_buffer){at, bytes};
	return 0;
}

int batch_init(struct batch *b, struct pool *pool, uint32_t n_blocks, bool wide)
{
	*b = (struct batch){.pool = pool, .n_blocks = n_blocks, .wide = wide};
	if (cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaMalloc((void **)&b->ticket, 2 * sizeof(*b->ticket)) != cudaSuccess ||
	    cudaMemsetAsync(b->ticket, 0, 2 * sizeof(*b->ticket), b->stream) != cudaSuccess)
		return -ENOMEM;
	for (uint32_t i = 0; i < BATCH_FRAMES; i++) {
		struct batch_frame *f = &b->frames[i];

		if (cudaEventCreate((cudaEvent_t *)&f->begin) != cudaSuccess ||
		    cudaEventCreate((cudaEvent_t *)&f->end) != cudaSuccess)
			return -ENOMEM;
	}
	return 0;
}

void batch_done(struct batch *b)
{
	if (b->stream)
		cudaStreamSynchronize(b->stream);
	for (uint32_t i = 0; i < BATCH_FRAMES; i++) {
		cudaFreeHost(b->frames[i].host.at);
		cudaFree(b->frames[i].device.at);
		if (b->frames[i].begin)
			cudaEventDestroy(b->frames[i].begin);
		if (b->frames[i].end)
			cudaEventDestroy(b->frames[i].end);
	}
	for (uint32_t i = 0; i < BATCH_PLANS; i++)
		cudaFree(b->plans[i].device.at);
	cudaFree(b->parts.at);
	cudaFree(b->ticket);
	program_done(&b->program);
	if (b->stream)
		cudaStreamDestroy(b->stream);
	*b = (struct batch){0};
}

/* ---- what goes up with a batch ----------------------------------------------------------------------------------- */

/* A frame being filled. Copies go to where they belong on the device in order of the stream. */
struct upload {
	struct batch *b;
	struct batch_frame *frame;
	size_t host_used, device_used;
};

static size_t align_up(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Room for a table that lives as long as the frame does; *ret_device is where upload_send takes it. */
static void *upload_table(struct upload *u, size_t bytes, uint64_t *ret_device)
{
	void *at = (char *)u->frame->host.at + u->host_used;

	*ret_device = (uintptr_t)u->frame->device.at + u->device_used;
	u->host_used += align_up(bytes);
	u->device_used += align_up(bytes);
	return at;
}

static int upload_send(struct upload *u, const void *from, uint64_t to, size_t bytes)
{
	if (bytes == 0)
		return 0;
	if (cudaMemcpyAsync((void *)(uintptr_t)to, from, bytes, cudaMemcpyHostToDevice,
			    u->b->stream) != cudaSuccess)
		return -EIO;
	return 0;
}

static size_t program_bytes(const struct program *p)
{
	size_t bytes = 0;

	for (int i = 0; i < PROGRAM_N_ARRAYS; i++)
		bytes += align_up(p->n[i] * program_entry_bytes(i));
	return bytes;
}

/* Tells the plan where its arrays are. */
static void place_program(struct batch_plan *plan, const struct program *p)
{
	uint64_t at[PROGRAM_N_ARRAYS], next = (uintptr_t)plan->device.at;

	for (int i = 0; i < PROGRAM_N_ARRAYS; i++) {
		at[i] = next;
		next += align_up(p->n[i] * program_entry_bytes(i));
	}
	plan->attend = (struct device_attend){
		.units = (const void *)(uintptr_t)at[PROGRAM_UNITS],
		.slots = (const void *)(uintptr_t)at[PROGRAM_SLOTS],
		.sources = (const void *)(uintptr_t)at[PROGRAM_SOURCES],
		.firsts = (const void *)(uintptr_t)at[PROGRAM_FIRSTS],
		.dests = (const void *)(uintptr_t)at[PROGRAM_DESTS],
		.merges = (const void *)(uintptr_t)at[PROGRAM_MERGES],
		.n_units = p->n[PROGRAM_UNITS],
		.n_slots = p->n[PROGRAM_SLOTS],
		.n_dests = p->n[PROGRAM_DESTS],
		.n_merges = p->n[PROGRAM_MERGES],
	};
	plan->n_parts = p->n_parts;
	plan->n_groups = p->n_groups;
}

static int send_program(struct upload *u, struct batch_plan *plan, const struct program *p)
{
	char *host = (char *)u->frame->host.at + u->host_used;
	size_t at = 0;

	for (int i = 0; i < PROGRAM_N_ARRAYS; i++) {
		size_t bytes = p->n[i] * program_entry_bytes(i);

		if (bytes)
			memcpy(host + at, p->arrays[i].at, bytes);
		at += align_up(bytes);
	}
	u->host_used += at;
	return upload_send(u, host, (uintptr_t)plan->device.at, at);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static struct batch_plan *find_plan(struct batch *b, uint64_t plan_id,
				    const struct work_shape *shape)
{
	for (uint32_t i = 0; plan_id && i < BATCH_PLANS; i++) {
		struct batch_plan *plan = &b->plans[i];

		if (plan->plan_id == plan_id && memcmp(&plan->shape, shape, sizeof(*shape)) == 0)
			return plan;
	}
	return NULL;
}

static struct batch_plan *oldest_plan(struct batch *b)
{
	struct batch_plan *oldest = &b->plans[0];

	for (uint32_t i = 1; i < BATCH_PLANS; i++) {
		if (b->plans[i].used < oldest->used)
			oldest = &b->plans[i];
	}
	return oldest;
}

/* False where all outputs are wanted; else which. */
static bool find_wanted(const struct backend_job *job, bool *wanted)
{
	bool some = false;

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		wanted[i] = job->io[i].o != 0;
		some = some || !wanted[i];
	}
	return some;
}

/* Makes a program in b->program and a plan that has room for it. */
static int make_plan(struct batch *b, const struct backend_job *job, const bool *wanted,
		     struct batch_plan **ret)
{
	struct batch_plan *plan = oldest_plan(b);
	struct program_want want = {
		.shape = job->shape,
		.list = job->list,
		.wanted = wanted,
		.pages = pages_of(b, job->shape),
		.n_blocks = b->n_blocks,
		.wide = b->wide && job->shape->head_dim <= 128,
	};
	int r = program_make(&b->program, &want);

	if (r)
		return r;
	plan->plan_id = 0;
	r = grow(b, &plan->device, program_bytes(&b->program), false);
	if (r)
		return r;
	plan->plan_id = wanted ? 0 : job->plan_id;
	memcpy(&plan->shape, job->shape, sizeof(plan->shape));
	place_program(plan, &b->program);
	*ret = plan;
	return 0;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static bool io_aligned(const struct backend_job *job)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		const struct backend_io *io = &job->io[i];

		all |= io->q | io->k | io->v | io->o | io->q_stride | io->k_stride | io->v_stride |
		       io->o_stride;
	}
	return all % 16 == 0;
}

static struct device_shape device_shape_of(const struct backend_job *job)
{
	const struct work_shape *s = job->shape;

	return (struct device_shape){
		.head_dim = s->head_dim,
		.bf16 = s->dtype == WORK_BF16,
		.n_kv_heads = s->n_kv_heads,
		.group = s->n_q_heads / s->n_kv_heads,
		.head_bytes = head_bytes_of(s),
		.scale_log2 = (float)(s->scale * LOG2_E),
		.aligned = io_aligned(job),
	};
}

static char *layer_of(const struct batch *b, const struct backend_job *job)
{
	uint64_t at =
		b->pool->base + job->layer * head_bytes_of(job->shape) * job->shape->n_kv_heads;

	return (char *)(uintptr_t)at;
}

static uint32_t count_tokens(const struct backend_job *job)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		for (uint32_t s = 0; s < job->io[i].n_slots; s++)
			n += job->io[i].slots[s].count;
	}
	return n;
}

static void fill_tokens(const struct batch *b, const struct backend_job *job,
			struct device_token *at)
{
	struct program_pages pages = pages_of(b, job->shape);

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		const struct backend_io *io = &job->io[i];
		uint64_t token = 0;

		for (uint32_t s = 0; s < io->n_slots; s++) {
			const struct work_slice *slice = &io->slots[s];

			for (uint32_t j = 0; j < slice->count; j++, token++) {
				uint32_t row = (uint32_t)slice->first + j;

				*at++ = (struct device_token){
					.k = io->k + token * io->k_stride,
					.v = io->v + token * io->v_stride,
					.source = source_of(job->shape, &pages, slice->page, row),
					.row = row % DEVICE_GROUP_TOKENS,
				};
			}
		}
	}
}

static void fill_rows(const struct backend_job *job, struct device_row *at)
{
	for (uint32_t i = 0; i < job->list->n_rows; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct backend_io *io = &job->io[row->query];

		at[i] = (struct device_row){
			.q = io->q + row->token * io->q_stride,
			.o = io->o ? io->o + row->token * io->o_stride : 0,
			.lse = io->o && io->lse ? io->lse + row->token * io->lse_stride : 0,
			.pos = row->pos,
		};
	}
}

static int run_append(struct upload *u, const struct backend_job *job)
{
	struct device_append append = {.shape = device_shape_of(job),
				       .pool = layer_of(u->b, job),
				       .n_tokens = count_tokens(job)};
	size_t bytes = append.n_tokens * sizeof(struct device_token);
	struct device_token *tokens;
	uint64_t to;
	int r;

	if (append.n_tokens == 0)
		return 0;
	tokens = upload_table(u, bytes, &to);
	fill_tokens(u->b, job, tokens);
	append.tokens = (const void *)(uintptr_t)to;
	r = upload_send(u, tokens, to, bytes);
	return r ? r : device_append(&append, u->b->stream) ? -EIO : 0;
}

static int run_attend(struct upload *u, const struct backend_job *job,
		      const struct batch_plan *plan)
{
	struct batch *b = u->b;
	struct device_attend attend = plan->attend;
	size_t bytes = job->list->n_rows * sizeof(struct device_row);
	uint64_t to, entries = (uint64_t)plan->n_parts * job->shape->n_q_heads;
	struct device_row *rows = upload_table(u, bytes, &to);
	int r;

	fill_rows(job, rows);
	r = upload_send(u, rows, to, bytes);
	if (r)
		return r;
	attend.shape = device_shape_of(job);
	attend.rows = (const void *)(uintptr_t)to;
	attend.n_rows = job->list->n_rows;
	attend.pool = layer_of(b, job);
	attend.part_o = b->parts.at;
	attend.part_stats = (float *)b->parts.at + entries * job->shape->head_dim;
	attend.ticket = b->ticket;
	attend.n_blocks = b->n_blocks;
	if (b->n_last < BATCH_JOBS_KEPT)
		b->last[b->n_last++] = attend;
	if (attend.n_units && device_attend(&attend, b->stream) != cudaSuccess)
		return -EIO;
	return device_merge(&attend, b->stream) ? -EIO : 0;
}

static int run_job(struct upload *u, const struct backend_job *job)
{
	struct batch *b = u->b;
	bool *flags = malloc(job->tree->n_queries + 1), some;
	struct batch_plan *plan;
	uint64_t key_bytes = 4 * (uint64_t)job->shape->head_dim * job->shape->n_kv_heads;
	int r = flags ? run_append(u, job) : -ENOMEM;

	if (r || job->list->n_rows == 0) {
		free(flags);
		return r;
	}
	some = find_wanted(job, flags);
	plan = some ? NULL : find_plan(b, job->plan_id, job->shape);
	if (!plan) {
		r = make_plan(b, job, some ? flags : NULL, &plan);
		if (!r)
			r = grow(b, &u->frame->host,
				 u->host_used + program_bytes(&b->program) +
					 align_up(job->list->n_rows * sizeof(struct device_row)),
				 true);
		if (!r)
			r = send_program(u, plan, &b->program);
	}
	free(flags);
	if (!r)
		r = grow(b, &b->parts,
			 (uint64_t)plan->n_parts * job->shape->n_q_heads *
				 (job->shape->head_dim + 2) * sizeof(float),
			 false);
	if (r)
		return r;
	plan->used = ++b->uses;
	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += plan->n_groups * DEVICE_GROUP_TOKENS * key_bytes;
	b->counters.kv_bytes_alone += job->list->kv_tokens_alone * key_bytes;
	return run_attend(u, job, plan);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static size_t tables_bytes(const struct backend_batch *batch)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < batch->n_jobs; i++)
		bytes += align_up(count_tokens(&batch->jobs[i]) * sizeof(struct device_token)) +
			 align_up(batch->jobs[i].list->n_rows * sizeof(struct device_row));
	return bytes;
}

static void frame_count(struct batch *b, struct batch_frame *frame)
{
	float ms = 0;

	if (frame->counted || frame->id == 0)
		return;
	frame->counted = true;
	if (cudaEventElapsedTime(&ms, frame->begin, frame->end) == cudaSuccess)
		b->counters.busy_ns += (uint64_t)(ms * 1e6);
	b->done_id = frame->id > b->done_id ? frame->id : b->done_id;
}

static int frame_take(struct batch *b, size_t bytes, struct upload *ret)
{
	struct batch_frame *frame = &b->frames[(b->last_id + 1) % BATCH_FRAMES];
	int r;

	if (frame->id && !frame->counted) {
		if (cudaEventSynchronize(frame->end) != cudaSuccess)
			return -EIO;
		frame_count(b, frame);
	}
	r = grow(b, &frame->host, bytes, true);
	if (!r)
		r = grow(b, &frame->device, bytes, false);
	if (!r && cudaEventRecord(frame->begin, b->stream) != cudaSuccess)
		r = -EIO;
	*ret = (struct upload){.b = b, .frame = frame};
	return r;
}

static int check_batch(const struct batch *b, const struct backend_batch *batch)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct work_shape *shape = batch->jobs[i].shape;

		if (batch_page_bytes(b->pool, shape, NULL, 0) == 0)
			return -EINVAL;
		if (device_attend_init(shape->head_dim, shape->dtype == WORK_BF16) != cudaSuccess)
			return -EIO;
	}
	return 0;
}

int batch_submit(struct batch *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	struct upload u;
	int r = b->failed ? -EIO : check_batch(b, batch);

	if (r)
		return r;
	r = frame_take(b, tables_bytes(batch), &u);
	b->n_last = 0;
	for (uint32_t i = 0; i < batch->n_jobs && !r; i++)
		r = run_job(&u, &batch->jobs[i]);
	if (!r && cudaEventRecord(u.frame->end, b->stream) != cudaSuccess)
		r = -EIO;
	if (r) {
		b->failed = b->failed || r == -EIO;
		return r;
	}
	u.frame->id = ++b->last_id;
	u.frame->counted = false;
	b->counters.batches++;
	*ret_id = b->last_id;
	return 0;
}

int batch_completed(struct batch *b, uint64_t *ret_id)
{
	while (b->done_id < b->last_id && !b->failed) {
		struct batch_frame *frame = &b->frames[(b->done_id + 1) % BATCH_FRAMES];
		cudaError_t r = cudaEventQuery(frame->end);

		if (r == cudaErrorNotReady)
			break;
		if (r == cudaSuccess)
			frame_count(b, frame);
		else
			b->failed = true;
	}
	if (b->failed)
		return -EIO;
	*ret_id = b->done_id;
	return 0;
}

int batch_move(struct batch *b, const struct work_shape *shape, const struct backend_move *moves,
	       uint32_t n)
{
	struct program_pages pages;
	bool wrong = false;

	if (batch_page_bytes(b->pool, shape, NULL, 0) == 0)
		return -EINVAL;
	pages = pages_of(b, shape);
	for (uint32_t i = 0; i < n; i++) {
		const struct backend_move *move = &moves[i];
		struct device_move to = {
			.pool = (char *)(uintptr_t)b->pool->base,
			.head_bytes = head_bytes_of(shape),
			.head_dim = shape->head_dim,
			.n_heads = shape->n_layers * shape->n_kv_heads,
			.from = source_of(shape, &pages, move->from_page, move->from_row),
			.to = source_of(shape, &pages, move->to_page, move->to_row),
			.from_row = move->from_row % DEVICE_GROUP_TOKENS,
			.to_row = move->to_row % DEVICE_GROUP_TOKENS,
		};

		wrong = wrong || device_move(&to, b->stream) != cudaSuccess;
	}
	if (wrong || cudaStreamSynchronize(b->stream) != cudaSuccess) {
		b->failed = true;
		return -EIO;
	}
	return 0;
}
