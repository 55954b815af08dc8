/* batch_tables.c - what goes up with a batch, and where it lies till then: addresses of rows and
 * tokens, copies, patches. See batch_impl.h. */
#include "batch_impl.h"

/* Of a batch that is done; NULL: none has so much memory. */
static struct batch_frame *frame_with_room(struct batch *b, size_t bytes)
{
	for (uint32_t i = 0; i < BATCH_FRAMES; i++) {
		struct batch_frame *frame = &b->frames[i];

		if ((!frame->id || frame->counted) && frame->host.bytes >= bytes)
			return frame;
	}
	return NULL;
}

int upload_grow(struct upload *u, size_t bytes)
{
	struct queue_buffer *own = &u->frame->host, was = *own;
	struct batch_frame *other = NULL;

	if (bytes > own->bytes && u->host_used == 0)
		other = frame_with_room(u->b, bytes);
	if (other) {
		*own = other->host;
		other->host = was;
	}
	return queue_grow_pinned(&u->b->queue, own, bytes);
}

/* The kernels see pinned memory under the same address. */
void *upload_host(struct upload *u, size_t bytes)
{
	void *at = (char *)u->frame->host.at + u->host_used;

	u->host_used += align_up(bytes);
	return at;
}

static uint64_t upload_device(struct upload *u, size_t bytes)
{
	uint64_t at = (uintptr_t)u->frame->device->at + u->device_used;

	u->device_used += align_up(bytes);
	return at;
}

static void place_query(struct batch *b, const struct backend_io *io, struct placement *p)
{
	p->stage_q = p->stage_q ||
		     (io->o && ((io->q | io->q_stride) % 16 || hosts_have(&b->hosts, io->q)));
	p->stage_o = p->stage_o || (io->o | io->o_stride) % 16;
	p->aligned_kv = p->aligned_kv && (io->k | io->v | io->k_stride | io->v_stride) % 16 == 0;
}

struct batch_need tables_need(struct batch *b, const struct backend_job *job)
{
	struct batch_need need = {.place.aligned_kv = true};

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		const struct backend_io *io = &job->io[i];

		place_query(b, io, &need.place);
		need.n_wanted += io->o != 0;
		for (uint32_t s = 0; s < io->n_slots; s++)
			need.n_tokens += io->slots[s].count;
	}
	need.place.met = job->owner != NULL;
	need.place.stage_q = need.place.stage_q || need.place.met;
	return need;
}

void tables_fill_tokens(const struct batch *b, const struct backend_job *job,
			struct device_token *at)
{
	struct pool_pages pages = shape_pages(b->pool, job->shape);

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
					.source =
						shape_source(job->shape, &pages, slice->page, row),
					.row = row % KV_BLOCK_TOKENS,
				};
			}
		}
	}
}

/* What attention has of a row waits on the device, and where it goes behind the table. */
static void exchange_row(const struct backend_job *job, const struct tables *t, uint32_t i)
{
	struct device_row *at = &t->rows[i * row_map_of(job->shape).n];

	t->rows[job_n_rows(job) + i] =
		(struct device_row){.o = at->o, .lse = at->lse, .pos = job->owner[i]};
	if (!at->o)
		return;
	at->o = t->o_to + i * shape_row_bytes(job->shape);
	at->lse = t->lse_to + (uint64_t)i * job->shape->n_q_heads * sizeof(float);
}

/* A job of some KV heads has its query heads' part of the row. */
static void skip_heads(const struct backend_job *job, struct device_row *at, struct device_copy *o)
{
	uint64_t bytes = job->head * shape_kv_block_bytes(job->shape);

	at->q += at->q ? bytes : 0;
	at->o += at->o ? bytes : 0;
	at->lse += at->lse ? job->head * (job->shape->n_q_heads / job->shape->n_kv_heads) *
				     sizeof(float)
			   : 0;
	if (o && o->to) {
		o->from += bytes;
		o->to += bytes;
	}
}

/* What the first has of all its heads becomes some of them for each. */
static void split_row(const struct backend_job *job, struct device_row *rows)
{
	struct row_map map = row_map_of(job->shape);
	uint64_t bytes = map.heads * (uint64_t)job->shape->head_dim * KV_VALUE_BYTES;

	for (uint32_t k = 1; k < map.n; k++) {
		rows[k] = rows[0];
		rows[k].q += rows[0].q ? k * bytes : 0;
		rows[k].o += rows[0].o ? k * bytes : 0;
		rows[k].lse += rows[0].lse ? k * map.heads * sizeof(float) : 0;
	}
}

