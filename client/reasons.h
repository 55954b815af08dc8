/* reasons.h - a sentence for each reason that the daemon may give for an entry's failure. */
#ifndef COPPICE_CLIENT_REASONS_H
#define COPPICE_CLIENT_REASONS_H

#include <stdint.h>

/* What a completion's `where` counts. */
enum reason_place { REASON_NOWHERE, REASON_SEQ, REASON_TOKEN };

struct reason {
	const char *sentence; /* what was wrong and what to do */
	enum reason_place place; /* in a step; elsewhere `where` can only be a token */
};

/* Never NULL: reasons of a newer daemon get a sentence of their own. */
const struct reason *reason_of(uint16_t reason);

#endif
