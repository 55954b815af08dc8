/*
 * unread.h - which answers with descriptors a client has not read yet.
 *
 * Descriptors on their way count against the daemon's own user, of whom the kernel lets no more
 * than RLIMIT_NOFILE be on their way. They stay so until they are read, or nobody has the other end
 * of the socket open; that the daemon closes its end does not help.
 */
#ifndef COPPICED_UNREAD_H
#define COPPICED_UNREAD_H

#include <stdbool.h>
#include <stdint.h>

#define UNREAD_FDS_AN_ANSWER 2u /* at most */
#define UNREAD_ANSWERS_MAX 64u

struct unread {
	uint64_t n_packets; /* sent so far */
	uint32_t first, n; /* in answers: from first on, round about */
	uint64_t answers[UNREAD_ANSWERS_MAX]; /* by number of packet: those with descriptors */
};

/* A packet has been sent. Not more answers with descriptors than UNREAD_ANSWERS_MAX may be
 * unread. */
void unread_add(struct unread *unread, bool has_fds);
/* Descriptors that may not have been read yet: never too few. fd: the socket. Asks the kernel,
 * where there are any. */
uint32_t unread_fds(struct unread *unread, int fd);

#endif
