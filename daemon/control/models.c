/*
 * models.c - the verbs model_open and models.
 *
 * A model is opened by what it is; the daemon finds or makes the one that has this name and shape.
 * The list says who they are and how their KV lies on devices: to a user, of those that sessions of
 * its own have open, and of these sessions alone.
 */
#include "daemon/base/log_user.h"
#include "daemon/program/held_program.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/models.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "models.h"
#include "verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_LAYERS 1024u

/* What this version has no kernels for; the names are the protocol's. */
static const char *model_unserved(const Coppice__ModelOpen *m)
{
	if (m->window)
		return "window";
	if (m->soft_cap != 0) /* NaN too */
		return "soft_cap";
	return m->n_sinks ? "n_sinks" : NULL;
}

/* What the scheduler's request has no room for. */
static bool message_check(struct session *s, uint64_t id, const Coppice__ModelOpen *m)
{
	size_t name_bytes = strlen(m->name);
	const char *unserved = model_unserved(m);

	if (unserved)
		reply_error(s, id, -EOPNOTSUPP, unserved,
			    "This version has no kernels for %s: it must be 0.", unserved);
	else if (name_bytes < 1 || name_bytes >= sizeof((struct model_call){0}.name))
		reply_error(s, id, -EINVAL, "name", "A model's name has 1 to 127 bytes, not %zu.",
			    name_bytes);
	else if (!strncmp(m->name, HELD_PROGRAM_PREFIX, strlen(HELD_PROGRAM_PREFIX)))
		reply_error(s, id, -EINVAL, "name",
			    "Names that begin with \"%s\" are of models that the daemon runs.",
			    HELD_PROGRAM_PREFIX);
	else
		return true;
	return false;
}

static void open_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ModelOpen *m = message;
	struct request *request;
	struct model_call *call;

	if (!message_check(s, id, m))
		return;
	request = request_begin(s, id, &verb_model_open, sizeof(*call));
	if (!request)
		return;
	call = request->sched.room;
	strcpy(call->name, m->name);
	call->shape = (struct work_shape){
		.n_layers = m->n_layers,
		.n_q_heads = m->n_q_heads,
		.n_kv_heads = m->n_kv_heads,
		.head_dim = m->head_dim,
		.page_tokens = m->page_tokens,
		.dtype = (enum work_dtype)m->dtype,
		.scale = m->scale,
	};
	call->weights_hash = m->weights_hash;
	call->first_kv_head = m->first_kv_head;
	call->own_kv_heads = m->own_kv_heads;
	request_post(request);
}

void model_answer(struct request *request)
{
	const struct model_call *call = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__ModelReply model = COPPICE__MODEL_REPLY__INIT;

	if (reply_failed(request))
		return;
	log_user(request->session->peer.uid, "session %" PRIu64 " opens model %u: \"%s\"",
		 request->session->id, call->model, call->name);
	model.model = call->model;
	model.page_tokens = call->page_tokens;
	model.page_bytes = call->page_bytes;
	reply.model = &model;
	reply_send(request->session, &reply);
}

static bool is_name(const char *name)
{
	const char *c = name;

	while (*c >= ' ' && *c <= '~')
		c++;
	return c > name && !*c;
}

static int heads_check(struct sched_request *rq)
{
	const struct model_call *call = rq->room;
	const struct work_shape *shape = &call->shape;

	if (shape->n_kv_heads < 1 || shape->n_kv_heads > 1024)
		return refuse(rq, -EINVAL, "n_kv_heads", "A model has 1 to 1024 KV heads, not %u.",
			      shape->n_kv_heads);
	if (shape->n_q_heads % shape->n_kv_heads || shape->n_q_heads < shape->n_kv_heads ||
	    shape->n_q_heads / shape->n_kv_heads > WORK_HEADS_MAX)
		return refuse(
			rq, -EINVAL, "n_q_heads",
			"%u query heads do not fit %u KV heads: there must be 1 to %u for each.",
			shape->n_q_heads, shape->n_kv_heads, WORK_HEADS_MAX);
	if (shape->n_q_heads > WORK_Q_HEADS_MAX)
		return refuse(rq, -EINVAL, "n_q_heads",
			      "A model has at most %u query heads, not %u.", WORK_Q_HEADS_MAX,
			      shape->n_q_heads);
	return 0;
}

enum { DTYPE_FP8_E4M3 = 3, DTYPE_FP8_E5M2 = 4 }; /* of the protocol; its others are work_dtype's */

