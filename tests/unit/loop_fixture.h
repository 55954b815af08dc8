/*
 * loop_fixture.h - a loop of either kind that a test cannot hang in, and operations that keep a
 * record of what came back.
 */
#ifndef COPPICE_TESTS_LOOP_FIXTURE_H
#define COPPICE_TESTS_LOOP_FIXTURE_H

#include "daemon/loop/loop_new.h"
#include "proto/clock.h"

#include <sys/un.h>

#define MS UINT64_C(1000000)

struct context {
	struct loop *loop;
	struct loop_op alarm; /* no test runs longer than this */
};

/* An operation with a record of what came back. */
struct probe {
	struct loop_op op;
	struct context *context;
	int results[64];
	bool last[64];
	unsigned n, stop_after;
	void (*also)(struct probe *probe);
};

/* Does the kernel let this process have one? */
bool loop_has_uring(void);
int loop_setup_uring(void **state);
int loop_setup_epoll(void **state);
int loop_teardown(void **state);

/* The loop stops after so many results. */
struct probe loop_probe(struct context *context, unsigned stop_after);
/* Ready to be started. */
struct loop_op *loop_probe_op(struct probe *probe);
void loop_run_out(struct context *context);
/* A listening socket under an abstract name that the kernel chooses, and one connected to it. */
int loop_listener(struct sockaddr_un *ret_name, socklen_t *ret_bytes);
int loop_dial(const struct sockaddr_un *name, socklen_t bytes);

#endif
