/*
 * load_slots.c - slots of loads: so many at a time, and so many of a user.
 *
 * As long as there are slots a load takes as long as its files do: others may be reading from the
 * same slow disk. Once a user who loads nothing has been refused, the slowest load of those who
 * have most ends if it is overdue, one at a time; the slot it leaves is for who loads nothing. Of
 * the last slots a user gets one only while he has fewer than are left (reserve.h).
 * Loads of who is privileged are beside the others', and take no slot of theirs.
 */
#include "load_slots.h"

#include "spawn.h"

#include "proto/clock.h"
#include "daemon/base/uid.h"

#include "kvstore/base/reserve.h"

#include <stdlib.h>
#include <sys/socket.h>

#define STAND_BACK_NS (2 * NS_PER_S) /* who was refused asks again by then */

static void reap(struct weights_table *table)
{
	struct hanging *hanging, *next;

	for (hanging = SLIST_FIRST(&table->hanging); hanging; hanging = next) {
		next = SLIST_NEXT(hanging, link);
		if (!loader_is_gone(hanging->pid))
			continue;
		SLIST_REMOVE(&table->hanging, hanging, hanging, link);
		free(hanging);
	}
}

/* Of a domain, or of all that are not privileged. */
static uint32_t count(const struct weights_table *table, const uid_t *domain)
{
	const struct weights *weights;
	const struct hanging *hanging;
	uint32_t n = 0;

	TAILQ_FOREACH (weights, &table->all, link)
		n += weights->loads &&
		     (domain ? weights->domain == *domain : !uid_is_privileged(weights->domain));
	SLIST_FOREACH (hanging, &table->hanging, link)
		n += domain ? hanging->domain == *domain : !uid_is_privileged(hanging->domain);
	return n;
}

uint32_t load_slots_count(struct weights_table *table)
{
	uint32_t n;

	pthread_mutex_lock(&table->lock);
	reap(table);
	n = count(table, NULL);
	pthread_mutex_unlock(&table->lock);
	return n;
}

/* ---- which load gives way ------------------------------------------------------------------- */

static double rate(const struct weights *weights, uint64_t now_ns)
{
	uint64_t age_ns = now_ns - weights->begin_ns;

	return (double)atomic_load(&weights->bytes_done) / ((double)age_ns + 1);
}

static enum weights_overdue overdue(const struct weights *weights, uint64_t now_ns)
{
	const struct weights_config *c = &weights->home->config;
	uint64_t age_ns = now_ns - weights->begin_ns, stall_ns = c->stall_ms * NS_PER_MS;
	double done = (double)atomic_load(&weights->bytes_done);

	if (c->max_load_s && age_ns > c->max_load_s * NS_PER_S)
		return WEIGHTS_TOO_LONG;
	if (age_ns > stall_ns && done * 1e9 < (double)c->least_rate * (double)(age_ns - stall_ns))
		return WEIGHTS_TOO_SLOW;
	return WEIGHTS_IN_TIME;
}

static bool goes_before(const struct weights *weights, const struct weights *other, uint64_t now_ns)
{
	uint32_t n = count(weights->home, &weights->domain);
	uint32_t n_other = count(weights->home, &other->domain);

	return n != n_other ? n > n_other : rate(weights, now_ns) < rate(other, now_ns);
}

/* NULL: all are in time, or one is about to leave. */
static struct weights *find_slowest(struct weights_table *table, uint64_t now_ns)
{
	struct weights *weights, *slowest = NULL;

	TAILQ_FOREACH (weights, &table->all, link) {
		if (!weights->loads || uid_is_privileged(weights->domain))
			continue;
		if (atomic_load(&weights->cancelled) || weights_state(weights) != WEIGHTS_LOADING)
			return NULL;
		if (overdue(weights, now_ns) && (!slowest || goes_before(weights, slowest, now_ns)))
			slowest = weights;
	}
	return slowest;
}

void load_slots_cancel(struct weights *weights)
{
	atomic_store(&weights->cancelled, true);
	if (weights->loader_fd >= 0)
		shutdown(weights->loader_fd, SHUT_RDWR);
}

static void make_slot(struct weights_table *table)
{
	uint64_t now_ns = clock_now_ns();
	struct weights *slowest = find_slowest(table, now_ns);

	table->refused_ns = now_ns;
	if (!slowest)
		return;
	atomic_store(&slowest->overdue, overdue(slowest, now_ns));
	load_slots_cancel(slowest);
}

static bool is_left(const struct weights_table *table, uint32_t n_own)
{
	const struct weights_config *c = &table->config;
	uint32_t n = count(table, NULL), n_left = n < c->max_loads ? c->max_loads - n : 0;

	return reserve_has_one(c->max_loads, c->domain_max_loads, n_own, n_left);
}

bool load_slots_ask(struct weights_table *table, uid_t domain)
{
	uint32_t n_own;

	reap(table);
	n_own = count(table, &domain);
	if (n_own >= table->config.domain_max_loads)
		return false;
	if (uid_is_privileged(domain))
		return true;
	if (n_own > 0 && table->refused_ns && clock_now_ns() - table->refused_ns < STAND_BACK_NS)
		return false;
	if (is_left(table, n_own)) {
		/* He has his slot: those who have one already need not stand back any more. */
		table->refused_ns = n_own == 0 ? 0 : table->refused_ns;
		return true;
	}
	if (n_own == 0)
		make_slot(table);
	return false;
}
