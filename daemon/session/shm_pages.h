/*
 * shm_pages.h - a thread that gives shared memory its pages, and takes them back: half a second and
 * more a gigabyte, for which neither the loop nor the scheduler can wait.
 *
 *      loop: shm_pages_post --> the thread: a piece of it, then of another user's --> loop: done
 *
 * All but the thread itself is the loop's.
 */
#ifndef COPPICED_SHM_PAGES_H
#define COPPICED_SHM_PAGES_H

#include "proto/must_check.h"
#include "daemon/loop/loop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

enum shm_chore_kind {
	SHM_FILL, /* every page is there, and mapped */
	SHM_DROP /* the mapping goes, and the pages that nobody else has */
};

/* Something to do with a mapping, which is the thread's until it is done. */
struct shm_chore {
	TAILQ_ENTRY(shm_chore) link;
	enum shm_chore_kind kind;
	char *map; /* lent */
	size_t bytes;
	uid_t uid; /* whose it is: users take turns */
	/* In the loop, once. The chore is its owner's again. */
	void (*done)(struct shm_chore *chore);
	void *user; /* borrowed */
	int code; /* a fill's: 0 or -errno */
	size_t at; /* the thread's: so far it has come */
	_Atomic bool stopped; /* the fill is of no use any more */
};
TAILQ_HEAD(shm_chores, shm_chore);

struct shm_pages {
	struct loop *loop; /* borrowed */
	struct loop_op back;
	int fd; /* owned eventfd: some are done */
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t more;
	struct shm_chores posted, done;
	bool stopping;
	bool hurried;
};

/* Starts the thread. It stays put until shm_pages_done. 0 or -errno. */
MUST_CHECK int shm_pages_init(struct shm_pages *pages, struct loop *loop);
/* Ends the thread after the piece that it is at. */
void shm_pages_done(struct shm_pages *pages);
/* The chore is zeroed but for kind, map, bytes, uid, done and user. Does not block. */
void shm_pages_post(struct shm_pages *pages, struct shm_chore *chore);
/* The process ends, and with it all memory: what is posted is done at once, as it is. */
void shm_pages_hurry(struct shm_pages *pages);

#endif
