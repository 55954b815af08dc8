/* models.c - see models.h. */
#include "models.h"

#include "daemon/backend/kv_split.h"
#include "refuse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_LAYERS 1024u
#define MAX_Q_HEADS 1024u

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

static bool is_name(const char *name)
{
	const char *c = name;

	while (*c >= ' ' && *c <= '~')
		c++;
	return c > name && !*c;
}

static int check_shape(const struct sched *s, struct sched_request *rq)
{
	struct work_shape *shape = &rq->in.model.shape;

	if (!is_name(rq->in.model.name))
		return refuse(rq, -EINVAL, "name",
			      "A model needs a name of printable ASCII characters.");
	if (shape->n_layers < 1 || shape->n_layers > MAX_LAYERS)
		return refuse(rq, -EINVAL, "n_layers", "A model has 1 to %u layers, not %u.",
			      MAX_LAYERS, shape->n_layers);
	if (shape->n_kv_heads < 1 || shape->n_kv_heads > 1024)
		return refuse(rq, -EINVAL, "n_kv_heads", "A model has 1 to 1024 KV heads, not %u.",
			      shape->n_kv_heads);
	if (shape->n_q_heads % shape->n_kv_heads || shape->n_q_heads < shape->n_kv_heads ||
	    shape->n_q_heads / shape->n_kv_heads > WORK_HEADS_MAX)
		return refuse(
			rq, -EINVAL, "n_q_heads",
			"%u query heads do not fit %u KV heads: there must be 1 to %u for each.",
			shape->n_q_heads, shape->n_kv_heads, WORK_HEADS_MAX);
	if (shape->n_q_heads > MAX_Q_HEADS)
		return refuse(rq, -EINVAL, "n_q_heads",
			      "A model has at most %u query heads, not %u.", MAX_Q_HEADS,
			      shape->n_q_heads);
	if (!isfinite(shape->scale) || shape->scale < 0)
		return refuse(rq, -EINVAL, "scale",
			      "The softmax scale must be positive, or 0 for the default.");
	if (!shape->page_tokens)
		shape->page_tokens = s->core.config->page_tokens;
	if (shape->scale == 0 && shape->head_dim)
		shape->scale = 1.0f / sqrtf((float)shape->head_dim);
	return 0;
}

/* The shape becomes that of the heads that the session brings. Pages of the same number of them are
 * alike, and come from the same extents; what lies in them is told apart by its salt. */
static int take_heads(struct sched_request *rq, struct split_heads *ret)
{
	struct work_shape *shape = &rq->in.model.shape;
	uint32_t first = rq->in.model.first_kv_head, n = rq->in.model.own_kv_heads;

	*ret = (struct split_heads){0};
	if (n == 0 && first != 0)
		return refuse(rq, -EINVAL, "own_kv_heads",
			      "KV heads from the %u-th on, but how many is not said.", first);
	if (first >= shape->n_kv_heads || n > shape->n_kv_heads - first)
		return refuse(rq, -EINVAL,
			      first >= shape->n_kv_heads ? "first_kv_head" : "own_kv_heads",
			      "%u KV heads from head %u on are not among the model's %u.", n, first,
			      shape->n_kv_heads);
	if (n == 0 || n == shape->n_kv_heads)
		return 0;
	*ret = (struct split_heads){.first = first, .all = shape->n_kv_heads};
	shape->n_q_heads = shape->n_q_heads / shape->n_kv_heads * n;
	shape->n_kv_heads = n;
	return 0;
}

static struct sched_model *find(const struct sched *s, const char *name, const uint64_t print[2],
				const struct split_heads *heads)
{
	struct sched_model *model;

	LIST_FOREACH (model, &s->models, link) {
		if (!strcmp(model->name, name) && model->fingerprint[0] == print[0] &&
		    model->fingerprint[1] == print[1] && model->heads.first == heads->first)
			return model;
	}
	return NULL;
}

