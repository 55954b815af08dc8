/*
 * models.h - the daemon's models: a name and a fingerprint, shared by the sessions that open them.
 */
#ifndef COPPICED_MODELS_H
#define COPPICED_MODELS_H

#include "daemon/backend/kv_split.h"
#include "scheduler.h"

/* The model that in.model names, of these heads of it; made where there is none, with no user yet.
 * 0, or -errno and a refusal. */
MUST_CHECK int model_find(struct sched *s, struct sched_request *rq,
			  const struct split_heads *heads, struct sched_model **ret);
/* Gone if nobody uses it: after model_find, where that came to nothing. */
void model_settle(struct sched *s, struct sched_model *model);
/* One user less. */
void model_unuse(struct sched *s, struct sched_model *model);

#endif
