/* daemon.h - a coppiced of the bench's own, on a private socket, for as long as the bench lasts. */
#ifndef COPPICE_BENCH_DAEMON_H
#define COPPICE_BENCH_DAEMON_H

#include <jansson.h>
#include <sys/types.h>

struct bench_daemon {
	char dir[64]; /* temporary, removed at the end */
	char socket[80];
	pid_t pid;
};

/* Starts coppiced pinned to a core (-1: anywhere) with extra flags (NULL-terminated) and waits
 * until it listens. Ends the program with a sentence where that fails. */
void bench_daemon_start(struct bench_daemon *d, int core, const char *const *flags);
void bench_daemon_stop(struct bench_daemon *d);

/* What `coppicectl --json VERB` says of it; the caller's reference. Ends the program where that
 * fails. */
json_t *bench_daemon_ask(const struct bench_daemon *d, const char *verb);

/* Pins the calling thread to one of the cores that the program was given, from 0; -1: to them all.
 * The program's first call comes before it has other threads. */
void bench_pin(int core);
/* A program of this build: from COPPICE_BIN_DIR at run time, else where it was built. */
void bench_program(const char *folder, const char *name, char *ret_path, size_t bytes);

#endif
