/*
 * share.h - what is booked of memory and of names, and how much of it a user may have. All under
 * the table's lock.
 */
#ifndef COPPICED_WEIGHTS_SHARE_H
#define COPPICED_WEIGHTS_SHARE_H

#include "held.h"

/* What there are limits of. */
enum weights_kind { WEIGHTS_MEMORY, WEIGHTS_NAMES };

/* Bytes of all, or of a domain. */
uint64_t share_booked(const struct weights_table *table, enum weights_kind kind,
		      const uid_t *domain);
/* Booked, and so many more: would that be beyond the limit of all, or of a domain? */
bool share_is_beyond(const struct weights_table *table, enum weights_kind kind, const uid_t *domain,
		     uint64_t bytes);
/* May the domain have so many more, where all that nobody refers to goes? 0; -EDQUOT; -ENOSPC;
 * -EUSERS: they are left to others. */
MUST_CHECK int share_check(const struct weights_table *table, enum weights_kind kind, uid_t domain,
			   uint64_t bytes);
/* The last of what all may have, of which a user gets no more than he leaves. */
uint64_t share_reserved_bytes(const struct weights_max *max);
/* May these be somebody's again, by what others leave? */
bool share_may_be_used(const struct weights *weights);

#endif
