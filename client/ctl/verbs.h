/*
 * verbs.h - the verbs that ask once and print once. Each returns 0, or -errno with ctl->call.error.
 */
#ifndef CTL_VERBS_H
#define CTL_VERBS_H

#include "ctl.h"

int verbs_status(struct ctl *ctl);
int verbs_sessions(struct ctl *ctl);
int verbs_pin(struct ctl *ctl);
int verbs_unpin(struct ctl *ctl);
int verbs_evict(struct ctl *ctl);
int verbs_drain(struct ctl *ctl);

/* One look at the daemon: its counters and all its sessions. */
struct verbs_look {
	Coppice__Reply *status; /* owned */
	Coppice__Session **sessions; /* owned, each and all */
	size_t n_sessions;
};

int verbs_look_status(struct ctl *ctl, struct verbs_look *look);
int verbs_look_sessions(struct ctl *ctl, struct verbs_look *look);
void verbs_look_done(struct verbs_look *look); /* empties it; fine on an empty one */

/* Standard output, as the other verbs. */
void verbs_print_sessions(Coppice__Session *const *sessions, size_t n);

#endif
