/* evict.h - what the verb evict takes and gives. */
#ifndef COPPICED_EVICT_H
#define COPPICED_EVICT_H

#include <stdbool.h>
#include <stdint.h>

struct evict_call {
	char model[128]; /* empty: all */
	uint64_t n_pages; /* that are wanted; 0: all that can go */
	bool pinned; /* pins end where nothing else can go */
	/* answered: of this turn, and whether more may go in another, some when copies to lower
	 * tiers have ended */
	uint64_t n_gone;
	bool more;
	uint64_t n_pins; /* ended, in all turns */
	uint64_t n_gone_in_all; /* turns; the loop's */
};

#endif
