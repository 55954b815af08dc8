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
#define MERGE_ALONE 4u /* partials of a row that one warp folds */

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

/* The first that went wrong is remembered. 0 or -EIO. */
static int expect(struct batch *b, int r)
{
	if (r == cudaSuccess)
		return 0;
	if (b->error == cudaSuccess)
		b->error = r;
	return -EIO;
}

/* Grows a buffer; what runs may be using the old one. */
static int grow(struct batch *b, struct batch_buffer *buffer, size_t bytes, bool host)
{
	void *at = NULL;

	if (bytes <= buffer->bytes)
		return 0;
	bytes += bytes / 2;
	if (expect(b, cudaStreamSynchronize(b->stream)) != 0)
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

static void drop_tails(struct batch_plan *plan)
{
	free(plan->tails);
	program_growth_done(&plan->growth);
	plan->tails = NULL;
	plan->n_tails = 0;
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
	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		cudaFree(b->plans[i].device.at);
		drop_tails(&b->plans[i]);
	}
	cudaFree(b->parts.at);
	cudaFree(b->ticket);
	free(b->hosts);
	program_done(&b->program);
	if (b->stream)
		cudaStreamDestroy(b->stream);
	*b = (struct batch){0};
}

/* ---- what goes up with a batch ----------------------------------------------------------------------------------- */

/* A frame being filled: tables in pinned memory, which kernels read or copy, and device memory beside them. */
struct upload {
	struct batch *b;
	struct batch_frame *frame;
	size_t host_used, device_used;
	size_t host_due; /* of tables to come */
};

static size_t align_up(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* The kernels see pinned memory under the same address. */
static void *upload_host(struct upload *u, size_t bytes)
{
	void *at = (char *)u->frame->host.at + u->host_used;

	u->host_used += align_up(bytes);
	return at;
}

static uint64_t upload_device(struct upload *u, size_t bytes)
{
	uint64_t at = (uintptr_t)u->frame->device.at + u->device_used;

	u->device_used += align_up(bytes);
	return at;
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
	uint64_t *at = plan->arrays, next = (uintptr_t)plan->device.at;

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
		.merge_warps_log2 = p->most_parts > MERGE_ALONE ? 2 : 0,
	};
	plan->n_parts = p->n_parts;
	plan->n_groups = p->n_groups;
}

static int send_program(struct upload *u, struct batch_plan *plan, const struct program *p)
{
	size_t bytes = program_bytes(p), at = 0;
	char *host;
	int r = grow(u->b, &u->frame->host, u->host_used + bytes + u->host_due, true);

	if (r)
		return r;
	host = upload_host(u, bytes);
	for (int i = 0; i < PROGRAM_N_ARRAYS; i++) {
		size_t n = p->n[i] * program_entry_bytes(i);

		if (n)
			memcpy(host + at, p->arrays[i].at, n);
		at += align_up(n);
	}
	return expect(u->b, cudaMemcpyAsync(plan->device.at, host, bytes, cudaMemcpyHostToDevice,
					    u->b->stream));
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

/* What advancing needs outlives the program. */
static int keep_tails(struct batch_plan *plan, const struct program *p, uint32_t n_rows)
{
	drop_tails(plan);
	if (!p->tails)
		return 0;
	plan->tails = malloc((n_rows + 1) * sizeof(*plan->tails));
	if (!plan->tails || program_growth_init(&plan->growth, p) != 0) {
		drop_tails(plan);
		return -ENOMEM;
	}
	memcpy(plan->tails, p->tails, n_rows * sizeof(*plan->tails));
	plan->n_tails = n_rows;
	return 0;
}

/* One new token each, at the end of a path of its own. */
static bool may_advance(const struct backend_job *job)
{
	if (job->plan_id == 0)
		return false;
	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		if (job->tree->queries[i].n_rows != 1 || job->tree->queries[i].parents)
			return false;
	}
	return true;
}

