/*
 * models.c - the verbs model_open and models.
 *
 * A model is opened by what it is; the daemon finds or makes the one that has this name and shape.
 * The list says who they are and how their KV lies on devices.
 */
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>
#include <string.h>

/* What this version has no kernels for; the names are the protocol's. */
static const char *model_unserved(const Coppice__ModelOpen *m)
{
	if (m->window)
		return "window";
	if (m->soft_cap != 0) /* NaN too */
		return "soft_cap";
	return m->n_sinks ? "n_sinks" : NULL;
}

enum { DTYPE_FP8_E4M3 = 3, DTYPE_FP8_E5M2 = 4 }; /* of the protocol; its others are work_dtype's */

static bool dtype_check(struct session *s, uint64_t id, uint32_t dtype)
{
	if (dtype == DTYPE_FP8_E4M3 || dtype == DTYPE_FP8_E5M2)
		reply_error(s, id, -EOPNOTSUPP, "dtype",
			    "This version has no kernels for fp8 (%s): use 1 (fp16) or 2 (bf16).",
			    dtype == DTYPE_FP8_E4M3 ? "e4m3" : "e5m2");
	else if (dtype > WORK_BF16)
		reply_error(s, id, -EINVAL, "dtype",
			    "The dtype must be 0 (fp32), 1 (fp16) or 2 (bf16), not %u.", dtype);
	else
		return true;
	return false;
}

static bool model_check(struct session *s, uint64_t id, const Coppice__ModelOpen *m)
{
	size_t name_bytes = strlen(m->name);
	const char *unserved = model_unserved(m);

	if (unserved)
		reply_error(s, id, -EOPNOTSUPP, unserved,
			    "This version has no kernels for %s: it must be 0.", unserved);
	else if (name_bytes < 1 || name_bytes >= sizeof((struct sched_request){0}.in.model.name))
		reply_error(s, id, -EINVAL, "name", "A model's name has 1 to 127 bytes, not %zu.",
			    name_bytes);
	else if (m->head_dim < 16 || m->head_dim > 256 || m->head_dim % 16)
		reply_error(s, id, -EINVAL, "head_dim",
			    "The head dimension must be a multiple of 16 up to 256, not %u.",
			    m->head_dim);
	else if (m->page_tokens && m->page_tokens != 16 && m->page_tokens != 32 &&
		 m->page_tokens != 64)
		reply_error(s, id, -EINVAL, "page_tokens",
			    "A page has 16, 32 or 64 tokens (0: the daemon's choice), not %u.",
			    m->page_tokens);
	else
		return dtype_check(s, id, m->dtype);
	return false;
}

static void open_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ModelOpen *m = message;
	struct request *request;

	if (!model_check(s, id, m))
		return;
	request = request_begin(s, id, &verb_model_open);
	if (!request)
		return;
	strcpy(request->sched.in.model.name, m->name);
	request->sched.in.model.shape = (struct work_shape){
		.n_layers = m->n_layers,
		.n_q_heads = m->n_q_heads,
		.n_kv_heads = m->n_kv_heads,
		.head_dim = m->head_dim,
		.page_tokens = m->page_tokens,
		.dtype = (enum work_dtype)m->dtype,
		.scale = m->scale,
	};
	request->sched.in.model.weights_hash = m->weights_hash;
	request->sched.in.model.first_kv_head = m->first_kv_head;
	request->sched.in.model.own_kv_heads = m->own_kv_heads;
	request_post(request);
}

static void open_answer(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__ModelReply model = COPPICE__MODEL_REPLY__INIT;

	if (reply_failed(request))
		return;
	model.model = request->sched.out.model.model;
	model.page_tokens = request->sched.out.model.page_tokens;
	model.page_bytes = request->sched.out.model.page_bytes;
	reply.model = &model;
	reply_send(request->session, &reply, NULL, 0);
}

const struct verb verb_model_open = {.begin = open_begin,
				     .sched = SCHED_MODEL_OPEN,
				     .answer = open_answer};

/* ---- the list ---- */

static void list_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Models *m = message;
	struct request *request =
		request_begin_lent(s, id, &verb_models,
				   SCHED_MODELS_PAGE * sizeof(struct sched_model_info));

	if (!request)
		return;
	request->sched.in.cursor = m->cursor;
	request->sched.out.models.infos = request->lent;
	request_post(request);
}

static const char *const split_names[] = {"tokens", "heads", "home"};

static void model_row(Coppice__Model *to, struct sched_model_info *from)
{
	coppice__model__init(to);
	to->name = from->name;
	to->n_layers = from->shape.n_layers;
	to->n_q_heads = from->shape.n_q_heads;
	to->n_kv_heads = from->shape.n_kv_heads;
	to->head_dim = from->shape.head_dim;
	to->dtype = from->shape.dtype;
	to->page_tokens = from->shape.page_tokens;
	to->page_bytes = from->page_bytes;
	to->n_sessions = from->n_users;
	to->n_devices = from->n_devices;
	to->split = (char *)split_names[from->shape.split];
	to->split_why = from->split_why;
	to->has_first_kv_head = to->has_all_kv_heads = from->all_kv_heads != 0;
	to->first_kv_head = from->first_kv_head;
	to->all_kv_heads = from->all_kv_heads;
}

static void list_answer(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__ModelsReply models = COPPICE__MODELS_REPLY__INIT;
	Coppice__Model rows[SCHED_MODELS_PAGE], *pointers[SCHED_MODELS_PAGE];

	if (reply_failed(request))
		return;
	models.n_model = request->sched.out.models.n;
	models.model = pointers;
	models.cursor = request->sched.out.models.cursor;
	for (size_t i = 0; i < models.n_model; i++) {
		model_row(&rows[i], &request->sched.out.models.infos[i]);
		pointers[i] = &rows[i];
	}
	reply.models = &models;
	reply_send(request->session, &reply, NULL, 0);
}

const struct verb verb_models = {.begin = list_begin, .sched = SCHED_MODELS, .answer = list_answer};
