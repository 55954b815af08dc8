/*
 * places.h - room for pages below the device: places in host memory and in the file, who refers to
 * them, and which domain is charged.
 *
 * Whose slices go to make room is decided above (tiers/demote.h); here a place is had or it is not.
 */
#ifndef COPPICE_KVSTORE_PLACES_H
#define COPPICE_KVSTORE_PLACES_H

#include "core.h"

/* Units of a page of the model in either tier; 0: it is too large, and never leaves the device but
 * to go. */
uint32_t places_units(const struct places *p, const struct store_model *m);
struct tier_room *places_room(const struct places *p, enum store_tier tier);

/* Units of the tier that the holding's domain may have once it has a page of the holding's more: a
 * page less than now, if that is more than its limit, as a restart may have found it. So nothing
 * goes at once, and it comes to its limit. */
uint64_t places_most(const struct places *p, const struct store_holding *h, enum store_tier tier);
/* Would it have more than so many, with that page? */
bool places_over(const struct places *p, const struct store_holding *h, enum store_tier tier,
		 uint64_t most);
/* Is there a place for the page, without anybody making room? */
bool places_has_room(const struct places *p, const struct store_holding *h, enum store_tier tier,
		     uint64_t most);
/* Such a place, with one reference and its domain charged. There is room. */
uint32_t places_take(struct places *p, const struct store_holding *h, enum store_tier tier);
/* The same in host memory, for a page that passes through on its way to the file: nobody makes room
 * or is charged. TIER_NONE: there is none. */
uint32_t places_take_passing(struct places *p, const struct store_model *m);
/* A place that a restart found is the domain's from now on, however many it has. */
void places_found(struct places *p, struct store_domain *d, enum store_tier tier, uint32_t place);
void places_ref(struct places *p, enum store_tier tier, uint32_t place);
void places_unref(struct store *s, enum store_tier tier, uint32_t place);

#endif