static int dtype_check(struct sched_request *rq)
{
	const struct model_call *call = rq->room;
	unsigned dtype = call->shape.dtype;

	if (dtype == DTYPE_FP8_E4M3 || dtype == DTYPE_FP8_E5M2)
		return refuse(rq, -EOPNOTSUPP, "dtype",
			      "This version has no kernels for fp8 (%s): use 1 (fp16) or 2 (bf16).",
			      dtype == DTYPE_FP8_E4M3 ? "e4m3" : "e5m2");
	if (dtype > WORK_BF16)
		return refuse(rq, -EINVAL, "dtype",
			      "The dtype must be 0 (fp32), 1 (fp16) or 2 (bf16), not %u.", dtype);
	return 0;
}

static int page_check(struct sched_request *rq)
{
	const struct model_call *call = rq->room;
	uint32_t n = call->shape.page_tokens;

	if (n && n != 16 && n != 32 && n != 64)
		return refuse(rq, -EINVAL, "page_tokens",
			      "A page has 16, 32 or 64 tokens (0: the daemon's choice), not %u.",
			      n);
	return 0;
}

static int shape_check(struct sched_request *rq)
{
	const struct model_call *call = rq->room;
	const struct work_shape *shape = &call->shape;

	if (!is_name(call->name))
		return refuse(rq, -EINVAL, "name",
			      "A model needs a name of printable ASCII characters.");
	if (shape->n_layers < 1 || shape->n_layers > MAX_LAYERS)
		return refuse(rq, -EINVAL, "n_layers", "A model has 1 to %u layers, not %u.",
			      MAX_LAYERS, shape->n_layers);
	if (shape->head_dim < 16 || shape->head_dim > 256 || shape->head_dim % 16)
		return refuse(rq, -EINVAL, "head_dim",
			      "The head dimension must be a multiple of 16 up to 256, not %u.",
			      shape->head_dim);
	if (!isfinite(shape->scale) || shape->scale < 0)
		return refuse(rq, -EINVAL, "scale",
			      "The softmax scale must be positive, or 0 for the default.");
	return 0;
}

/* Everything that the message says of the shape, in the order in which it says it. */
static int model_check(struct sched_request *rq)
{
	int r = shape_check(rq);

	if (r == 0)
		r = heads_check(rq);
	if (r == 0)
		r = dtype_check(rq);
	return r == 0 ? page_check(rq) : r;
}

/* What was left to the daemon. */
static void shape_fill(const struct sched *s, struct work_shape *shape)
{
	if (!shape->page_tokens)
		shape->page_tokens = s->core.config->page_tokens;
	if (shape->scale == 0 && shape->head_dim)
		shape->scale = 1.0f / sqrtf((float)shape->head_dim);
}

/* The shape becomes that of the heads that the session brings. Pages of the same number of them are
 * alike, and come from the same extents; what lies in them is told apart by its salt. */
static int take_heads(struct sched_request *rq, struct split_heads *ret)
{
	struct model_call *call = rq->room;
	struct work_shape *shape = &call->shape;
	uint32_t first = call->first_kv_head, n = call->own_kv_heads;

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

int model_give_number(const struct sched *s, struct sched_request *rq, struct sched_model *model)
{
	struct model_call *call = rq->room;
	struct sched_model **models = rq->session->models;
	uint32_t i = 0;

	while (i < s->core.config->max_models && models[i] && models[i] != model)
		i++;
	if (i == s->core.config->max_models)
		return refuse(rq, -EUSERS, NULL,
			      "The session has %u models, as many as it may (max_models).",
			      s->core.config->max_models);
	model->n_users += models[i] == NULL;
	models[i] = model;
	call->model = i + 1;
	call->page_tokens = model->shape.page_tokens;
	call->page_bytes = model->page_bytes;
	return 0;
}

int model_take(struct sched *s, struct sched_request *rq, struct sched_model **ret)
{
	struct model_call *call = rq->room;
	struct split_heads heads;
	int r = model_check(rq);

	if (r < 0)
		return r;
	shape_fill(s, &call->shape);
	r = take_heads(rq, &heads);
	return r < 0 ? r : model_find(s, rq, &heads, ret);
}

bool model_is_ready(const struct sched *s, const struct sched_request *rq)
{
	struct model_call call = *(const struct model_call *)rq->room;
	const struct split_heads all = {0};
	const struct sched_model *model;

	shape_fill(s, &call.shape);
	model = model_look(s, &call, &all);
	return model && model->program && model->program->ready;
}

static int open_serve(struct sched *s, struct sched_request *rq)
{
	struct sched_model *model;
	int r = model_take(s, rq, &model);

	if (r < 0)
		return r;
	r = model_give_number(s, rq, model);
	model_free_unused(s, model);
	return r;
}

const struct verb verb_model_open = {.begin = open_begin,
				     .serve = open_serve,
				     .beside = beside_segments,
				     .answer = model_answer};

/* ---- the list ---- */

#define MODELS_PAGE 64u

struct model_info {
	char name[128];
	struct work_shape shape;
	/* where the shape's are some of them; 0, 0: they are all */
	uint32_t first_kv_head, all_kv_heads;
	uint64_t page_bytes;
	uint32_t n_users, n_devices;
	char split_why[200];
};

/* A page: what is asked and what is answered. */
struct models_page {
	uint64_t cursor;
	uint32_t n;
	struct model_info infos[MODELS_PAGE];
};

static void list_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Models *m = message;
	struct request *request = request_begin(s, id, &verb_models, sizeof(struct models_page));
	struct models_page *page;

	if (!request)
		return;
	page = request->sched.room;
	page->cursor = m->cursor;
	request_post(request);
}

