/*
 * shm_pages.c - chores over memory, a piece at a time.
 *
 * A piece is short, as it keeps the address space to itself: who makes a mapping meanwhile waits.
 * After each the next user's turn comes, so that one who has much to be done keeps nobody waiting
 * who has little. The thread has the priority of all others: one that is seldom let run
 * would keep what it holds.
 */
#include "shm_pages.h"

#include "kernels/thread.h"
#include "proto/arith.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PIECE_BYTES ((size_t)1 << 20)

/* ---- the thread ---- */

/* Kernels before 5.14 cannot: then pages come as they are touched. */
static int fill(char *at, size_t bytes)
{
	if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return 0;
	return errno == EINTR || errno == EAGAIN ? 0 : -ENOMEM;
}

/* Returns whether that was all. */
static bool piece_do(struct shm_chore *chore)
{
	size_t left = chore->bytes - chore->at, bytes = min_u64(left, PIECE_BYTES);
	char *at = chore->map + chore->at;

	if (chore->kind == SHM_DROP)
		munmap(at, bytes);
	else if (!atomic_load_explicit(&chore->stopped, memory_order_relaxed))
		chore->code = fill(at, bytes);
	else
		chore->code = -ECANCELED;
	chore->at += bytes;
	return chore->code != 0 || chore->at == chore->bytes;
}

/* The first one; it and what else its user has stand behind all others' from now on. */
static struct shm_chore *turn_take(struct shm_chores *posted)
{
	struct shm_chore *first = TAILQ_FIRST(posted), *chore = first, *next;
	struct shm_chores others = TAILQ_HEAD_INITIALIZER(others);

	for (; chore; chore = next) {
		next = TAILQ_NEXT(chore, link);
		if (chore->uid == first->uid)
			continue;
		TAILQ_REMOVE(posted, chore, link);
		TAILQ_INSERT_TAIL(&others, chore, link);
	}
	TAILQ_CONCAT(&others, posted, link);
	TAILQ_CONCAT(posted, &others, link);
	return first;
}

static void chore_end(struct shm_pages *pages, struct shm_chore *chore)
{
	TAILQ_REMOVE(&pages->posted, chore, link);
	TAILQ_INSERT_TAIL(&pages->done, chore, link);
	eventfd_write(pages->fd, 1);
}

/* Under the mutex, but for the piece itself. */
static void turn(struct shm_pages *pages)
{
	struct shm_chore *chore = turn_take(&pages->posted);
	bool hurried = pages->hurried, ended;

	pthread_mutex_unlock(&pages->mutex);
	ended = hurried || piece_do(chore);
	pthread_mutex_lock(&pages->mutex);
	if (ended)
		chore_end(pages, chore);
}

static void *thread_main(void *arg)
{
	struct shm_pages *pages = arg;

	pthread_setname_np(pthread_self(), "coppice-pages");
	pthread_mutex_lock(&pages->mutex);
	while (!pages->stopping) {
		if (TAILQ_EMPTY(&pages->posted))
			pthread_cond_wait(&pages->more, &pages->mutex);
		else
			turn(pages);
	}
	pthread_mutex_unlock(&pages->mutex);
	return NULL;
}

/* ---- the loop ---- */

static struct shm_chore *done_take(struct shm_pages *pages)
{
	struct shm_chore *chore;

	pthread_mutex_lock(&pages->mutex);
	chore = TAILQ_FIRST(&pages->done);
	if (chore)
		TAILQ_REMOVE(&pages->done, chore, link);
	pthread_mutex_unlock(&pages->mutex);
	return chore;
}

static void on_back(struct loop_op *op, int result)
{
	struct shm_pages *pages = op->user;
	struct shm_chore *chore;
	eventfd_t n;

	if (result < 0)
		return;
	(void)eventfd_read(pages->fd, &n);
	while ((chore = done_take(pages)))
		chore->done(chore);
}

int shm_pages_init(struct shm_pages *pages, struct loop *loop)
{
	int r;

	*pages = (struct shm_pages){.loop = loop, .back = {.callback = on_back, .user = pages}};
	TAILQ_INIT(&pages->posted);
	TAILQ_INIT(&pages->done);
	pages->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pages->fd < 0)
		return -errno;
	pthread_mutex_init(&pages->mutex, NULL);
	pthread_cond_init(&pages->more, NULL);
	r = thread_start(NULL, thread_main, pages, &pages->thread);
	if (r < 0) {
		close(pages->fd);
		return r;
	}
	loop_poll(loop, &pages->back, pages->fd, POLLIN);
	return 0;
}

static void wake(struct shm_pages *pages, bool *what)
{
	pthread_mutex_lock(&pages->mutex);
	*what = true;
	pthread_cond_signal(&pages->more);
	pthread_mutex_unlock(&pages->mutex);
}

void shm_pages_done(struct shm_pages *pages)
{
	wake(pages, &pages->stopping);
	pthread_join(pages->thread, NULL);
	pthread_cond_destroy(&pages->more);
	pthread_mutex_destroy(&pages->mutex);
	close(pages->fd);
}

void shm_pages_post(struct shm_pages *pages, struct shm_chore *chore)
{
	pthread_mutex_lock(&pages->mutex);
	TAILQ_INSERT_TAIL(&pages->posted, chore, link);
	pthread_cond_signal(&pages->more);
	pthread_mutex_unlock(&pages->mutex);
}

void shm_pages_hurry(struct shm_pages *pages)
{
	wake(pages, &pages->hurried);
}
