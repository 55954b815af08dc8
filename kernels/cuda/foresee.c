/* foresee.c - see foresee.h. */
#include "foresee.h"

#include <stdlib.h>
#include <string.h>

static bool grow(void **at, uint32_t *room, uint32_t n, size_t entry_bytes)
{
	void *more;

	if (n <= *room)
		return true;
	more = realloc(*at, n * entry_bytes);
	if (!more)
		return false;
	*at = more;
	*room = n;
	return true;
}

static uint32_t count_slots(const struct backend_job *job)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		n += job->io[i].n_slots;
	return n;
}

static bool remember(struct foreseen *f, const struct backend_job *job)
{
	struct work_slice *slot;

	f->n_io = job->tree->n_queries;
	f->n_slots = count_slots(job);
	if (!grow((void **)&f->io, &f->io_room, f->n_io, sizeof(*f->io)) ||
	    !grow((void **)&f->slots, &f->slots_room, f->n_slots, sizeof(*f->slots)))
		return false;
	memcpy(f->io, job->io, f->n_io * sizeof(*f->io));
	slot = f->slots;
	for (uint32_t i = 0; i < f->n_io; i++) {
		for (uint32_t j = 0; j < job->io[i].n_slots; j++)
			*slot++ = job->io[i].slots[j];
	}
	return true;
}

void foresee_make(struct batch *b, const struct upload *upload, const struct backend_job *job,
		  uint32_t layer)
{
	struct foreseen *f = b->foreseen;
	uint64_t id = b->last_id + 1;
	struct backend_job next = *job;
	struct device_inbound last_in = b->last_in;
	struct tables tables;

	if (!f || layer == 0 || !remember(f, job)) /* the next token's */
		return;
	next.layer = layer;
	f->upload = (struct upload){.b = b,
				    .frame = &b->frames[id % BATCH_FRAMES],
				    .host_due = upload->host_due};
	f->upload.frame->bus_ns = 0;
	tables_make(&f->upload, &next, &b->needs[0].place, &tables);
	f->in = batch_make_inbound(&f->upload, &next, NULL, &b->needs[0], &tables);
	f->bus_ns = f->upload.frame->bus_ns;
	f->id = id;
	b->last_in = last_in;
}

static bool same_slots(const struct foreseen *f, const struct backend_job *job)
{
	const struct work_slice *slot = f->slots;

	for (uint32_t i = 0; i < f->n_io; i++) {
		for (uint32_t j = 0; j < job->io[i].n_slots; j++, slot++) {
			if (memcmp(slot, &job->io[i].slots[j], sizeof(*slot)) != 0)
				return false;
		}
	}
	return true;
}

bool foresee_holds(const struct batch *b, const struct backend_batch *batch)
{
	const struct foreseen *f = b->foreseen;
	const struct backend_job *job = batch->jobs;

	return f && f->id == b->last_id + 1 && batch->n_jobs == 1 &&
	       job->tree->n_queries == f->n_io &&
	       memcmp(job->io, f->io, f->n_io * sizeof(*f->io)) == 0 && same_slots(f, job);
}

struct device_inbound foresee_take(struct batch *b, struct upload *ret)
{
	struct foreseen *f = b->foreseen;

	*ret = f->upload;
	ret->frame->bus_ns = f->bus_ns;
	b->last_in = f->in;
	f->id = 0;
	return f->in;
}

void foresee_done(struct foreseen *f)
{
	if (!f)
		return;
	free(f->io);
	free(f->slots);
	free(f);
}
