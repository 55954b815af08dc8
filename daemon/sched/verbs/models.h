/*
 * models.h - the daemon's models: a name and a fingerprint, shared by the sessions that open them.
 */
#ifndef COPPICED_MODELS_H
#define COPPICED_MODELS_H

#include "daemon/backend/kv_split.h"
#include "scheduler.h"

/* What it is to be, and what it became. */
struct model_call {
	char name[128];
	/* page_tokens 0: the daemon's choice; scale 0: 1 / sqrt(head_dim) */
	struct work_shape shape;
	uint64_t weights_hash;
	/* the shape's that are meant; 0, 0: all */
	uint32_t first_kv_head, own_kv_heads;
	const struct held_program *program; /* NULL: sessions compute it */
	/* answered */
	uint32_t model, page_tokens;
	uint64_t page_bytes;
};

/* The model that the request's room, a model_call, describes, of these heads of it; made where
 * there is none, with no user yet. 0, or -errno and a refusal. */
MUST_CHECK int model_find(struct sched *s, struct sched_request *rq,
			  const struct split_heads *heads, struct sched_model **ret);
/* The same, if there is one already; NULL: not. */
struct sched_model *model_look(const struct sched *s, const struct model_call *call,
			       const struct split_heads *heads);
/* Gone if nobody uses it: after model_find, where that came to nothing. */
void model_free_unused(struct sched *s, struct sched_model *model);
/* One user less. */
void model_unuse(struct sched *s, struct sched_model *model);

#endif