static int advance_rows(const struct batch *b, struct batch_plan *plan,
			const struct backend_job *job)
{
	struct program_pages pages = pages_of(b, job->shape);

	for (uint32_t i = 0; i < plan->n_tails; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct work_slice *slot = job->io[row->query].slots;
		int r;

		if (job->io[row->query].n_slots != 1 || slot->count != 1)
			return -ESTALE;
		r = program_advance(&plan->tails[i], row->pos,
				    source_of(job->shape, &pages, slot->page, slot->first),
				    &plan->growth);
		if (r)
			return r;
	}
	return 0;
}

int batch_advance(struct batch *b, const struct backend_job *job)
{
	struct batch_plan *plan = find_plan(b, job->plan_id, job->shape);
	int r;

	if (!plan || plan->n_tails == 0 || plan->n_tails != job->list->n_rows)
		return -ESTALE;
	r = advance_rows(b, plan, job);
	if (r)
		plan->plan_id = 0; /* half advanced: of no use to anyone */
	return r;
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
		.tails = !wanted && may_advance(job),
	};
	int r = program_make(&b->program, &want);

	if (r)
		return r;
	plan->plan_id = 0;
	r = keep_tails(plan, &b->program, job->list->n_rows);
	if (r)
		return r;
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

static size_t row_bytes_of(const struct work_shape *shape)
{
	return (size_t)shape->n_q_heads * shape->head_dim * 2;
}

static bool in_host(struct batch *b, uint64_t address)
{
	const struct batch_host *last = &b->hosts[b->last_host];

	if (b->last_host < b->n_hosts && address - last->base < last->bytes)
		return true;
	for (uint32_t i = 0; i < b->n_hosts; i++) {
		if (address - b->hosts[i].base < b->hosts[i].bytes) {
			b->last_host = i;
			return true;
		}
	}
	return false;
}

/* What attention cannot work on where it lies. */
struct placement {
	bool stage_q; /* across the bus, or at odd addresses */
	bool stage_o; /* at odd addresses */
	bool aligned_kv;
};

static struct placement place_io(struct batch *b, const struct backend_job *job)
{
	struct placement p = {.aligned_kv = true};

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		const struct backend_io *io = &job->io[i];

		p.stage_q =
			p.stage_q || (io->o && ((io->q | io->q_stride) % 16 || in_host(b, io->q)));
		p.stage_o = p.stage_o || (io->o | io->o_stride) % 16;
		p.aligned_kv =
			p.aligned_kv && (io->k | io->v | io->k_stride | io->v_stride) % 16 == 0;
	}
	return p;
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

/* A job's tables: rows in pinned memory, and copies of what is staged. */
struct tables {
	struct device_row *rows;
	struct device_copy *q, *o; /* NULL: not staged */
	uint64_t rows_to, q_to, o_to; /* in device memory */
	bool patched; /* the plan, by what comes before attention */
};

static void fill_rows(const struct backend_job *job, const struct tables *t)
{
	size_t row_bytes = row_bytes_of(job->shape);

	for (uint32_t i = 0; i < job->list->n_rows; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct backend_io *io = &job->io[row->query];
		struct device_row *at = &t->rows[i];

		*at = (struct device_row){
			.q = io->o ? io->q + row->token * io->q_stride : 0,
			.o = io->o ? io->o + row->token * io->o_stride : 0,
			.lse = io->o && io->lse ? io->lse + row->token * io->lse_stride : 0,
			.pos = row->pos,
		};
		if (t->q) {
			t->q[i] = (struct device_copy){at->q, t->q_to + i * row_bytes};
			at->q = at->q ? t->q[i].to : 0;
		}
		if (t->o) {
			t->o[i] = (struct device_copy){t->o_to + i * row_bytes, at->o};
			at->o = at->o ? t->o[i].from : 0;
		}
	}
}

static void make_tables(struct upload *u, const struct backend_job *job,
			const struct placement *place, struct tables *ret)
{
	uint32_t n = job->list->n_rows;
	size_t row_bytes = row_bytes_of(job->shape);

	*ret = (struct tables){.rows = upload_host(u, n * sizeof(*ret->rows))};
	ret->rows_to = upload_device(u, n * sizeof(*ret->rows));
	if (place->stage_q) {
		ret->q = upload_host(u, n * sizeof(*ret->q));
		ret->q_to = upload_device(u, n * row_bytes);
	}
	if (place->stage_o) {
		ret->o = upload_host(u, n * sizeof(*ret->o));
		ret->o_to = upload_device(u, n * row_bytes);
	}
	fill_rows(job, ret);
}

