/*
 * other_user.h - processes of other users, for tests that root runs.
 */
#ifndef OTHER_USER_H
#define OTHER_USER_H

#include "control_harness.h"

struct other {
	pid_t pid;
	int said; /* owned: what it says can be read here */
};

/* What it does, as its exit status; it may not assert. said: for other_stay. */
typedef int other_life(const struct harness *h, int said);

/* A process of that user that lives so, for a minute at most. */
struct other other_start(const struct harness *h, uid_t uid, other_life *life);
/* Says n to who started it, and stays until it is killed. */
int other_stay(int said, unsigned n);
/* What it says once it stays. */
unsigned other_ready(const struct other *other);
void other_kill(struct other *other);
/* Until it has ended, with 0. */
void other_join(struct other *other);

/* Hello on a connection that has said none; NULL: a hang-up. Does not assert. */
const Coppice__Reply *client_hello(struct client *c);

#endif
