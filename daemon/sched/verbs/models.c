/*
 * models.c - one model for all sessions that open the same.
 *
 * Sessions share a model if its name and its fingerprint are the same, and the heads that they
 * bring; of a program if they are of one user. It lives while one of them has it; its KV may
 * outlive it in the store and in the file, and is that of every model of its name and fingerprint.
 */
#include "models.h"

#include "refuse.h"

#include "daemon/program/held_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Everything that changes KV, its place or, as KV outlives the daemon in files, how it lies in a
 * page: same name, other fingerprint, other KV. */
static void fingerprint(const struct sched *s, const struct work_shape *shape,
			const struct split_heads *heads, uint64_t weights_hash, uint64_t ret[2])
{
	struct {
		uint32_t n_layers, n_q_heads, n_kv_heads, head_dim, page_tokens, dtype;
		uint64_t weights_hash, layout;
		uint32_t scale_bits, all_heads;
	} of = {shape->n_layers,
		shape->n_q_heads,
		shape->n_kv_heads,
		shape->head_dim,
		shape->page_tokens,
		shape->dtype,
		weights_hash,
		s->core.ops->tier ? s->core.ops->tier->layout(s->core.backend) : 0,
		0,
		heads->all};

	memcpy(&of.scale_bits, &shape->scale, sizeof(of.scale_bits));
	XXH128_hash_t hash = XXH3_128bits(&of, sizeof(of));

	ret[0] = hash.low64;
	ret[1] = hash.high64;
}

/* Users share no weights, and what a program may be asked for is no part of its name. */
static bool serves(const struct sched_model *model, const struct held_program *program)
{
	const struct held_program *own = model->program;

	return !program || (own && own->weights->domain == program->weights->domain &&
			    own->program.max_positions == program->program.max_positions);
}

static struct sched_model *find(const struct sched *s, const struct model_call *call,
				const uint64_t print[2], const struct split_heads *heads)
{
	struct sched_model *model;

	LIST_FOREACH (model, &s->models, link) {
		if (!strcmp(model->name, call->name) && model->fingerprint[0] == print[0] &&
		    model->fingerprint[1] == print[1] && model->heads.first == heads->first &&
		    serves(model, call->program))
			return model;
	}
	return NULL;
}

static int make(struct sched *s, struct sched_request *rq, const uint64_t print[2],
		const struct split_heads *heads, struct sched_model **ret)
{
	struct model_call *call = rq->room;
	struct work_shape *shape = &call->shape;
	char why[160] = "", split_why[200] = "";
	uint64_t page_bytes;

	const struct split_question question = {s->core.config, s->core.ops, s->core.backend,
						call->name, heads};

	if (split_choose(&question, shape, split_why, sizeof(split_why)) < 0)
		return refuse(rq, -ENOTSUP, heads->all ? "own_kv_heads" : "n_kv_heads", "%s",
			      split_why);
	page_bytes = s->core.ops->page_bytes(s->core.backend, shape, why, sizeof(why));
	if (!page_bytes)
		return refuse(rq, -ENOTSUP, NULL, "%s", why);
	struct sched_model *model = calloc(1, sizeof(*model));

	if (!model)
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	memcpy(model->name, call->name, sizeof(model->name));
	model->name[sizeof(model->name) - 1] = 0;
	memcpy(model->fingerprint, print, sizeof(model->fingerprint));
	model->shape = *shape;
	model->heads = *heads;
	model->page_bytes = page_bytes;
	strcpy(model->split_why, split_why);
	s->core.ops->cost(s->core.backend, shape, &model->cost);
	double key_bytes = 2.0 * shape->head_dim * (double)work_dtype_bytes(shape->dtype);

	model->longer = LONGER_NONE;
	model->pair_ns = shape->n_q_heads * key_bytes * model->cost.row_ns_per_byte;
	model->token_ns = shape->n_kv_heads * key_bytes * model->cost.kv_ns_per_byte;
	model->name_ns = PAGE_NS / shape->page_tokens;
	struct store_model_info info = {.name = model->name,
					.fingerprint = {print[0], print[1]},
					.page_tokens = shape->page_tokens,
					.page_bytes = page_bytes,
					.striped = shape->split != WORK_HEADS};
	int r = store_model_open(s->core.store, &info, &model->store);

	if (r < 0) {
		free(model);
		return refuse(rq, r, NULL,
			      "A page of %llu bytes does not fit the pool's extents: fewer tokens "
			      "a page?",
			      (unsigned long long)page_bytes);
	}
	LIST_INSERT_HEAD(&s->models, model, link);
	*ret = model;
	return 0;
}

static void model_free(struct sched *s, struct sched_model *model)
{
	passes_forget_model(&s->passes, model);
	batch_forget_model(&s->batch, model);
	LIST_REMOVE(model, link);
	store_model_unref(model->store);
	held_program_free(model->program, s->core.ops, s->core.backend);
	free(model);
}

struct sched_model *model_look(const struct sched *s, const struct model_call *call,
			       const struct split_heads *heads)
{
	uint64_t print[2];

	fingerprint(s, &call->shape, heads, call->weights_hash, print);
	return find(s, call, print, heads);
}

int model_find(struct sched *s, struct sched_request *rq, const struct split_heads *heads,
	       struct sched_model **ret)
{
	const struct model_call *call = rq->room;
	uint64_t print[2];

	fingerprint(s, &call->shape, heads, call->weights_hash, print);
	*ret = find(s, call, print, heads);
	return *ret ? 0 : make(s, rq, print, heads, ret);
}

void model_free_unused(struct sched *s, struct sched_model *model)
{
	if (!model->n_users)
		model_free(s, model);
}

void model_unuse(struct sched *s, struct sched_model *model)
{
	if (--model->n_users == 0)
		model_free(s, model);
}
