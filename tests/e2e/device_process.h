/* device_process.h - client processes of device_test.c: started, spoken to over their stdin and
 * stdout, ended. Asserts. */
#ifndef COPPICE_DEVICE_PROCESS_H
#define COPPICE_DEVICE_PROCESS_H

#include <sys/types.h>

struct stem {
	pid_t pid;
	const char *role; /* argv[3], for what is said when it does not end */
	int in, out; /* owned: its stdin and stdout */
};

/* argv up to NULL, argv[0] the program; variable: NAME=VALUE in its environment, or NULL. */
struct stem stem_exec(const char *const *argv, const char *variable);
/* The same in a PID namespace of its own, with this pid there. Where the kernel does not let it,
 * pid is -1. */
struct stem stem_exec_as(const char *const *argv, const char *variable, pid_t pid);
void stem_await_go(const struct stem *stem); /* until it has said "go" */
void stem_go(const struct stem *stem); /* lets it go on */
/* Waits, but not for ever; its exit status, -signal where that ended it. */
int stem_end(struct stem *stem);
void stem_kill(struct stem *stem);

#endif
