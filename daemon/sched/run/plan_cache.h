/*
 * plan_cache.h - plans of decode jobs, kept from batch to batch.
 *
 * The next layer's tree and plan are this one's, and so, but for one token more at the end of each
 * sequence, are the next token's. Lanes that take turns have a plan each. What was used longest ago
 * makes room for what is new, but never a plan of the batch under way.
 */
#ifndef COPPICED_PLAN_CACHE_H
#define COPPICED_PLAN_CACHE_H

#include "daemon/sched/core/core.h"

/* A sequence as it was planned for, or is now: as long as these agree, the plan holds. */
struct plan_query {
	uint64_t handle;
	uint64_t path_version;
	uint32_t n_tokens; /* before the new ones */
	uint32_t n_new;
	/* It comes by one token after the other, of which the last so many lie in one node: a plan
	 * may serve later ones. 0: it does not. */
	uint32_t n_last;
	bool only_appends; /* its rows see nothing */
};

/* What a job looks for: a plan of the model for these sequences, in this order. */
struct plan_key {
	const struct sched_model *model;
	const struct plan_query *queries;
	uint32_t n_queries;
};

/* A tree of paths and how attention over it is cut. Arrays grow, and stay. */
struct plan {
	struct sched_model *model; /* NULL: none */
	struct plan_config config;
	struct work_tree tree;
	struct work_list list; /* owned */
	struct work_node *nodes; /* owned, as the arrays below */
	struct work_slice *slices;
	struct work_query *queries;
	struct plan_query *planned; /* whom it is for, in order of the tree's queries */
	uint32_t nodes_room, slices_room, queries_room, planned_room;
	uint32_t n_planned; /* 0: it is for nobody */
	uint64_t id; /* the backend's; 0: it is not to keep it */
	uint64_t replaces; /* the id of one that is of no more use */
	uint64_t used; /* when last, in uses of plans; 0: it is of no more use */
	bool taken; /* by a job of the batch under way */
	bool advanced; /* the backend has tokens in it that tree and list lack */
	bool ends_soon; /* the backend has room in it for few more */
	bool foreseen; /* for rows that are still to come: what is foreseen later is better */
};

struct plan_cache {
	struct plan **plans; /* owned, and what they point to */
	uint32_t n_plans, plans_room;
	uint64_t last_id;
	uint64_t n_uses;
};

#define PLAN_FITS_NOT UINT32_MAX
#define PLAN_LATER 16u /* tokens at most that a plan may lack */

/* A batch of so many jobs begins: there is room for their plans, and none is taken. 0 or
 * -ENOMEM. */
MUST_CHECK int plan_cache_begin(struct plan_cache *c, uint32_t n_jobs);
/* The plan that fits, which is taken then, and how many tokens later at most the sequences are than
 * it was planned for; NULL: none. */
struct plan *plan_cache_get(struct plan_cache *c, const struct plan_key *key, uint32_t *ret_later);
/* This one is taken. Returns it. */
struct plan *plan_cache_take(struct plan_cache *c, struct plan *plan);
/* What was used longest ago, of no more use now, and taken. Room was reserved. */
struct plan *plan_cache_take_oldest(struct plan_cache *c);
/* This one instead of what was used longest ago, which *plan is then; it is taken. */
struct plan *plan_cache_exchange(struct plan_cache *c, struct plan **plan);
/* Those that fit and are not taken serve nobody any more. Returns the id of one of them; 0: there
 * are none. */
uint64_t plan_cache_drop(struct plan_cache *c, const struct plan_key *key);
/* The model is about to go. */
void plan_cache_forget_model(struct plan_cache *c, const struct sched_model *model);
void plan_cache_done(struct plan_cache *c);

/* How many tokens later than planned for the key's sequences are, most at most, the one that is the
 * latest, if the plan fits them; else PLAN_FITS_NOT. */
uint32_t plan_fit(const struct plan *plan, const struct plan_key *key, uint32_t most);
/* The same of one of its queries. */
uint32_t plan_query_fit(const struct plan_query *planned, const struct plan_query *now,
			uint32_t most);
/* It is of no more use. */
void plan_drop(struct plan *plan);
struct plan *plan_new(void); /* NULL: no memory */
void plan_free(struct plan *plan);

#endif
