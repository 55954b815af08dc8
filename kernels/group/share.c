/*
 * share.c - see share.h. The slots of a query that are on one device need not follow each other;
 * then those of each run are a query more, of which nothing is asked but to be appended.
 *
 *      slots      [page 0][page 1][page 2]       2 devices
 *      device 0   query: [page 0]      one more: [page 1], K and V from its first row on
 *      device 1   query: [page 0], K and V from its first row on
 */
#include "share.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CUTS_MIN 8u

void share_init(struct share *s, uint32_t device, uint32_t n_devices)
{
	*s = (struct share){.device = device, .n_devices = n_devices};
	pthread_mutex_init(&s->ahead.lock, NULL);
}

static void share_job_done(struct share_job *job)
{
	array_done(&job->io);
	array_done(&job->queries);
	array_done(&job->slots);
}

void share_done(struct share *s)
{
	for (uint32_t i = 0; i < s->n_room; i++)
		share_job_done(&s->behind[i]);
	share_job_done(&s->advanced);
	for (uint32_t i = 0; i < s->n_cuts; i++)
		cut_done(&s->cuts[i].cut);
	cut_done(&s->ahead.making.cut);
	cut_done(&s->ahead.made.cut);
	pthread_mutex_destroy(&s->ahead.lock);
	free(s->jobs);
	free(s->behind);
	free(s->cuts);
	*s = (struct share){0};
}

/* An array of n things, the new ones zero; the old array where memory is short. */
static void *grow(void *old, uint32_t n_old, uint32_t n, size_t size)
{
	char *grown = realloc(old, n * size);

	if (grown)
		memset(grown + n_old * size, 0, (n - n_old) * size);
	return grown;
}

static int grow_jobs(struct share *s, uint32_t n)
{
	struct backend_job *jobs = grow(s->jobs, s->n_room, n, sizeof(*jobs));
	struct share_job *behind;

	if (!jobs)
		return -ENOMEM;
	s->jobs = jobs;
	behind = grow(s->behind, s->n_room, n, sizeof(*behind));
	if (!behind)
		return -ENOMEM;
	s->behind = behind;
	s->n_room = n;
	return 0;
}

static int grow_cuts(struct share *s, uint32_t n)
{
	struct share_cut *cuts = grow(s->cuts, s->n_cuts, n, sizeof(*cuts));

	if (!cuts)
		return -ENOMEM;
	s->cuts = cuts;
	s->n_cuts = n;
	return 0;
}

