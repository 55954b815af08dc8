/*
 * pages.h - extents lent to models, and in them pages: who has them, how far they are filled, how
 * many slices use them.
 *
 * Page p of a model with n pages to an extent lies in extent p / n. A page is charged to the domain
 * that took it, whole, and goes back with its last slice. Rows are handed out once, in order
 * (fill); rows that were handed out last may be given back.
 *
 * Pages of an extent belong to one tenant: the model, or of a limited domain its holding of the
 * model. A page keeps all of its extent from others, so a limit on pages alone would let a domain
 * with many models and a page of each take the whole pool; a limited domain is charged whole
 * extents as well, and shares none.
 *
 * With several devices an extent has as much memory on each. Page p of a model that is striped lies
 * on device p mod their number; the pages of others lie on all devices, a part on each. So what
 * holds of extents holds of each device.
 *
 * An extent whose last page goes becomes its model's spare, so that the next page need not pay for
 * fresh memory; if the model has one, it goes back to the pool. Spares are as good as free: whoever
 * finds the pool empty gets them.
 *
 * Of the last extents an account gets another one only while it has fewer than are left: the next
 * who comes finds half of what the last one found, however much those before them hold.
 */
#ifndef COPPICE_KVSTORE_PAGES_H
#define COPPICE_KVSTORE_PAGES_H

#include "proto/must_check.h"
#include "kvstore/store.h"

#include <sys/queue.h>

#define PAGES_NONE UINT32_MAX
#define PAGES_DEVICES_MAX 64u

struct page {
	uint32_t n_slices; /* 0: free */
	uint32_t next_free; /* index in the extent, PAGES_NONE ends */
	uint32_t fill; /* rows handed out, and never handed out before the first */
};

LIST_HEAD(extent_list, extent);
LIST_HEAD(extent_sides, extent_side);

/* The free pages of an extent on one device. */
struct extent_side {
	struct extent *extent;
	uint32_t free_page; /* PAGES_NONE: no page is free */
	/* in the tenant's room for the device, while a page is free */
	LIST_ENTRY(extent_side) link;
};

struct extent {
	struct page *pages; /* owned; NULL: in the pool */
	struct extent_side *sides; /* [model's n_devices]: one is here, several are owned */
	struct extent_side side;
	struct pages_lent *lent; /* whose it is; NULL: the pool's */
	struct pages_tenant *tenant; /* NULL: no page is used */
	uint32_t n_used;
	bool ready; /* free, and has memory: with others like it first of all in the pool */
	LIST_ENTRY(extent) link; /* in pages.free, .vacant or .spares, while no page is used */
};

/* What a domain is charged. */
struct pages_account {
	uint64_t bytes; /* of pages held */
	uint64_t max_bytes; /* 0: no limit */
	uint32_t n_extents; /* where it has a limit */
	uint32_t max_extents; /* 0: no limit, and it shares extents with others that have none */
};

/* The page of an extent that comes next where pages are looked at: pages_look_on. */
struct pages_looked {
	uint64_t look; /* of which look */
	const struct extent *extent; /* NULL: of none yet */
	uint32_t page; /* PAGES_NONE: none does, in it */
};

/* Who shares extents. */
struct pages_tenant {
	struct pages_account *account; /* that is charged for them; NULL: none */
	uint32_t n_extents;
	uint64_t n_free; /* pages */
	struct extent_sides room[PAGES_DEVICES_MAX]; /* of extents, with a free page */
	struct pages_looked looked;
};

/* The extents of one model. */
struct pages_lent {
	uint64_t page_bytes;
	uint32_t page_tokens;
	uint32_t extent_pages; /* a multiple of n_devices */
	uint32_t n_devices; /* that its pages are striped over; 1: a page is on all alike */
	uint64_t part_bytes; /* of a page on a device that has any of it */
	uint32_t n_extents;
	uint64_t n_free; /* pages, of spares too */
	uint32_t n_spares; /* empty ones */
};

/* Who takes pages: of which model, in whose extents, on whose account. */
struct pages_holder {
	struct pages_lent *lent;
	struct pages_tenant *tenant;
	struct pages_account *account;
};

