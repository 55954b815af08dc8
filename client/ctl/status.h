/*
 * status.h - what the daemon is, holds and has done.
 */
#ifndef CTL_STATUS_H
#define CTL_STATUS_H

#include "ctl.h"

/* The verb. 0, or -errno with ctl->call.error. */
MUST_CHECK int status_run(struct ctl *ctl);

/* The reply to it, which has its status; the caller's, as call_ask's. */
MUST_CHECK int status_read(struct ctl *ctl, Coppice__Reply **ret);

/* A line, behind a title, of what KV and weights have; none where it is not told. */
void status_print_memory(const char *title, const Coppice__StatusReply *s);

#endif