int share_begin(struct share *s, uint32_t n_jobs)
{
	uint32_t n_cuts = max_u32(n_jobs, CUTS_MIN);

	s->n_batches++;
	s->n_jobs = 0;
	if (n_jobs > s->n_room && grow_jobs(s, n_jobs) != 0)
		return -ENOMEM;
	if (n_cuts > s->n_cuts && grow_cuts(s, n_cuts) != 0)
		return -ENOMEM;
	return 0;
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* The plan's cut, or the one that is longest out of use: no more are in use than there are jobs. */
static struct share_cut *find_cut(struct share *s, uint64_t plan_id)
{
	struct share_cut *oldest = &s->cuts[0];

	for (uint32_t i = 0; i < s->n_cuts; i++) {
		if (plan_id && s->cuts[i].plan_id == plan_id)
			return &s->cuts[i];
		if (s->cuts[i].used < oldest->used)
			oldest = &s->cuts[i];
	}
	oldest->plan_id = 0;
	return oldest;
}

static void swap_cuts(struct share_cut *a, struct share_cut *b)
{
	struct share_cut was = *a;

	*a = *b;
	*b = was;
}

/* If it was made ahead. */
static void take_made(struct share *s, struct share_cut *c, uint64_t plan_id)
{
	pthread_mutex_lock(&s->ahead.lock);
	if (plan_id && s->ahead.made.plan_id == plan_id)
		swap_cuts(c, &s->ahead.made);
	pthread_mutex_unlock(&s->ahead.lock);
}

static int get_list(struct share *s, const struct backend_job *job, const struct work_list **ret)
{
	struct share_cut *c = find_cut(s, job->plan_id);

	if (!c->plan_id)
		take_made(s, c, job->plan_id);
	if (!c->plan_id && cut_make(&c->cut, job->list, s->n_devices, s->device) != 0)
		return -ENOMEM;
	c->plan_id = job->plan_id;
	c->used = s->n_batches;
	c->cut.list.rows = job->list->rows;
	*ret = &c->cut.list;
	return 0;
}

int share_prepare_tokens(struct share *s, const struct backend_job *job, struct backend_job *ret)
{
	struct share_cut *making = &s->ahead.making;

	if (cut_make(&making->cut, job->list, s->n_devices, s->device) != 0)
		return -ENOMEM;
	making->cut.list.rows = job->list->rows;
	making->plan_id = job->plan_id;
	*ret = *job;
	ret->list = &making->cut.list;
	return 0;
}

void share_prepared(struct share *s)
{
	pthread_mutex_lock(&s->ahead.lock);
	swap_cuts(&s->ahead.making, &s->ahead.made);
	pthread_mutex_unlock(&s->ahead.lock);
}

/* ---- slots ---------------------------------------------------------------------------------- */

struct run {
	uint32_t slot, n_slots;
	uint32_t row, n_rows; /* of the query */
};

static bool is_here(const struct share *s, const struct work_slice *slot)
{
	return cut_device(slot->page, s->n_devices) == s->device;
}

/* The next run of slots that are here, from run->slot + run->n_slots on. */
static bool next_run(const struct share *s, const struct backend_io *io, struct run *run)
{
	uint32_t i = run->slot + run->n_slots;

	run->row += run->n_rows;
	run->n_rows = run->n_slots = 0;
	for (; i < io->n_slots && !is_here(s, &io->slots[i]); i++)
		run->row += io->slots[i].count;
	run->slot = i;
	for (; i < io->n_slots && is_here(s, &io->slots[i]); i++)
		run->n_rows += io->slots[i].count;
	run->n_slots = i - run->slot;
	return run->n_slots > 0;
}

/* to: room for the run's slots as the device calls them. */
static void io_take(const struct share *s, struct backend_io *io, const struct backend_io *from,
		    const struct run *run, struct work_slice *to)
{
	for (uint32_t i = 0; i < run->n_slots; i++) {
		to[i] = from->slots[run->slot + i];
		to[i].page = cut_page(to[i].page, s->n_devices);
	}
	io->slots = to;
	io->n_slots = run->n_slots;
	io->k = from->k + run->row * from->k_stride;
	io->v = from->v + run->row * from->v_stride;
}

static uint32_t count_slots(const struct backend_job *job)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		n += job->io[i].n_slots;
	return n;
}

static void share_slots(struct share *s, struct share_job *to, const struct backend_job *job)
{
	struct backend_io *io = to->io.data;
	struct work_query *queries = to->queries.data;
	struct work_slice *slots = to->slots.data;
	uint32_t n = job->tree->n_queries;

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		struct run run = {0};

		io[i].n_slots = 0;
		while (next_run(s, &job->io[i], &run)) {
			uint32_t at = io[i].n_slots ? n++ : i;

			s->appended_tokens += run.n_rows;
			if (at != i) {
				queries[at] = (struct work_query){.node = WORK_NONE,
								  .n_rows = run.n_rows};
				io[at] = (struct backend_io){.k_stride = job->io[i].k_stride,
							     .v_stride = job->io[i].v_stride};
			}
			io_take(s, &io[at], &job->io[i], &run, slots);
			slots += run.n_slots;
		}
	}
	to->tree.n_queries = n;
}

