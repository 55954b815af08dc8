/* reasons.h - a sentence for each reason that the daemon may give for an entry's failure. */
#ifndef COPPICE_CLIENT_REASONS_H
#define COPPICE_CLIENT_REASONS_H

#include <stdbool.h>
#include <stdint.h>

struct reason {
	const char *sentence; /* what was wrong and what to do */
	bool names_seq; /* in a step: the completion's `where` is the sequence's index */
};

/* status: of the entry, which tells what was cancelled from what was refused. Never NULL: reasons
 * of a newer daemon get a sentence of their own. */
const struct reason *reason_of(uint16_t reason, int32_t status);

#endif
