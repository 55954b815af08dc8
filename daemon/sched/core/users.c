/*
 * users.c - a user lives from the first of his sessions to the last.
 *
 * Whoever leaves and comes back begins anew: with as much time as who was served last, which is
 * never less than he would have (turns.h).
 */
#include "users.h"

#include <stdlib.h>

static struct sched_user *find(const struct sched_core *core, uint64_t domain)
{
	struct sched_user *user;

	LIST_FOREACH (user, &core->users, link) {
		if (user->domain == domain)
			return user;
	}
	return NULL;
}

static struct sched_user *make(struct sched_core *core, uint64_t domain)
{
	struct sched_user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	user->domain = domain;
	request_queue_init(&user->requests);
	LIST_INSERT_HEAD(&core->users, user, link);
	return user;
}

struct sched_user *user_ref(struct sched_core *core, uint64_t domain)
{
	struct sched_user *user = find(core, domain);

	if (!user)
		user = make(core, domain);
	if (user)
		user->n_sessions++;
	return user;
}

void user_unref(struct sched_user *user)
{
	if (!user || --user->n_sessions)
		return;
	LIST_REMOVE(user, link);
	free(user);
}