static void fill_rows(const struct backend_job *job, const struct tables *t)
{
	size_t row_bytes = shape_row_bytes(job->shape);
	uint32_t n_each = row_map_of(job->shape).n;

	for (uint32_t i = 0; i < job->list->n_rows; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct backend_io *io = &job->io[row->query];
		struct device_row *at = &t->rows[i * n_each];

		*at = (struct device_row){
			.q = io->o ? io->q + row->token * io->q_stride : 0,
			.o = io->o ? io->o + row->token * io->o_stride : 0,
			.lse = io->o && io->lse ? io->lse + row->token * io->lse_stride : 0,
			.pos = row->pos,
			.low = row->low,
		};
		if (t->q) {
			t->q[i] = (struct device_copy){at->q, t->q_to + i * row_bytes};
			at->q = at->q ? t->q[i].to : 0;
		}
		if (t->o) {
			t->o[i] = (struct device_copy){t->o_to + i * row_bytes, at->o};
			at->o = at->o ? t->o[i].from : 0;
		}
		skip_heads(job, at, t->o ? &t->o[i] : NULL);
		if (t->lse_to)
			exchange_row(job, t, i);
		split_row(job, at);
	}
}

void tables_make(struct upload *u, const struct backend_job *job, const struct placement *place,
		 struct tables *ret)
{
	uint32_t n = job->list->n_rows, n_table = job_n_rows(job) + (place->met ? n : 0);
	size_t row_bytes = shape_row_bytes(job->shape);

	*ret = (struct tables){.rows = upload_host(u, n_table * sizeof(*ret->rows))};
	ret->rows_to = upload_device(u, n_table * sizeof(*ret->rows));
	if (place->met) {
		ret->o_to = upload_device(u, n * row_bytes);
		ret->lse_to = upload_device(u, n * job->shape->n_q_heads * sizeof(float));
	}
	if (place->stage_q) {
		ret->q = upload_host(u, n * sizeof(*ret->q));
		ret->q_to = upload_device(u, n * row_bytes);
	}
	if (place->stage_o && !place->met) {
		ret->o = upload_host(u, n * sizeof(*ret->o));
		ret->o_to = upload_device(u, n * row_bytes);
	}
	fill_rows(job, ret);
}

void tables_describe_copies(const struct tables *t, uint32_t n, struct device_inbound *in)
{
	const struct device_copy *first = t->q;
	uint64_t stride = n > 1 ? first[1].from - first->from : 1;

	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		if (!first[i].from || first[i].from != first->from + i * stride)
			return;
	}
	in->copy_from = first->from;
	in->copy_to = first->to;
	in->copy_stride = stride;
}

/* The plan's patches; from here on the device has them. */
const struct device_patch *tables_take_patches(struct upload *u, struct batch_plan *plan,
					       uint32_t *ret_n)
{
	const struct schedule_growth *growth = plan ? &plan->growth : NULL;
	struct device_patch *patches;

	*ret_n = growth ? growth->n_patches : 0;
	if (*ret_n == 0)
		return NULL;
	patches = upload_host(u, *ret_n * sizeof(*patches));
	for (uint32_t i = 0; i < *ret_n; i++) {
		const struct schedule_patch *patch = &growth->patches[i];

		patches[i] = (struct device_patch){.to = plan->arrays[patch->array] + patch->offset,
						   .value = patch->value};
	}
	schedule_growth_written(&plan->growth);
	return patches;
}

void tables_count(const struct backend_job *job, const struct batch_need *need, size_t *host_bytes,
		  size_t *device_bytes)
{
	bool met = need->place.met, stage_o = need->place.stage_o || met;
	uint32_t n = job->list->n_rows, n_staged = need->place.stage_q + (uint32_t)stage_o;
	uint32_t n_table = job_n_rows(job) + (met ? n : 0);

	*host_bytes += align_up(need->n_tokens * sizeof(struct device_token)) +
		       align_up(n_table * sizeof(struct device_row)) +
		       n_staged * align_up(n * sizeof(struct device_copy));
	*device_bytes += align_up(n_table * sizeof(struct device_row)) +
			 n_staged * align_up(n * shape_row_bytes(job->shape));
	if (met)
		*device_bytes += align_up(n * job->shape->n_q_heads * sizeof(float));
}
