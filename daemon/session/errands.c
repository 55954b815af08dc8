/*
 * errands.c - turns of users in the loop.
 *
 * All errands go this way, however few there are: then who waits for whom is seen in one place. A
 * turn of the loop takes as long as each user's part of it, and those who come meanwhile have
 * theirs in the next one. It costs no system call: the loop asks for events in between, and does
 * not wait for them.
 */
#include "errands.h"

#include "proto/clock.h"

#include <stdlib.h>

/* The last of what a user has may take him with it: who calls this refers to him. */
static void user_serve(struct errands_user *user)
{
	uint64_t end_ns = clock_now_ns() + ERRANDS_NS;
	struct errand *errand;

	while ((errand = TAILQ_FIRST(&user->errands))) {
		TAILQ_REMOVE(&user->errands, errand, link);
		errand->waits = false;
		errand->serve(errand);
		if (clock_now_ns() >= end_ns)
			return;
	}
}

/* A user with errands has a turn, and the loop comes back for it. */
static void turn_add(struct errands_user *user)
{
	struct errands *errands = user->home;

	user->has_some = true;
	TAILQ_INSERT_TAIL(&errands->turns, user, turn);
	if (!errands->soon.live)
		loop_soon(errands->loop, &errands->soon);
}

static void turn_have(struct errands_user *user)
{
	user->n_refs++;
	user_serve(user);
	user->has_some = false;
	if (!TAILQ_EMPTY(&user->errands))
		turn_add(user);
	errands_user_unref(user);
}

static void on_turn(struct loop_op *op, int result)
{
	struct errands *errands = op->user;
	struct errands_turns turns = TAILQ_HEAD_INITIALIZER(turns);
	struct errands_user *user;

	(void)result; /* it is never cancelled */
	TAILQ_CONCAT(&turns, &errands->turns, turn);
	while ((user = TAILQ_FIRST(&turns))) {
		TAILQ_REMOVE(&turns, user, turn);
		turn_have(user);
	}
}

void errands_init(struct errands *errands, struct loop *loop)
{
	*errands = (struct errands){.loop = loop, .soon = {.callback = on_turn, .user = errands}};
	LIST_INIT(&errands->users);
	TAILQ_INIT(&errands->turns);
}

static struct errands_user *user_find(const struct errands *errands, uid_t uid)
{
	struct errands_user *user;

	LIST_FOREACH (user, &errands->users, link) {
		if (user->uid == uid)
			return user;
	}
	return NULL;
}

static struct errands_user *user_make(struct errands *errands, uid_t uid)
{
	struct errands_user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	user->home = errands;
	user->uid = uid;
	TAILQ_INIT(&user->errands);
	LIST_INSERT_HEAD(&errands->users, user, link);
	return user;
}

struct errands_user *errands_user_ref(struct errands *errands, uid_t uid)
{
	struct errands_user *user = user_find(errands, uid);

	if (!user)
		user = user_make(errands, uid);
	if (user)
		user->n_refs++;
	return user;
}

void errands_user_unref(struct errands_user *user)
{
	if (!user || --user->n_refs)
		return;
	LIST_REMOVE(user, link);
	free(user);
}

void errand_add(struct errands_user *user, struct errand *errand)
{
	errand->waits = true;
	TAILQ_INSERT_TAIL(&user->errands, errand, link);
	if (!user->has_some)
		turn_add(user);
}