static int make(struct sched *s, struct sched_request *rq, const uint64_t print[2],
		const struct split_heads *heads, struct sched_model **ret)
{
	struct work_shape *shape = &rq->in.model.shape;
	char why[160] = "", split_why[200] = "";
	uint64_t page_bytes;

	const struct split_question question = {s->core.config, s->core.ops, s->core.backend,
						rq->in.model.name, heads};

	if (split_choose(&question, shape, split_why, sizeof(split_why)) < 0)
		return refuse(rq, -ENOTSUP, heads->all ? "own_kv_heads" : "n_kv_heads", "%s",
			      split_why);
	page_bytes = s->core.ops->page_bytes(s->core.backend, shape, why, sizeof(why));
	if (!page_bytes)
		return refuse(rq, -ENOTSUP, NULL, "%s", why);
	struct sched_model *model = calloc(1, sizeof(*model));

	if (!model)
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	memcpy(model->name, rq->in.model.name, sizeof(model->name));
	model->name[sizeof(model->name) - 1] = 0;
	memcpy(model->fingerprint, print, sizeof(model->fingerprint));
	model->shape = *shape;
	model->heads = *heads;
	model->page_bytes = page_bytes;
	strcpy(model->split_why, split_why);
	s->core.ops->cost(s->core.backend, shape, &model->cost);
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

static int give_number(const struct sched *s, struct sched_request *rq, struct sched_model *model)
{
	struct sched_model **models = rq->session->models;
	uint32_t i = 0;

	while (i < s->core.config->max_models && models[i] && models[i] != model)
		i++;
	if (i == s->core.config->max_models)
		return refuse(rq, -EUSERS, NULL, "The session has %u models, as many as it may.",
			      s->core.config->max_models);
	model->n_users += models[i] == NULL;
	models[i] = model;
	rq->out.model.model = i + 1;
	rq->out.model.page_tokens = model->shape.page_tokens;
	rq->out.model.page_bytes = model->page_bytes;
	return 0;
}

static void model_free(struct sched *s, struct sched_model *model)
{
	batch_forget_model(&s->batch, model);
	LIST_REMOVE(model, link);
	store_model_unref(model->store);
	free(model);
}

int model_open(struct sched *s, struct sched_request *rq)
{
	struct split_heads heads;
	uint64_t print[2];
	int r = check_shape(s, rq);

	if (r == 0)
		r = take_heads(rq, &heads);
	if (r < 0)
		return r;
	fingerprint(s, &rq->in.model.shape, &heads, rq->in.model.weights_hash, print);
	struct sched_model *model = find(s, rq->in.model.name, print, &heads);

	if (!model)
		r = make(s, rq, print, &heads, &model);
	if (r < 0)
		return r;
	r = give_number(s, rq, model);
	if (!model->n_users)
		model_free(s, model);
	return r;
}

void model_unuse(struct sched *s, struct sched_model *model)
{
	if (--model->n_users == 0)
		model_free(s, model);
}

static struct sched_model_info model_info(const struct sched *s, const struct sched_model *model)
{
	struct sched_model_info info = {.shape = model->shape,
					.first_kv_head = model->heads.first,
					.all_kv_heads = model->heads.all,
					.page_bytes = model->page_bytes,
					.n_users = model->n_users,
					.n_devices = s->core.config->n_devices
							     ? s->core.config->n_devices
							     : 1};

	strcpy(info.name, model->name);
	strcpy(info.split_why, model->split_why);
	return info;
}

/* The cursor counts those that were told. */
int model_list(struct sched *s, struct sched_request *rq)
{
	const struct sched_model *model;
	uint64_t index = 0;

	rq->out.models.n = 0;
	rq->out.models.cursor = 0;
	LIST_FOREACH (model, &s->models, link) {
		if (index++ < rq->in.cursor)
			continue;
		if (rq->out.models.n == SCHED_MODELS_PAGE) {
			rq->out.models.cursor = index - 1;
			break;
		}
		rq->out.models.infos[rq->out.models.n++] = model_info(s, model);
	}
	return 0;
}
