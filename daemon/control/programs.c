/*
 * programs.c - the verb program_new: a model whose forward pass the daemon runs.
 *
 * The loop copies and checks the program; the scheduler finds the model that has its digest, or
 * makes it. A program is a model like any other to sequences; its name is one that no client can
 * give.
 */
#include "daemon/program/held_program.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "models.h"
#include "verbs.h"
#include "weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPS_MAX (PROGRAM_OPS_MAX * PROGRAM_KINDS_MAX)
#define SLOTS_MAX 16384u /* of all layers: what fits a message */

struct program_call {
	struct model_call model;
	struct held_program *program; /* owned until a model has it; model.program */
};

/* ---- the message ---------------------------------------------------------------------------- */

/* Room for what a struct program points to. */
struct unpacked {
	struct program program;
	struct program_op ops[OPS_MAX];
	struct program_kind kinds[PROGRAM_KINDS_MAX];
	uint32_t slots[SLOTS_MAX];
};

/* Counted from 1, so that 0 is none. */
static uint32_t index_of(uint32_t number)
{
	return number ? number - 1 : PROGRAM_NONE;
}

static void op_set(struct program_op *to, const Coppice__ProgramOp *from)
{
	*to = (struct program_op){.kind = from->kind,
				  .flags = from->flags,
				  .in = from->in,
				  .out = from->out,
				  .act = from->act,
				  .n_w = (uint32_t)from->n_w,
				  .eps = from->eps};
	for (size_t i = 0; i < 3; i++) {
		to->w[i] = i < from->n_w ? from->w[i] : PROGRAM_NONE;
		to->bias[i] = i < from->n_bias ? index_of(from->bias[i]) : PROGRAM_NONE;
	}
}

static const char *too_long(const Coppice__ProgramNew *m)
{
	if (m->n_op > OPS_MAX)
		return "op";
	if (m->n_kind_n_ops > PROGRAM_KINDS_MAX)
		return "kind_n_ops";
	if (m->n_slot > SLOTS_MAX || m->n_slot != (uint64_t)m->n_slots * m->n_layers)
		return "slot";
	return m->kind_of.len != m->n_layers ? "kind_of" : NULL;
}

static void arrays_set(struct unpacked *u, const Coppice__ProgramNew *m)
{
	uint32_t first = 0;

	for (size_t i = 0; i < m->n_op; i++)
		op_set(&u->ops[i], m->op[i]);
	for (size_t i = 0; i < m->n_kind_n_ops; i++) {
		u->kinds[i] = (struct program_kind){first, m->kind_n_ops[i]};
		/* What does not add up is beyond the ops, and refused. */
		first = m->kind_n_ops[i] < OPS_MAX - first ? first + m->kind_n_ops[i] : OPS_MAX;
	}
	for (size_t i = 0; i < m->n_slot; i++)
		u->slots[i] = index_of(m->slot[i]);
}

