/*
 * meeting.c - members of a group that compute as the CPU does, and as wrong as they are told: what
 * each was given is kept, so that tests see who wrote and what was exchanged. See meeting.h.
 */
#include "meeting.h"

#include "kernels/cpu/attend.h"
#include "kernels/group/counts.h"
#include "kernels/merge.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct meeting meeting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct end *end_of(struct backend *b)
{
	for (uint32_t i = 0; i < meeting.n; i++) {
		if (meeting.ends[i].backend == b)
			return &meeting.ends[i];
	}
	fail_msg("a backend that has met nobody");
	return NULL;
}

static int meet_meet(const struct backend_meeting *of, char *notice, char *error, size_t bytes)
{
	(void)error;
	assert_int_equal(of->n, MEETING_DEVICES);
	assert_int_equal(of->n_all, MEETING_DEVICES);
	memset(meeting.ends, 0, sizeof(meeting.ends));
	meeting.n = of->n;
	meeting.n_concluded = 0;
	meeting.silent = meeting.refuses = meeting.full = false;
	meeting.slow_ms = 0;
	meeting.stale = meeting.one_stale = meeting.one_breaks = false;
	for (uint32_t i = 0; i < of->n; i++)
		meeting.ends[i].backend = of->members[i];
	snprintf(notice, bytes, "they meet slowly");
	return meeting.apart ? 1 : 0;
}

static int meet_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	struct end *e = end_of(b);
	struct backend_job job = batch->jobs[0];
	struct backend_batch own = {&job, 1};

	assert_int_equal(batch->n_jobs, 1);
	assert_int_equal(job.parts, 0);
	if (meeting.stale || (meeting.one_stale && e == &meeting.ends[1]))
		return -ESTALE;
	if (meeting.one_breaks && e == &meeting.ends[1])
		return -EIO;
	if (e == &meeting.ends[1])
		usleep(meeting.slow_ms * 1000);
	e->job = job;
	free(e->parts);
	e->parts = NULL;
	if (job.owner) {
		uint64_t bytes = group_parts_bytes(job.shape, job.list->n_rows);

		assert_non_null(e->parts = calloc(1, bytes + 1));
		job.parts = (uintptr_t)e->parts;
		job.owner = NULL;
	}
	*ret_id = ++e->submitted;
	assert_int_equal(e->submitted, e->concluded + 1);
	return backend_cpu.submit(b, &own, &(uint64_t){0});
}

/* A row by its owner, who sees Q and O where they are; in order of devices. */
static void merge_row(uint32_t row)
{
	struct end *owner = &meeting.ends[meeting.ends[0].job.owner[row]];
	const struct work_shape *shape = owner->job.shape;
	size_t n = 2 + (size_t)shape->head_dim, row_floats = n * shape->n_q_heads;
	float *to = malloc(row_floats * sizeof(*to));

	assert_non_null(to);
	memcpy(to, meeting.ends[0].parts + row * row_floats, row_floats * sizeof(*to));
	for (uint32_t i = 1; i < meeting.n; i++)
		merge_fold_entries(to, meeting.ends[i].parts + row * row_floats, shape->n_q_heads,
				   shape->head_dim);
	for (uint32_t i = 0; i < meeting.n; i++)
		meeting.ends[i].given_bytes +=
			&meeting.ends[i] == owner ? 0 : row_floats * sizeof(*to);
	for (uint32_t head = 0; head < shape->n_q_heads; head++) {
		const float *at = to + head * n;

		attend_write(vec_select(NULL), &owner->job, row, head,
			     &(struct attend_sums){{at[0], at[1]}, at + 2});
	}
	owner->n_rows_written++;
	free(to);
}

static int meet_conclude(struct backend *b)
{
	struct end *e = end_of(b);
	int r = 0;

	pthread_mutex_lock(&meeting.lock);
	for (uint32_t i = 0; i < meeting.n; i++) /* all were submitted before */
		assert_int_equal(meeting.ends[i].submitted, e->submitted);
	if (meeting.refuses && e == &meeting.ends[1])
		r = -EIO;
	e->concluded = e->submitted;
	if (r == 0 && ++meeting.n_concluded % meeting.n == 0 && e->job.owner) {
		for (uint32_t row = 0; row < e->job.list->n_rows; row++)
			merge_row(row);
	}
	pthread_mutex_unlock(&meeting.lock);
	return r;
}

static int meet_abandon(struct backend *b, bool it_has)
{
	struct end *e = end_of(b);

	e->submitted += it_has;
	assert_int_equal(e->submitted, e->concluded + 1);
	e->concluded = e->submitted;
	e->abandoned++;
	return 0;
}

static int meet_completed(struct backend *b, uint64_t *ret_id)
{
	struct end *e = end_of(b);

	*ret_id = e->concluded > meeting.n_behind ? e->concluded - meeting.n_behind : 0;
	if (meeting.silent && e == &meeting.ends[1])
		*ret_id = 0;
	return 0;
}

static const char *meet_fault(struct backend *b)
{
	return meeting.refuses && end_of(b) == &meeting.ends[1] ? "its link is down" : NULL;
}

static void meet_counters(struct backend *b, struct backend_counters *ret)
{
	backend_cpu.counters(b, ret);
	ret->exchange_bytes = end_of(b)->given_bytes;
}

static void meet_close(struct backend *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < meeting.n; i++) {
		if (meeting.ends[i].backend == b)
			free(meeting.ends[i].parts);
	}
	backend_cpu.close(b);
}

static int meet_arena_new(struct backend *b, uint64_t bytes, struct backend_arena *ret)
{
	uint32_t i = (uint32_t)(end_of(b) - meeting.ends);

	if (ret->device[0] && ret->device[0] != i + 1)
		return -ENODEV;
	ret->base = (uintptr_t)calloc(1, bytes);
	ret->fd = -1;
	meeting.ends[i].arena = ret->base;
	return ret->base ? 0 : -ENOMEM;
}

static void meet_arena_free(struct backend *b, uint64_t base)
{
	assert_int_equal(end_of(b)->arena, base);
	free((void *)(uintptr_t)base);
}

static int meet_advance(struct backend *b, const struct backend_job *job)
{
	struct end *e = end_of(b);

	assert_int_equal(job->shape->n_kv_heads, job->shape->split == WORK_TOKENS ? 3 : 1);
	assert_int_equal(job->list->n_rows, 2);
	if (meeting.full && e == &meeting.ends[1])
		return -ESTALE;
	for (uint32_t i = 0; i < 2; i++) {
		e->n_advanced += job->io[i].n_slots;
		if (job->io[i].n_slots)
			e->next_page = job->io[i].slots->page;
	}
	return 0;
}

struct backend_ops meeting_ops(void)
{
	struct backend_ops ops = backend_cpu;

	ops.leaves_parts = false;
	ops.meet = meet_meet;
	ops.advance = meet_advance;
	ops.submit = meet_submit;
	ops.conclude = meet_conclude;
	ops.abandon = meet_abandon;
	ops.completed = meet_completed;
	ops.fault = meet_fault;
	ops.close = meet_close;
	ops.counters = meet_counters;
	ops.arena_new = meet_arena_new;
	ops.arena_free = meet_arena_free;
	return ops;
}
