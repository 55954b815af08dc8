/*
 * models.h - what opening a model and giving a program have in common. The request's room begins
 * with a struct model_call.
 */
#ifndef COPPICED_CONTROL_MODELS_H
#define COPPICED_CONTROL_MODELS_H

#include "daemon/sched/verbs/models.h"
#include "daemon/session/request.h"

/* The scheduler's thread: checks what the room says and finds or makes the model. 0, or -errno and
 * a refusal; with 0 model_free_unused is to follow. */
MUST_CHECK int model_take(struct sched *s, struct sched_request *rq, struct sched_model **ret);
/* Is it there, and its program ready? Then it is given at once. */
bool model_is_ready(const struct sched *s, const struct sched_request *rq);
/* The session has it from now on, by the number in the room. 0, or -EUSERS and a refusal. */
MUST_CHECK int model_give_number(const struct sched *s, struct sched_request *rq,
				 struct sched_model *model);
/* The loop's. */
void model_answer(struct request *request);

#endif
