/*
 * guardian_link.h - the daemon's side of coppiced --keep (guardian.h): it hears of every lane. The
 * loop's thread.
 *
 * Nothing waits for the keeper. Where it is absent, or does not read, lanes are told later: once a
 * second.
 */
#ifndef COPPICED_KEEPER_H
#define COPPICED_KEEPER_H

#include "shm.h"

#include <stdint.h>

struct server;
struct session;

struct keeper {
	struct server *server; /* borrowed */
	int fd; /* owned; -1: not connected */
	bool absent; /* it was, and the log says so */
};

void keeper_init(struct keeper *keeper,
		 struct server *server); /* connects, where one is configured */
void keeper_done(struct keeper *keeper);
/* Connects anew where need be, and tells what has not been told. */
void keeper_look(struct keeper *keeper);
/* The lane goes. Of one that was not told of: nothing. */
void keeper_forget(struct keeper *keeper, const struct session *session, struct segment *lane);

#endif
