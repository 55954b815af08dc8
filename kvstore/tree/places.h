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

/* Would the holding's domain have more than it may, with a page of the holding's more? */
bool places_over_limit(const struct places *p, const struct store_holding *h, enum store_tier tier);
/* Is there a place for a page of the holding's, without anybody making room? */
bool places_has_room(const struct places *p, const struct store_holding *h, enum store_tier tier);
/* Such a place, with one reference and its domain charged. There is room. */
uint32_t places_take(struct places *p, const struct store_holding *h, enum store_tier tier);
/* The same in host memory, for a page that passes through on its way to the file: nobody makes room
 * or is charged. TIER_NONE: there is none. */
uint32_t places_take_passing(struct places *p, const struct store_model *m);
/* A place that was taken elsewhere is the domain's from now on. */
void places_charge(struct places *p, struct store_domain *d, enum store_tier tier, uint32_t place);
void places_ref(struct places *p, enum store_tier tier, uint32_t place);
void places_unref(struct store *s, enum store_tier tier, uint32_t place);

#endif
