/*
 * spawn.h - a loader process, and what the daemon holds of it.
 */
#ifndef COPPICED_WEIGHTS_SPAWN_H
#define COPPICED_WEIGHTS_SPAWN_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct loader_process {
	pid_t pid; /* 0: there is none */
	int fd; /* owned socket to it; -1 */
	uint8_t *slots; /* owned mapping, LOADER_SLOTS_BYTES; it may scribble there */
};

/* Starts `program --loader`. client_fd: its end of a socket pair with the client, borrowed. 0 or
 * -errno. Any thread, which has to stay until the loader has ended. */
MUST_CHECK int loader_spawn(const char *program, int client_fd, struct loader_process *ret);
/* Kills it, and waits a moment for it to be gone: false where it is not, as one that hangs in a
 * close; then its pid stays for loader_is_gone. A zeroed struct is fine. */
bool loader_kill(struct loader_process *process);
/* Has it gone meanwhile? Does not block. */
bool loader_is_gone(pid_t pid);

#endif
