/*
 * loader.h - coppiced --loader: a process that reads a client's files for the daemon.
 *
 * A descriptor of a client may hang whoever touches it: a file system of the client's own answers
 * stat, read and close as it likes. So the daemon has none of them. The client sends them to a
 * loader of its own, which has no rights and can be killed, over a socket pair that the daemon has
 * made; what the loader has read comes to the daemon through a small memfd (wire.h).
 */
#ifndef COPPICED_LOADER_H
#define COPPICED_LOADER_H

#include "proto/must_check.h"

/* With the descriptors of wire.h. Exit status. Blocks. */
MUST_CHECK int loader_run(void);

#endif
