/* users.h - the users that have sessions. The scheduler's thread alone. */
#ifndef COPPICED_USERS_H
#define COPPICED_USERS_H

#include "core.h"

/* The user of this domain, with one session more. NULL: no memory. */
struct sched_user *user_ref(struct sched_core *core, uint64_t domain);
/* One session less; NULL is fine. */
void user_unref(struct sched_user *user);

/* Who is alone has all turns. */
static inline bool users_are_several(const struct sched_core *core)
{
	const struct sched_user *user = LIST_FIRST(&core->users);

	return user && LIST_NEXT(user, link);
}

#endif
