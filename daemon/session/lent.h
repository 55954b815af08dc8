/*
 * lent.h - memory of a device that clients reach by a descriptor: who still has one.
 *
 *      lent_new, before the descriptor goes --> in use --> lent_end --> kept by somebody --> gone
 *
 * What a descriptor names is taken for as long as anybody has it open, in whatever process, mapped
 * or on its way over a socket. So it counts for its user until then, whatever his client says. The
 * loop's thread alone.
 */
#ifndef COPPICED_LENT_H
#define COPPICED_LENT_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct loan;

struct lent {
	int epoll_fd, info_fd; /* owned; -1: this machine does not tell */
	bool has_warned; /* of that, or of descriptors of which it does not */
	char *info; /* owned: what info_fd says */
	size_t info_bytes;
	TAILQ_HEAD(, loan) kept; /* those that have ended */
};

void lent_init(struct lent *lent);
void lent_done(struct lent *lent);
/* What this descriptor names is about to be somebody's, of this user. It ends with lent_end. *ret
 * NULL: it cannot be told who has it, and it counts no longer than until its end. 0 or -errno. */
MUST_CHECK int lent_new(struct lent *lent, int fd, uid_t uid, uint64_t bytes, struct loan **ret);
/* Nothing of it is in use by its session any more. NULL is fine. */
void lent_end(struct lent *lent, struct loan *loan);
/* Of those that have ended, what somebody had when it was last looked: of a user, NULL: of all. */
uint64_t lent_kept_bytes(const struct lent *lent, const uid_t *uid);
/* Looks who has what. Reads a file of the kernel's, some 0.5 us a descriptor. */
void lent_look(struct lent *lent);

#endif