static void program_set(struct unpacked *u, const Coppice__ProgramNew *m,
			const struct config *config)
{
	arrays_set(u, m);
	u->program = (struct program){
		.shape = {.n_layers = m->n_layers,
			  .n_q_heads = m->n_q_heads,
			  .n_kv_heads = m->n_kv_heads,
			  .head_dim = m->head_dim,
			  .page_tokens = m->page_tokens ? m->page_tokens : config->page_tokens,
			  .dtype = (enum work_dtype)m->dtype,
			  .scale = m->scale},
		.hidden = m->hidden,
		.n_vocab = m->n_vocab,
		.max_positions = m->max_positions,
		.eps = m->eps,
		.embed_factor = m->embed_factor,
		.logit_factor = m->logit_factor,
		.rope_factor = m->rope_factor,
		.n_turned = (uint32_t)m->n_inv_freq * 2,
		.inv_freq = m->inv_freq,
		.embed = m->embed,
		.final_norm = m->final_norm,
		.head = m->head,
		.ops = u->ops,
		.kinds = u->kinds,
		.kind_of = m->kind_of.data,
		.slots = u->slots,
		.n_ops = (uint32_t)m->n_op,
		.n_kinds = (uint32_t)m->n_kind_n_ops,
		.n_slots = m->n_slots,
	};
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* NULL: an answer is on its way. */
static struct weights *weights_of(struct session *s, uint64_t id, uint32_t number)
{
	struct weights *weights = session_weights(s, id, number), *ready;

	if (!weights)
		return NULL;
	ready = weights_ready(weights);
	if (weights_state(weights) == WEIGHTS_FAILED)
		reply_error(s, id, weights->error, "weights", "%s", weights->why);
	else if (!ready)
		reply_error(s, id, -EAGAIN, "weights",
			    "Weights %u are still being loaded: wait for them first.", number);
	return ready;
}

/* False: an answer is on its way. */
static bool check_lengths(struct session *s, uint64_t id, const Coppice__ProgramNew *m)
{
	const char *field = too_long(m);

	if (field)
		reply_error(s, id, -EINVAL, field,
			    "The program is longer than one may be, or %s has another length than "
			    "its layers, kinds and slots make.",
			    field);
	return !field;
}

/* NULL: an answer is on its way. */
static struct held_program *hold(struct session *s, uint64_t id, const Coppice__ProgramNew *m)
{
	struct weights *weights = check_lengths(s, id, m) ? weights_of(s, id, m->weights) : NULL;
	char why[PROGRAM_WHY_BYTES] = "There is no memory for the program.";
	struct held_program *held = NULL;
	struct unpacked *u;
	int r = -ENOMEM;

	if (!weights)
		return NULL;
	u = malloc(sizeof(*u));
	if (u) {
		program_set(u, m, s->home->config);
		r = held_program_new(&u->program, weights, &held, why);
	}
	free(u);
	if (r < 0)
		reply_error(s, id, r, NULL, "%s", why);
	return held;
}

static void new_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ProgramNew *m = message;
	struct held_program *held = hold(s, id, m);
	struct program_call *call;
	struct request *request;

	if (!held)
		return;
	request = request_begin(s, id, &verb_program_new, sizeof(*call));
	if (!request) {
		held_program_free(held, NULL, NULL);
		return;
	}
	call = request->sched.room;
	call->program = held;
	call->model.program = held;
	call->model.shape = held->program.shape;
	strcpy(call->model.name, held->name);
	request_post(request);
}

/* ---- serve ---------------------------------------------------------------------------------- */

/* The model is new: from now on it has the program. -EAGAIN: not yet. */
static int give_program(struct sched *s, struct sched_request *rq, struct sched_model *model)
{
	struct program_call *call = rq->room;
	struct held_program *held = call->program;
	const struct held_backend with = {s->core.ops, s->core.backend,
					  s->core.config->max_token_ms};
	char why[PROGRAM_WHY_BYTES];
	int r;

	held->program.shape = model->shape;
	r = held_program_begin(held, &with, why);
	if (r == -EAGAIN)
		return r;
	if (r < 0)
		return refuse(rq, r, NULL, "%s", why);
	model->program = held;
	call->program = NULL;
	return 0;
}

/* In turns with others' steps: all that is to be made ready takes a while. */
static int new_serve(struct sched *s, struct sched_request *rq)
{
	struct sched_model *model;
	int r = model_take(s, rq, &model);

	if (r < 0)
		return r;
	if (!model->program)
		r = give_program(s, rq, model);
	if (r == 0)
		r = model_give_number(s, rq, model);
	if (r == 0 && held_program_prepare(model->program, s->core.ops, s->core.backend))
		return SCHED_AGAIN;
	model_free_unused(s, model);
	return r == -EAGAIN ? SCHED_AGAIN : r;
}

/* Nothing is made of one that others have. */
static bool new_may_go(const struct sched *s, const struct sched_request *rq)
{
	return beside_segments(s, rq) || model_is_ready(s, rq);
}

static void new_answer(struct request *request)
{
	struct program_call *call = request->sched.room;

	held_program_free(call->program, NULL, NULL);
	call->program = NULL;
	model_answer(request);
}

const struct verb verb_program_new = {.begin = new_begin,
				      .serve = new_serve,
				      .beside = new_may_go,
				      .slow = true,
				      .large = true,
				      .answer = new_answer};
