/*
 * connection.c - how the end of either side is noticed, and what follows from it.
 *
 * Whoever finds the daemon gone marks the connection as broken, for good, and lets the streams go
 * on that wait in its lanes: nothing of the daemon's will ever move their words again. A forked
 * child is told by a page that the kernel has wiped, before any lock or segment is touched.
 */
#include "connection.h"

#include "client/lib/base/clock.h"
#include "proto/ring.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROBE_EVERY_NS (100 * NS_PER_MS)

bool connection_is_foreign(const struct coppice *c)
{
	return atomic_load_explicit(c->alive, memory_order_relaxed) == 0;
}

bool connection_is_open(const struct coppice *c)
{
	return !connection_is_foreign(c) &&
	       atomic_load_explicit(&c->closed, memory_order_relaxed) == 0;
}

void connection_ref(struct coppice *c)
{
	atomic_fetch_add_explicit(&c->n_refs, 1, memory_order_relaxed);
}

static void shell_free(struct coppice *c)
{
	/* In a forked child somebody who is not there may hold them. */
	if (!connection_is_foreign(c)) {
		pthread_cond_destroy(&c->answered);
		pthread_mutex_destroy(&c->lock);
		pthread_mutex_destroy(&c->lists_lock);
		pthread_mutex_destroy(&c->near_lock);
		pthread_mutex_destroy(&c->prompt_lock);
	}
	munmap((void *)c->alive, (size_t)sysconf(_SC_PAGESIZE));
	free(c->driver);
	free(c);
}

void connection_unref(struct coppice *c)
{
	/* acq_rel: who frees it comes behind all that the others did with it. */
	if (atomic_fetch_sub_explicit(&c->n_refs, 1, memory_order_acq_rel) == 1)
		shell_free(c);
}

void connection_unmap(const struct coppice *c, void *map, size_t bytes)
{
	if (map && !connection_is_foreign(c))
		munmap(map, bytes);
}

void connection_add_lane(struct coppice *c, struct lane_segment *segment)
{
	pthread_mutex_lock(&c->lists_lock);
	list_add(&c->lanes, &segment->link);
	pthread_mutex_unlock(&c->lists_lock);
}

void connection_remove_lane(struct coppice *c, struct lane_segment *segment)
{
	pthread_mutex_lock(&c->lists_lock);
	list_remove(&segment->link);
	pthread_mutex_unlock(&c->lists_lock);
}

static void release_streams(struct coppice *c)
{
	pthread_mutex_lock(&c->lists_lock);
	for (struct list *link = c->lanes.next; link != &c->lanes; link = link->next)
		ring_release_streams(list_object(link, struct lane_segment, link)->shared);
	pthread_mutex_unlock(&c->lists_lock);
}

/* Whoever waits for the daemon on a stream goes on; again at every call, for those that began to
 * wait meanwhile. */
void connection_lose(struct coppice *c)
{
	atomic_store_explicit(&c->broken, 1, memory_order_relaxed);
	release_streams(c);
}

int connection_break(struct coppice *c)
{
	connection_lose(c);
	return explain(c->key, -ECONNRESET,
		       "the daemon is gone or has ended this session; close the connection and "
		       "connect again");
}

int connection_check(struct coppice *c)
{
	if (connection_is_foreign(c))
		return explain(c->key, -EOWNERDEAD,
			       "this connection was made before fork(); a child must make its own");
	if (atomic_load_explicit(&c->broken, memory_order_relaxed))
		return connection_break(c);
	return 0;
}

int connection_probe(struct coppice *c)
{
	struct pollfd p = {.fd = c->socket};

	atomic_store_explicit(&c->probed_ns, clock_coarse_ns(), memory_order_relaxed);
	/* Not by reading: replies that nobody has fetched yet may hide the end behind them. */
	if (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)))
		atomic_store_explicit(&c->broken, 1, memory_order_relaxed);
	return connection_check(c);
}

int connection_check_peer(struct coppice *c)
{
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (clock_coarse_ns() - atomic_load_explicit(&c->probed_ns, memory_order_relaxed) <
	    PROBE_EVERY_NS)
		return 0;
	return connection_probe(c);
}
