/*
 * top_view.h - two looks at the daemon, and what happened between them as rates.
 */
#ifndef CTL_TOP_VIEW_H
#define CTL_TOP_VIEW_H

#include "ctl.h"
#include "listing.h"

/* What the daemon says of itself, and who is connected, at one time. */
struct top_look {
	Coppice__Reply *status; /* owned; NULL: an empty look */
	struct listing sessions; /* owned */
	uint64_t at_ns;
};

/* Blocks. 0, or -errno with ctl->call.error; top_look_done empties *ret either way. */
MUST_CHECK int top_look_read(struct ctl *ctl, struct top_look *ret);
void top_look_done(struct top_look *look);

/* Prints what happened from then to now, in 80 columns, the busiest sessions first; n_lines at
 * most, 0: any number. 0, or -errno with ctl->call.error. */
MUST_CHECK int top_view_print(struct ctl *ctl, const struct top_look *then, struct top_look *now,
			      size_t n_lines);
/* The counters themselves as an object on a line. As above. */
MUST_CHECK int top_view_print_json(struct ctl *ctl, const struct top_look *now);

#endif