/* io and queries of the job, and room for as many more as there may be runs. */
static int copy_queries(struct share_job *to, const struct backend_job *job, uint32_t n_more)
{
	size_t n = job->tree->n_queries, all = n + n_more;

	if (!array_room(&to->io, all, sizeof(*job->io)) ||
	    !array_room(&to->slots, n_more, sizeof(struct work_slice)) ||
	    !array_room(&to->queries, all, sizeof(*job->tree->queries)))
		return -ENOMEM;
	if (n) {
		memcpy(to->io.data, job->io, n * sizeof(*job->io));
		memcpy(to->queries.data, job->tree->queries, n * sizeof(*job->tree->queries));
	}
	to->tree = *job->tree;
	to->tree.queries = to->queries.data;
	return 0;
}

int share_tokens(struct share *s, const struct backend_job *job, struct backend_job **ret)
{
	struct share_job *to = &s->behind[s->n_jobs];
	struct backend_job *own = &s->jobs[s->n_jobs];
	const struct work_list *list;

	if (get_list(s, job, &list) != 0 || copy_queries(to, job, count_slots(job)) != 0)
		return -ENOMEM;
	share_slots(s, to, job);
	*own = *job;
	own->tree = &to->tree;
	own->list = list;
	own->io = to->io.data;
	s->n_jobs++;
	*ret = own;
	return 0;
}

int share_advance_tokens(struct share *s, const struct backend_job *job, struct backend_job *ret)
{
	uint32_t n = job->tree->n_queries;
	struct backend_io *io = array_room(&s->advanced.io, n, sizeof(*io));
	struct work_slice *slots = array_room(&s->advanced.slots, n, sizeof(*slots));

	if (!io || !slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		if (job->io[i].n_slots > 1)
			return -ESTALE;
		io[i] = (struct backend_io){0};
		if (job->io[i].n_slots == 0)
			continue;
		slots[i] = job->io[i].slots[0];
		io[i] = (struct backend_io){.slots = &slots[i], .n_slots = is_here(s, &slots[i])};
		slots[i].page = cut_page(slots[i].page, s->n_devices);
	}
	*ret = *job;
	ret->io = io;
	return 0;
}

/* ---- heads ---------------------------------------------------------------------------------- */

struct work_shape share_shape(const struct work_shape *shape, uint32_t n_devices)
{
	struct work_shape share = *shape;

	share.n_q_heads /= n_devices;
	share.n_kv_heads /= n_devices;
	return share;
}

static void io_shift(struct backend_io *io, uint32_t device, const struct work_shape *shape)
{
	uint64_t head_bytes = shape->head_dim * work_dtype_bytes(shape->dtype);
	uint64_t q_head = (uint64_t)device * shape->n_q_heads;
	uint64_t kv_head = (uint64_t)device * shape->n_kv_heads;

	io->q += q_head * head_bytes;
	io->k += kv_head * head_bytes;
	io->v += kv_head * head_bytes;
	io->o += io->o ? q_head * head_bytes : 0;
	io->lse += io->lse ? q_head * sizeof(float) : 0;
}

int share_heads(struct share *s, const struct backend_job *job, struct backend_job **ret)
{
	struct share_job *to = &s->behind[s->n_jobs];
	struct backend_job *own = &s->jobs[s->n_jobs];
	struct backend_io *io;

	if (copy_queries(to, job, 0) != 0)
		return -ENOMEM;
	io = to->io.data;
	to->shape = share_shape(job->shape, s->n_devices);
	for (uint32_t q = 0; q < job->tree->n_queries; q++) {
		io_shift(&io[q], s->device, &to->shape);
		s->appended_tokens += io[q].n_slots ? job->tree->queries[q].n_rows : 0;
	}
	*own = *job;
	own->shape = &to->shape;
	own->io = io;
	s->n_jobs++;
	*ret = own;
	return 0;
}

int share_prepare_heads(struct share *s, const struct backend_job *job, struct backend_job *ret)
{
	s->ahead.shape = share_shape(job->shape, s->n_devices);
	*ret = *job;
	ret->shape = &s->ahead.shape;
	return 0;
}

int share_advance_heads(struct share *s, const struct backend_job *job, struct backend_job *ret)
{
	s->advanced.shape = share_shape(job->shape, s->n_devices);
	*ret = *job;
	ret->shape = &s->advanced.shape;
	return 0;
}
