/*
 * sessions.h - the clients that are connected, but for coppicectl itself.
 */
#ifndef CTL_SESSIONS_H
#define CTL_SESSIONS_H

#include "ctl.h"
#include "listing.h"

/* The verb. 0, or -errno with ctl->call.error. */
MUST_CHECK int sessions_run(struct ctl *ctl);

/* Those that the caller may see, without our own. As listing_read. */
MUST_CHECK int sessions_read(struct ctl *ctl, struct listing *ret);

#endif
