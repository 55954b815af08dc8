/*
 * exchange_memory.c - see exchange_memory.h. A rank shows its parts and its epoch, waits until all
 * have come to that epoch, and folds what it wants from where it lies, in order of ranks.
 *
 * There are two places for what a rank shows, for odd and even epochs: nobody comes to epoch e + 2
 * before all have come to e + 1, that is, have done with e.
 */
#include "exchange_memory.h"

#include "kernels/merge.h"
#include "proto/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seat {
	uint64_t epoch;
	const float *parts[2];
	uint32_t n_rows[2];
};

struct hub {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t n_ranks, n_users;
	uint32_t timeout_ms;
	bool failed;
	struct seat *seats; /* owned, [n_ranks]; under the lock */
};

struct end {
	struct exchange base;
	struct hub *hub; /* the last end to go frees it */
	uint64_t epoch;
};

/* The first rank that has not come to the epoch, or n_ranks. */
static uint32_t find_late(const struct hub *hub, uint64_t epoch)
{
	uint32_t rank = 0;

	while (rank < hub->n_ranks && hub->seats[rank].epoch >= epoch)
		rank++;
	return rank;
}

static int fail(struct end *e, int r, uint32_t rank)
{
	struct hub *hub = e->hub;

	if (r == -ETIMEDOUT)
		snprintf(e->base.error, sizeof(e->base.error),
			 "rank %u has not answered rank %u for %u ms", rank, e->base.rank,
			 hub->timeout_ms);
	else if (r == -EPROTO)
		snprintf(e->base.error, sizeof(e->base.error),
			 "rank %u speaks of other rows than rank %u", rank, e->base.rank);
	else
		snprintf(e->base.error, sizeof(e->base.error),
			 "another rank has given the exchange up");
	hub->failed = true;
	pthread_cond_broadcast(&hub->changed);
	return r;
}

static int wait_for_all(struct end *e, const struct exchange_rows *rows, const float **ret_parts)
{
	struct hub *hub = e->hub;
	struct timespec deadline = clock_timespec(clock_now_ns() + hub->timeout_ms * NS_PER_MS);
	uint32_t late, half = e->epoch % 2;
	int r = 0;

	while (!hub->failed && r == 0 && find_late(hub, e->epoch) < hub->n_ranks)
		r = pthread_cond_timedwait(&hub->changed, &hub->lock, &deadline);
	late = find_late(hub, e->epoch);
	if (hub->failed)
		return fail(e, -EIO, 0);
	if (late < hub->n_ranks)
		return fail(e, -ETIMEDOUT, late);
	for (uint32_t i = 0; i < hub->n_ranks; i++) {
		if (hub->seats[i].n_rows[half] != rows->n_rows)
			return fail(e, -EPROTO, i);
		ret_parts[i] = hub->seats[i].parts[half];
	}
	return 0;
}

static int meet(struct end *e, const struct exchange_rows *rows, const float **ret_parts)
{
	struct hub *hub = e->hub;
	struct seat *seat = &hub->seats[e->base.rank];
	int r;

	e->epoch++;
	pthread_mutex_lock(&hub->lock);
	seat->parts[e->epoch % 2] = rows->parts;
	seat->n_rows[e->epoch % 2] = rows->n_rows;
	seat->epoch = e->epoch;
	if (find_late(hub, e->epoch) == hub->n_ranks)
		pthread_cond_broadcast(&hub->changed);
	r = wait_for_all(e, rows, ret_parts);
	pthread_mutex_unlock(&hub->lock);
	return r;
}

/* A row of all ranks, in their order; what others have of it is counted as it is read. */
static void fold_row(struct exchange *x, const struct exchange_rows *rows,
		     const float *const *parts, uint32_t row)
{
	size_t n = exchange_row_floats(rows);
	float *to = rows->folded + row * n;

	for (uint32_t i = 0; i < x->n_ranks; i++) {
		const float *from = parts[i] + row * n;

		if (i == 0)
			memcpy(to, from, n * sizeof(float));
		else
			merge_fold_entries(to, from, rows->n_heads, rows->head_dim);
		x->sent_bytes += i == x->rank ? 0 : n * sizeof(float);
	}
}

static int memory_run(struct exchange *x, const struct exchange_rows *rows)
{
	struct end *e = (struct end *)x;
	const float *parts[EXCHANGE_RANKS_MAX];
	int r = meet(e, rows, parts);

	if (r)
		return r;
	for (uint32_t row = 0; row < rows->n_rows; row++) {
		if (!rows->owner || rows->owner[row] == x->rank)
			fold_row(x, rows, parts, row);
	}
	return 0;
}

static void memory_abort(struct exchange *x)
{
	struct hub *hub = ((struct end *)x)->hub;

	pthread_mutex_lock(&hub->lock);
	hub->failed = true;
	pthread_cond_broadcast(&hub->changed);
	pthread_mutex_unlock(&hub->lock);
}

static void hub_free(struct hub *hub)
{
	pthread_cond_destroy(&hub->changed);
	pthread_mutex_destroy(&hub->lock);
	free(hub->seats);
	free(hub);
}

static void memory_free(struct exchange *x)
{
	struct hub *hub = ((struct end *)x)->hub;
	bool last;

	pthread_mutex_lock(&hub->lock);
	last = --hub->n_users == 0;
	pthread_mutex_unlock(&hub->lock);
	if (last)
		hub_free(hub);
	free(x);
}

static const struct exchange_ops memory_ops = {memory_run, memory_abort, memory_free};

static struct hub *hub_new(uint32_t n_ranks, uint32_t timeout_ms)
{
	struct hub *hub = calloc(1, sizeof(*hub));
	pthread_condattr_t attr;

	if (!hub)
		return NULL;
	*hub = (struct hub){.n_ranks = n_ranks, .timeout_ms = timeout_ms};
	hub->seats = calloc(n_ranks, sizeof(*hub->seats));
	if (!hub->seats) {
		free(hub);
		return NULL;
	}
	pthread_mutex_init(&hub->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&hub->changed, &attr);
	pthread_condattr_destroy(&attr);
	return hub;
}

int exchange_memory_new(uint32_t n_ranks, uint32_t timeout_ms, struct exchange **ret_ends)
{
	struct hub *hub;
	struct end *ends[EXCHANGE_RANKS_MAX] = {NULL};

	if (n_ranks == 0 || n_ranks > EXCHANGE_RANKS_MAX)
		return -EINVAL;
	hub = hub_new(n_ranks, timeout_ms);
	if (!hub)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_ranks; i++) {
		ends[i] = calloc(1, sizeof(*ends[i]));
		if (ends[i])
			continue;
		while (i)
			free(ends[--i]);
		hub_free(hub);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n_ranks; i++) {
		*ends[i] = (struct end){.base = {&memory_ops, i, n_ranks}, .hub = hub};
		ret_ends[i] = &ends[i]->base;
	}
	hub->n_users = n_ranks;
	return 0;
}
