/* models.h - the daemon's models: a name and a fingerprint, shared by the sessions that open
 * them. */
#ifndef COPPICED_MODELS_H
#define COPPICED_MODELS_H

#include "scheduler.h"

/* Serves MODEL_OPEN: finds or makes the model and gives it a number in the session. */
int model_open(struct sched *s, struct sched_request *rq);
/* Serves MODELS. */
int model_list(struct sched *s, struct sched_request *rq);
void model_unuse(struct sched *s, struct sched_model *model);

#endif
