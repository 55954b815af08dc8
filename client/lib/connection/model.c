/*
 * model.c - opening models.
 *
 * The daemon gives the same number to the same model: what is remembered of it is the same then. It
 * stays until the connection ends.
 */
#include "model.h"

#include "call.h"
#include "client/lib/base/sized.h"

#include <errno.h>
#include <stdlib.h>

static struct model *find_locked(struct coppice *c, uint32_t id)
{
	for (size_t i = 0; i < c->models.n; i++)
		if (c->models.items[i].id == id)
			return &c->models.items[i];
	return NULL;
}

int model_find(struct coppice *c, uint32_t id, struct model *ret)
{
	struct model *found;

	pthread_mutex_lock(&c->lists_lock);
	found = find_locked(c, id);
	if (found)
		*ret = *found;
	pthread_mutex_unlock(&c->lists_lock);
	if (!found)
		return explain(c->key, -EINVAL,
			       "model %u was not opened on this connection; use the number that "
			       "coppice_model_open gave",
			       id);
	return 0;
}

static int add_locked(struct coppice *c, const struct model *model)
{
	struct model *items;

	if (find_locked(c, model->id))
		return 0;
	items = realloc(c->models.items, (c->models.n + 1) * sizeof(*items));
	if (!items)
		return -ENOMEM;
	c->models.items = items;
	items[c->models.n++] = *model;
	return 0;
}

int model_remember(struct coppice *c, const struct model *model, const char *what)
{
	int r;

	pthread_mutex_lock(&c->lists_lock);
	r = add_locked(c, model);
	pthread_mutex_unlock(&c->lists_lock);
	return r < 0 ? explain(c->key, r, "%s: out of memory", what) : 0;
}

void model_drop_all(struct coppice *c)
{
	free(c->models.items);
	c->models.items = NULL;
	c->models.n = 0;
}

static struct model model_of(const struct coppice_model_info *info,
			     const Coppice__ModelReply *reply)
{
	uint32_t element_bytes = info->dtype == COPPICE_FP32 ? 4 : 2;
	uint32_t n_kv = info->own_kv_heads ? info->own_kv_heads : info->n_kv_heads;
	uint32_t n_q = info->n_kv_heads ? info->n_q_heads / info->n_kv_heads * n_kv : 0;

	return (struct model){
		.id = reply->model,
		.q_row_bytes = n_q * info->head_dim * element_bytes,
		.kv_row_bytes = n_kv * info->head_dim * element_bytes,
		.lse_row_bytes = n_q * (uint32_t)sizeof(float),
		.page_tokens = reply->page_tokens,
		.page_bytes = reply->page_bytes,
	};
}

static Coppice__ModelOpen message_of(const struct coppice_model_info *info)
{
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

	m.name = (char *)info->name;
	m.n_layers = info->n_layers;
	m.n_q_heads = info->n_q_heads;
	m.n_kv_heads = info->n_kv_heads;
	m.head_dim = info->head_dim;
	m.dtype = (uint32_t)info->dtype;
	m.has_page_tokens = info->page_tokens != 0;
	m.page_tokens = info->page_tokens;
	m.has_scale = info->scale != 0;
	m.scale = info->scale;
	m.has_weights_hash = info->weights_hash != 0;
	m.weights_hash = info->weights_hash;
	m.has_first_kv_head = info->first_kv_head != 0;
	m.first_kv_head = info->first_kv_head;
	m.has_own_kv_heads = info->own_kv_heads != 0;
	m.own_kv_heads = info->own_kv_heads;
	m.has_window = info->window != 0;
	m.window = info->window;
	m.has_soft_cap = info->soft_cap != 0;
	m.soft_cap = info->soft_cap;
	m.has_n_sinks = info->n_sinks != 0;
	m.n_sinks = info->n_sinks;
	return m;
}

static int check_info(struct coppice *c, const struct coppice_model_info *info)
{
	struct sized_caller caller = {c->key, "coppice_model_open"};
	int r = connection_check(c);

	if (r == 0)
		r = sized_check(caller, info, sizeof(*info));
	if (r < 0)
		return r;
	if (!info->name || !*info->name)
		return explain(c->key, -EINVAL, "coppice_model_open: the model has no name");
	return 0;
}

int coppice_model_open(struct coppice *c, const struct coppice_model_info *info,
		       uint32_t *ret_model)
{
	struct call call = call_of("coppice_model_open");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	Coppice__ModelOpen message = message_of(info);
	struct model model;
	int r = check_info(c, info);

	if (r < 0)
		return r;
	call.request.model_open = &message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->model)
		return call_bad_answer(c, call.what);
	model = model_of(info, answer.reply->model);
	r = model_remember(c, &model, call.what);
	if (r < 0)
		return r;
	*ret_model = model.id;
	return 0;
}

int coppice_model_query(struct coppice *c, uint32_t id, struct coppice_model_layout *ret)
{
	struct sized_caller caller = {c->key, "coppice_model_query"};
	struct model model;
	int r = connection_check(c);

	if (r == 0)
		r = model_find(c, id, &model);
	if (r < 0)
		return r;
	struct coppice_model_layout layout = {
		.page_tokens = model.page_tokens,
		.page_bytes = model.page_bytes,
		.q_row_bytes = model.q_row_bytes,
		.kv_row_bytes = model.kv_row_bytes,
		.lse_row_bytes = model.lse_row_bytes,
	};

	return sized_fill(caller, ret, &layout, sizeof(layout));
}
