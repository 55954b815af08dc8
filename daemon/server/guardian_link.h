/*
 * guardian_link.h - the daemon's side of coppiced --guardian (guardian.h): it hears of every lane. The
 * loop's thread.
 *
 * Nothing waits for the guardian. Where it is absent, or does not read, lanes are told later: once a
 * second.
 */
#ifndef COPPICED_GUARDIAN_LINK_H
#define COPPICED_GUARDIAN_LINK_H

#include "shm.h"

#include <stdint.h>

struct server;
struct session;

struct guardian_link {
	struct server *server; /* borrowed */
	int fd; /* owned; -1: not connected */
	bool absent; /* it was, and the log says so */
};

void guardian_link_init(struct guardian_link *guardian,
			struct server *server); /* connects, where one is configured */
void guardian_link_done(struct guardian_link *guardian);
/* Connects anew where need be, and tells what has not been told. */
void guardian_link_look(struct guardian_link *guardian);
/* The lane goes. Of one that was not told of: nothing. */
void guardian_link_forget(struct guardian_link *guardian, const struct session *session,
			  struct segment *lane);

#endif