struct pages {
	struct store_pool pool;
	struct extent *extents; /* owned */
	uint32_t n_extents;
	uint32_t n_extents_used;
	uint32_t n_spares; /* of those used */
	uint32_t n_reserved; /* the last of them: for accounts that have fewer than are left */
	uint64_t n_used;
	uint64_t used_bytes;
	uint32_t n_devices;
	uint64_t device_bytes[PAGES_DEVICES_MAX]; /* of those used */
	struct extent_list free;
	struct extent_list spares;
	struct extent_list vacant; /* empty, but somebody may still read from them */
	bool hold; /* extents that get empty become vacant */
	uint64_t n_looks; /* ever */
};

MUST_CHECK int pages_init(struct pages *p, const struct store_config *config);
void pages_done(struct pages *p);

static inline struct extent *pages_extent(const struct pages *p, const struct pages_lent *lent,
					  uint32_t page)
{
	return &p->extents[page / lent->extent_pages];
}
/* Of the extent that has it. */
static inline struct page *pages_in(const struct extent *e, const struct pages_lent *lent,
				    uint32_t page)
{
	return &e->pages[page % lent->extent_pages];
}
static inline struct page *pages_at(const struct pages *p, const struct pages_lent *lent,
				    uint32_t page)
{
	return pages_in(pages_extent(p, lent, page), lent, page);
}
static inline uint32_t pages_device(const struct pages_lent *lent, uint32_t page)
{
	return lent->n_devices > 1 ? page % lent->n_devices : 0;
}
/* Spares go back to the pool, up to n of them. Returns how many have. */
uint32_t pages_give_spares(struct pages *p, uint32_t n);
/* Extents that are free, if there is memory for them, or as good as free. */
uint32_t pages_left(const struct pages *p);
/* May the account (NULL: of no limit) have one more extent of so many that are left? 0, -EDQUOT:
 * not by its own limit, -ENOSPC. */
MUST_CHECK int pages_may_lend(const struct pages *p, const struct pages_account *account,
			      uint32_t n_left);
/* How many extents it may have one after the other, if it has n_own and so many are left; as if it
 * had no limit of its own. */
uint64_t pages_most(const struct pages *p, const struct pages_account *account, uint64_t n_own,
		    uint64_t n_left);
/* A page on a device (0 of a model that is not striped) whose rows are handed out from row on; no
 * slice yet. -ENOSPC: nothing free there in the tenant's extents, and no extent to be had. -EDQUOT:
 * nothing free, and the account may have no more extents. -ENOMEM. */
MUST_CHECK int pages_take(struct pages *p, const struct pages_holder *h, uint32_t device,
			  uint32_t row, uint32_t *ret);
/* The next of the pages that would be taken now, one after the other, of one model by several of
 * its tenants; nothing is taken. PAGES_NONE: there is none, or the model is striped. */
uint32_t pages_look_on(struct pages *p, const struct pages_holder *h, struct store_foresight *look);
/* The empty extent that would be lent next becomes a spare of the model's, with memory, if it has
 * less than n, and than it may. False: not, or there is none. */
bool pages_make_spare(struct pages *p, struct pages_lent *lent, uint32_t n);
/* A free one has memory already: it is lent before others that are free. Or it has none again. */
void pages_set_ready(struct pages *p, uint32_t extent, bool ready);
/* Which of those that are ready is lent last, and which of the other free ones first; PAGES_NONE:
 * there is none. */
uint32_t pages_last_ready(const struct pages *p);
uint32_t pages_next_unready(const struct pages *p);
/* Hands out count rows at fill as a new slice. */
struct store_slice pages_fill(const struct pages *p, const struct pages_lent *lent, uint32_t page,
			      uint32_t count);
/* Rows of a slice that nobody needs; the rest of the slice stays. */
void pages_give_back(const struct pages *p, const struct pages_lent *lent, struct store_slice rows);
/* A slice goes, the page with it if it was the last. */
void pages_drop(struct pages *p, const struct pages_holder *h, struct store_slice slice);

/* A model that goes: its spares go back. */
void pages_leave(struct pages *p, struct pages_lent *lent);

/* What became empty since hold is kept or returned. */
void pages_retire_vacant(struct pages *p);
/* From hold until release pages that go stay readable. */
void pages_hold(struct pages *p);
static inline void pages_release(struct pages *p)
{
	p->hold = false;
	if (!LIST_EMPTY(&p->vacant))
		pages_retire_vacant(p);
}

#endif
