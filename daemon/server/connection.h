/*
 * connection.h - packets of a client, as the loop brings them.
 */
#ifndef COPPICED_CONNECTION_H
#define COPPICED_CONNECTION_H

#include "daemon/loop/loop.h"

/* The receive operation of a session, which is its user: in a turn of that session's user's serves
 * the packet, and waits for the next one, or frees the session if it is over. */
void connection_packet(struct loop_op *op, int result);

#endif
