/*
 * mover.c - see mover.h.
 *
 * The queue is a ring: the caller writes slots and `asked`, the thread reads them and writes
 * `ended`. Each side sleeps on the other's word.
 */
#include "mover.h"
#include "kernels/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOTS 1024u /* a power of two: the words wrap around */

struct mover {
	pthread_t thread;
	struct mover_copy slots[SLOTS];
	uint64_t n_asked[MOVER_WAYS]; /* the caller's */
	/* copies, of the caller's: those before it may be read */
	_Alignas(64) _Atomic uint32_t asked;
	_Atomic bool stopping;
	_Alignas(64) _Atomic uint32_t ended; /* of the thread's: their bytes are there */
	_Atomic uint64_t n_done[MOVER_WAYS];
};

static void word_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void word_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void copy_run(const struct mover_copy *copy)
{
	if (copy->bytes == 0)
		return;
	if (copy->way == MOVER_DOWN)
		memcpy(copy->host, copy->pool, copy->bytes);
	else
		memcpy(copy->pool, copy->host, copy->bytes);
}

static void *mover_main(void *arg)
{
	struct mover *m = arg;

	for (uint32_t next = 0;;) {
		uint32_t asked = atomic_load(&m->asked); /* of mover_add, mover_free */

		if (next == asked && atomic_load(&m->stopping))
			return NULL;
		if (next == asked) {
			word_wait(&m->asked, asked);
			continue;
		}
		const struct mover_copy *copy = &m->slots[next++ % SLOTS];
		copy_run(copy);
		/* Pairs with the acquire of mover_done. */
		atomic_fetch_add_explicit(&m->n_done[copy->way], 1, memory_order_release);
		atomic_store(&m->ended, next);
		word_wake(&m->ended);
	}
}

int mover_new(struct mover **ret)
{
	struct mover *m = aligned_alloc(64, sizeof(*m));

	if (!m)
		return -ENOMEM;
	memset(m, 0, sizeof(*m));
	int r = thread_start("coppice-mover", mover_main, m, &m->thread);
	if (r) {
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

/* Until the thread has ended all copies before this one. */
static void await_count(struct mover *m, uint32_t count)
{
	uint32_t ended;

	while ((int32_t)((ended = atomic_load(&m->ended)) - count) < 0)
		word_wait(&m->ended, ended);
}

uint64_t mover_add(struct mover *m, const struct mover_copy *copy)
{
	uint32_t asked = atomic_load_explicit(&m->asked, memory_order_relaxed);

	await_count(m, asked + 1 - SLOTS);
	m->slots[asked % SLOTS] = *copy;
	atomic_store(&m->asked, asked + 1);
	word_wake(&m->asked);
	return ++m->n_asked[copy->way];
}

void mover_free(struct mover *m)
{
	if (!m)
		return;
	/* The sleeper's word changes, or it could fall asleep after the wake: an empty copy. */
	atomic_store(&m->stopping, true);
	mover_add(m, &(struct mover_copy){0});
	pthread_join(m->thread, NULL);
	free(m);
}

uint64_t mover_done(const struct mover *m, enum mover_way way)
{
	/* Pairs with the release of mover_main. */
	return atomic_load_explicit(&m->n_done[way], memory_order_acquire);
}

void mover_await(struct mover *m, const char *pool, uint64_t bytes)
{
	uint32_t asked = atomic_load_explicit(&m->asked, memory_order_relaxed);
	uint32_t ended = atomic_load(&m->ended);

	for (uint32_t i = asked; i != ended; i--) {
		const struct mover_copy *copy = &m->slots[(i - 1) % SLOTS];
		if (copy->pool < pool + bytes && pool < copy->pool + copy->bytes) {
			await_count(m, i);
			return;
		}
	}
}