/* The plan's patches; from here on the device has them. */
static const struct device_patch *take_patches(struct upload *u, struct batch_plan *plan,
					       uint32_t *ret_n)
{
	const struct program_growth *growth = plan ? &plan->growth : NULL;
	struct device_patch *patches;

	*ret_n = growth ? growth->n_patches : 0;
	if (*ret_n == 0)
		return NULL;
	patches = upload_host(u, *ret_n * sizeof(*patches));
	for (uint32_t i = 0; i < *ret_n; i++) {
		const struct program_patch *patch = &growth->patches[i];

		patches[i] = (struct device_patch){.to = plan->arrays[patch->array] + patch->offset,
						   .value = patch->value};
	}
	program_growth_written(&plan->growth);
	return patches;
}

static int run_inbound(struct upload *u, const struct backend_job *job, struct batch_plan *plan,
		       const struct placement *place, struct tables *t)
{
	struct device_inbound in = {
		.shape = device_shape_of(job),
		.copies = t->q,
		.pool = layer_of(u->b, job),
		.rows_from = t->rows,
		.rows_to = (void *)(uintptr_t)t->rows_to,
		.n_tokens = count_tokens(job),
		.n_copies = t->q ? job->list->n_rows : 0,
		.n_rows = job->list->n_rows,
		.copy_bytes = (uint32_t)row_bytes_of(job->shape),
		.aligned = place->aligned_kv,
	};
	struct device_token *tokens = upload_host(u, in.n_tokens * sizeof(*tokens));

	fill_tokens(u->b, job, tokens);
	in.tokens = tokens;
	in.patches = take_patches(u, plan, &in.n_patches);
	t->patched = in.n_patches > 0;
	return expect(u->b, device_inbound(&in, u->b->stream));
}

static int run_attend(struct upload *u, const struct backend_job *job,
		      const struct batch_plan *plan, const struct tables *t)
{
	struct batch *b = u->b;
	struct device_attend attend = plan->attend;
	uint64_t entries = (uint64_t)plan->n_parts * job->shape->n_q_heads;

	attend.shape = device_shape_of(job);
	attend.rows = (const void *)(uintptr_t)t->rows_to;
	attend.n_rows = job->list->n_rows;
	attend.pool = layer_of(b, job);
	attend.part_o = b->parts.at;
	attend.part_stats = (float *)b->parts.at + entries * job->shape->head_dim;
	attend.ticket = b->ticket;
	attend.patched = t->patched;
	attend.n_blocks = b->n_blocks;
	if (b->n_last < BATCH_JOBS_KEPT)
		b->last[b->n_last++] = attend;
	if (attend.n_units && expect(b, device_attend(&attend, b->stream)) != 0)
		return -EIO;
	return expect(b, device_merge(&attend, b->stream));
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
	return expect(u->b,
		      device_outbound(t->o, n, (uint32_t)row_bytes_of(job->shape), u->b->stream));
}

/* Makes a plan; one that the device does not get is nobody's. */
static int send_plan(struct upload *u, const struct backend_job *job, const bool *wanted,
		     struct batch_plan **ret)
{
	int r = make_plan(u->b, job, wanted, ret);

	if (r)
		return r;
	r = send_program(u, *ret, &u->b->program);
	if (r)
		(*ret)->plan_id = 0;
	return r;
}

/* The job's plan, on the device. */
static int ready_plan(struct upload *u, const struct backend_job *job, struct batch_plan **ret)
{
	struct batch *b = u->b;
	bool *flags = malloc(job->tree->n_queries + 1), some;
	int r = 0;

	if (!flags)
		return -ENOMEM;
	some = find_wanted(job, flags);
	*ret = some ? NULL : find_plan(b, job->plan_id, job->shape);
	if (!*ret)
		r = job->advanced ? -ESTALE : send_plan(u, job, some ? flags : NULL, ret);
	free(flags);
	if (!r)
		r = grow(b, &b->parts,
			 (uint64_t)(*ret)->n_parts * job->shape->n_q_heads *
				 (job->shape->head_dim + 2) * sizeof(float),
			 false);
	return r;
}

