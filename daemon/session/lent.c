/*
 * lent.c - who has what is asked of an epoll set: it has the file that a descriptor stands for
 * until the last one of it is closed, wherever that is, and keeps no file open itself. The daemon
 * closes its own when it has sent it. What the set has the kernel says in /proc/self/fdinfo.
 *
 * Invariant: a loan that has ended is in kept, and counts, until a look has not found it. A look
 * that cannot be had finds all of them.
 */
#include "lent.h"

#include "daemon/base/log.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define INFO_BYTES ((size_t)64 << 10)

struct loan {
	TAILQ_ENTRY(loan) link; /* once it has ended */
	uint64_t bytes;
	uid_t uid;
	bool is_open; /* as of the last look */
};

static void shut(struct lent *lent)
{
	if (lent->epoll_fd >= 0)
		close(lent->epoll_fd);
	if (lent->info_fd >= 0)
		close(lent->info_fd);
	free(lent->info);
	lent->epoll_fd = lent->info_fd = -1;
	lent->info = NULL;
	lent->info_bytes = 0;
}

void lent_done(struct lent *lent)
{
	struct loan *loan;

	while ((loan = TAILQ_FIRST(&lent->kept))) {
		TAILQ_REMOVE(&lent->kept, loan, link);
		free(loan);
	}
	shut(lent);
}

static int open_set(struct lent *lent)
{
	char path[64];

	lent->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (lent->epoll_fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", lent->epoll_fd);
	lent->info_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (lent->info_fd < 0)
		return -errno;
	lent->info = malloc(INFO_BYTES);
	lent->info_bytes = INFO_BYTES;
	return lent->info ? 0 : -ENOMEM;
}

/* ---- what the set has ----------------------------------------------------------------------- */

static int grow(struct lent *lent)
{
	char *more = realloc(lent->info, 2 * lent->info_bytes);

	if (!more)
		return -ENOMEM;
	lent->info = more;
	lent->info_bytes *= 2;
	return 0;
}

/* All of it as text. The kernel puts it together anew from its beginning on. 0 or -errno. */
static int read_info(struct lent *lent)
{
	size_t have = 0;
	ssize_t n = 1;

	if (lseek(lent->info_fd, 0, SEEK_SET) < 0)
		return -errno;
	while (n > 0) {
		if (have + 1 == lent->info_bytes && grow(lent) < 0)
			return -ENOMEM;
		n = read(lent->info_fd, lent->info + have, lent->info_bytes - have - 1);
		if (n < 0)
			return -errno;
		have += (size_t)n;
	}
	lent->info[have] = '\0';
	return 0;
}

/* What each line has of ours is the loan. Nobody else adds any. */
static void note_open(struct lent *lent)
{
	static const char word[] = " data:";

	for (char *at = lent->info; (at = strstr(at, word));) {
		struct loan *loan;

		at += sizeof(word) - 1;
		loan = (struct loan *)(uintptr_t)strtoull(at, &at, 16);
		loan->is_open = true;
	}
}

void lent_look(struct lent *lent)
{
	struct loan *loan, *next;

	if (TAILQ_EMPTY(&lent->kept) || read_info(lent) < 0)
		return;
	TAILQ_FOREACH (loan, &lent->kept, link)
		loan->is_open = false;
	note_open(lent);
	for (loan = TAILQ_FIRST(&lent->kept); loan; loan = next) {
		next = TAILQ_NEXT(loan, link);
		if (loan->is_open)
			continue;
		TAILQ_REMOVE(&lent->kept, loan, link);
		free(loan);
	}
}

/* ---- loans ---------------------------------------------------------------------------------- */

static int watch(struct lent *lent, int fd, struct loan *loan)
{
	struct epoll_event event = {.data.ptr = loan};

	return epoll_ctl(lent->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Does the set tell of what it has? */
static int try_watch(struct lent *lent)
{
	struct loan loan = {.is_open = false};
	CLEANUP_FD int fd = eventfd(0, EFD_CLOEXEC);
	int r = fd < 0 ? -errno : watch(lent, fd, &loan);

	if (r == 0)
		r = read_info(lent);
	if (r == 0)
		note_open(lent);
	return r < 0 ? r : loan.is_open ? 0 : -ENOTSUP;
}

void lent_init(struct lent *lent)
{
	int r;

	*lent = (struct lent){.epoll_fd = -1, .info_fd = -1};
	TAILQ_INIT(&lent->kept);
	r = open_set(lent);
	if (r == 0)
		r = try_watch(lent);
	if (r == 0)
		return;
	log_debug("no list of what epoll watches: %s", strerror(-r));
	shut(lent);
}

static void warn_once(struct lent *lent)
{
	if (!lent->has_warned)
		log_warning("who has device memory open cannot be told on this machine: what "
			    "clients keep of what they free is in no account");
	lent->has_warned = true;
}

int lent_new(struct lent *lent, int fd, uid_t uid, uint64_t bytes, struct loan **ret)
{
	struct loan *loan = malloc(sizeof(*loan));
	int r = -EPERM;

	if (!loan)
		return -ENOMEM;
	*loan = (struct loan){.bytes = bytes, .uid = uid};
	if (lent->epoll_fd >= 0)
		r = watch(lent, fd, loan);
	if (r == 0) {
		*ret = loan;
		return 0;
	}
	free(loan);
	if (r != -EPERM)
		return r;
	warn_once(lent);
	*ret = NULL;
	return 0;
}

void lent_end(struct lent *lent, struct loan *loan)
{
	if (loan)
		TAILQ_INSERT_TAIL(&lent->kept, loan, link);
}

uint64_t lent_kept_bytes(const struct lent *lent, const uid_t *uid)
{
	const struct loan *loan;
	uint64_t bytes = 0;

	TAILQ_FOREACH (loan, &lent->kept, link)
		bytes += !uid || loan->uid == *uid ? loan->bytes : 0;
	return bytes;
}
