/*
 * guardian_link.h - the daemon's side of coppiced --guardian (guardian.h): it hears of every lane.
 * The loop's thread.
 *
 * Nothing waits for the guardian. Where it is absent, or does not read, lanes are told later: once
 * a second.
 */
#ifndef COPPICED_GUARDIAN_LINK_H
#define COPPICED_GUARDIAN_LINK_H

#include "shm.h"

struct session;
struct sessions;

struct guardian_link {
	struct sessions *home; /* borrowed: whose lanes are told */
	int fd; /* owned; -1: not connected */
	bool absent; /* it was, and the log says so */
};

/* Connects, where a guardian is configured. */
void guardian_link_init(struct guardian_link *link, struct sessions *home);
void guardian_link_done(struct guardian_link *link);
/* Connects anew where need be, and tells what has not been told. */
void guardian_link_look(struct guardian_link *link);
/* The lane goes. Of one that was not told of: nothing. */
void guardian_link_forget(struct guardian_link *link, const struct session *session,
			  struct shm *lane);

#endif