static const char *const split_names[] = {"tokens", "heads", "home"};

static void model_row(Coppice__Model *to, struct model_info *from)
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
	struct models_page *page = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__ModelsReply models = COPPICE__MODELS_REPLY__INIT;
	Coppice__Model rows[MODELS_PAGE], *pointers[MODELS_PAGE];

	if (reply_failed(request))
		return;
	models.n_model = page->n;
	models.model = pointers;
	models.cursor = page->cursor;
	for (size_t i = 0; i < models.n_model; i++) {
		model_row(&rows[i], &page->infos[i]);
		pointers[i] = &rows[i];
	}
	reply.models = &models;
	reply_send(request->session, &reply);
}

/* Root, the daemon's own user, the daemon itself. */
static bool sees_all(const struct sched_request *rq)
{
	return rq->privileged || !rq->session;
}

/* A page's models: of all those that are listed, n from the first-th on. */
struct models_list {
	uint64_t list; /* its number: which models have been seen */
	uint64_t first, n_seen;
	uint32_t n;
	struct sched_model *models[MODELS_PAGE];
};

static void list_model(struct models_list *all, struct sched_model *model, uint32_t n_users)
{
	if (model->listed_in != all->list) {
		model->listed_in = all->list;
		model->n_listed = 0;
		if (all->n_seen >= all->first && all->n < MODELS_PAGE)
			all->models[all->n++] = model;
		all->n_seen++;
	}
	model->n_listed += n_users;
}

/* Session by session: others' models are not looked at, however many there are. */
static void list_domain(const struct sched *s, uint64_t domain, struct models_list *all)
{
	const struct sched_session *session;

	LIST_FOREACH (session, &s->sessions, link) {
		if (session->domain != domain)
			continue;
		for (uint32_t i = 0; i < s->core.config->max_models; i++)
			if (session->models[i])
				list_model(all, session->models[i], 1);
	}
}

static void list_all(const struct sched *s, struct models_list *all)
{
	struct sched_model *model;

	LIST_FOREACH (model, &s->models, link)
		list_model(all, model, model->n_users);
}

static struct model_info model_info(const struct sched *s, const struct sched_model *model)
{
	struct model_info info = {.shape = model->shape,
				  .first_kv_head = model->heads.first,
				  .all_kv_heads = model->heads.all,
				  .page_bytes = model->page_bytes,
				  .n_users = model->n_listed,
				  .n_devices = s->core.config->n_devices ? s->core.config->n_devices
									 : 1};

	strcpy(info.name, model->name);
	strcpy(info.split_why, model->split_why);
	return info;
}

/* The cursor counts those that were listed. */
static int list_serve(struct sched *s, struct sched_request *rq)
{
	struct models_page *page = rq->room;
	struct models_list all = {.list = ++s->n_model_lists, .first = page->cursor};

	if (sees_all(rq))
		list_all(s, &all);
	else
		list_domain(s, rq->session->domain, &all);
	for (uint32_t i = 0; i < all.n; i++)
		page->infos[i] = model_info(s, all.models[i]);
	page->n = all.n;
	page->cursor = all.n_seen > all.first + all.n ? all.first + all.n : 0;
	return 0;
}

const struct verb verb_models = {.begin = list_begin,
				 .serve = list_serve,
				 .large = true,
				 .beside = beside_pass,
				 .answer = list_answer};