static void count_job(struct batch *b, const struct backend_job *job, const struct batch_plan *plan)
{
	uint64_t key_bytes = 4 * (uint64_t)job->shape->head_dim * job->shape->n_kv_heads;

	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += plan->n_groups * DEVICE_GROUP_TOKENS * key_bytes;
	b->counters.kv_bytes_alone += job->list->kv_tokens_alone * key_bytes;
}

static int run_job(struct upload *u, const struct backend_job *job)
{
	struct placement place = place_io(u->b, job);
	struct batch_plan *plan = NULL;
	struct tables tables;
	int r = job->list->n_rows ? ready_plan(u, job, &plan) : 0;

	if (!r && plan && plan->growth.n_patches)
		r = grow(u->b, &u->frame->host,
			 u->host_used + u->host_due +
				 align_up(plan->growth.n_patches * sizeof(struct device_patch)),
			 true);
	if (r)
		return r;
	make_tables(u, job, &place, &tables);
	r = run_inbound(u, job, plan, &place, &tables);
	if (r || !plan)
		return r;
	plan->used = ++u->b->uses;
	count_job(u->b, job, plan);
	r = run_attend(u, job, plan, &tables);
	return r ? r : run_outbound(u, job, &tables);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* Pinned and device memory that a batch's tables take at most, programs apart. */
static void count_tables(struct batch *b, const struct backend_batch *batch, size_t *ret_host,
			 size_t *ret_device)
{
	*ret_host = *ret_device = 0;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];
		struct placement place = place_io(b, job);
		uint32_t n = job->list->n_rows, n_staged = place.stage_q + (uint32_t)place.stage_o;

		*ret_host += align_up(count_tokens(job) * sizeof(struct device_token)) +
			     align_up(n * sizeof(struct device_row)) +
			     n_staged * align_up(n * sizeof(struct device_copy));
		*ret_device += align_up(n * sizeof(struct device_row)) +
			       n_staged * align_up(n * row_bytes_of(job->shape));
	}
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

static int frame_take(struct batch *b, const struct backend_batch *batch, struct upload *ret)
{
	size_t host, device;
	struct batch_frame *frame = &b->frames[(b->last_id + 1) % BATCH_FRAMES];
	int r;

	if (frame->id && !frame->counted) {
		if (expect(b, cudaEventSynchronize(frame->end)) != 0)
			return -EIO;
		frame_count(b, frame);
	}
	count_tables(b, batch, &host, &device);
	r = grow(b, &frame->host, host, true);
	if (!r)
		r = grow(b, &frame->device, device, false);
	if (!r)
		r = expect(b, cudaEventRecord(frame->begin, b->stream));
	*ret = (struct upload){.b = b, .frame = frame, .host_due = host};
	return r;
}

static int check_batch(struct batch *b, const struct backend_batch *batch)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct work_shape *shape = batch->jobs[i].shape;

		if (batch_page_bytes(b->pool, shape, NULL, 0) == 0)
			return -EINVAL;
		if (expect(b, device_attend_init(shape->head_dim, shape->dtype == WORK_BF16)) != 0)
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

int batch_submit(struct batch *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	struct upload u;
	int r = b->failed ? -EIO : check_batch(b, batch);

	if (r)
		return r;
	r = frame_take(b, batch, &u);
	b->n_last = 0;
	for (uint32_t i = 0; i < batch->n_jobs && !r; i++)
		r = run_job(&u, &batch->jobs[i]);
	if (!r)
		r = expect(b, cudaEventRecord(u.frame->end, b->stream));
	if (r) {
		b->failed = b->failed || r == -EIO;
		/* Jobs before this one may be reading tables that the next batch overwrites. */
		cudaStreamSynchronize(b->stream);
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
			b->failed = expect(b, r) != 0;
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

		wrong = wrong || expect(b, device_move(&to, b->stream)) != 0;
	}
	if (wrong || expect(b, cudaStreamSynchronize(b->stream)) != 0) {
		b->failed = true;
		return -EIO;
	}
	return 0;
}
