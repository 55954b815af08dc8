/* heads.h - what every backend asks of a model's numbers of layers and heads. */
#ifndef COPPICE_KERNELS_HEADS_H
#define COPPICE_KERNELS_HEADS_H

#include "say.h"
#include "work.h"

#include <stdbool.h>

/* False: error says why not. */
static inline bool heads_check(const struct work_shape *s, char *error, size_t error_bytes)
{
	if (s->n_layers == 0 || s->n_kv_heads == 0 || s->n_q_heads == 0)
		say(error, error_bytes, "a model needs layers, query heads and KV heads");
	else if (s->n_q_heads % s->n_kv_heads != 0)
		say(error, error_bytes, "%u query heads are no multiple of %u KV heads",
		    s->n_q_heads, s->n_kv_heads);
	else if (s->n_q_heads / s->n_kv_heads > WORK_HEADS_MAX)
		say(error, error_bytes, "%u query heads to a KV head; at most %u can be done",
		    s->n_q_heads / s->n_kv_heads, WORK_HEADS_MAX);
	else if (s->n_q_heads > WORK_Q_HEADS_MAX)
		say(error, error_bytes, "%u query heads; a model has at most %u", s->n_q_heads,
		    WORK_Q_HEADS_MAX);
	else
		return true;
	return false;
}

#endif
