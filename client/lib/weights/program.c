/*
 * program.c - a program becomes a message.
 *
 * Only what could not be packed is looked at here: the daemon checks the rest, and says what is
 * wrong with it.
 */
#include "weights.h"

#include "client/lib/base/sized.h"
#include "client/lib/connection/call.h"
#include "client/lib/connection/model.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <stdlib.h>

#define OPS_MAX (COPPICE_OPS_MAX * COPPICE_KINDS_MAX)
#define SLOTS_MAX 16384u /* of all layers: what fits a message */

static const char what[] = "coppice_program_new";

/* What a message points to. */
struct packed {
	Coppice__ProgramOp ops[OPS_MAX], *op_pointers[OPS_MAX];
	uint32_t bias[OPS_MAX][3];
	uint32_t kind_n_ops[COPPICE_KINDS_MAX];
	uint32_t slots[SLOTS_MAX];
};

static int check_info(struct coppice *c, const struct coppice_program_info *info)
{
	struct sized_caller caller = {c->key, what};
	int r = connection_check(c);

	if (r == 0)
		r = sized_check(caller, info, sizeof(*info));
	if (r < 0)
		return r;
	if (info->n_ops > OPS_MAX || info->n_kinds > COPPICE_KINDS_MAX ||
	    (uint64_t)info->n_layers * info->n_slots > SLOTS_MAX)
		return explain(c->key, -EINVAL,
			       "%s: the program is too long: at most %u operations, %u kinds of "
			       "layers and %u slots of all layers",
			       what, OPS_MAX, COPPICE_KINDS_MAX, SLOTS_MAX);
	if (!info->ops || !info->kinds || !info->kind_of || !info->tensors ||
	    (info->n_turned && !info->inv_freq))
		return explain(c->key, -EINVAL,
			       "%s: ops, kinds, kind_of, tensors or inv_freq is NULL", what);
	if (info->n_turned % 2)
		return explain(c->key, -EINVAL, "%s: n_turned is %u, and must be even", what,
			       info->n_turned);
	return 0;
}

/* Ops of kinds follow each other on the wire, as each has its own. */
static int check_kinds(struct coppice *c, const struct coppice_program_info *info)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < info->n_kinds; i++) {
		if (info->kinds[i].first_op != first || info->kinds[i].n_ops > info->n_ops - first)
			return explain(c->key, -EINVAL,
				       "%s: kind %u begins at operation %u: kinds' operations "
				       "follow each other, from 0 to n_ops",
				       what, i, info->kinds[i].first_op);
		first += info->kinds[i].n_ops;
	}
	if (first != info->n_ops)
		return explain(c->key, -EINVAL, "%s: kinds have %u of %u operations", what, first,
			       info->n_ops);
	return 0;
}

/* Counted from 1, so that 0 is none. */
static uint32_t number_of(uint32_t index)
{
	return index == COPPICE_NO_SLOT ? 0 : index + 1;
}

static int pack_op(struct coppice *c, struct packed *packed, uint32_t i,
		   const struct coppice_op *from)
{
	Coppice__ProgramOp *to = &packed->ops[i];

	if (from->n_w > 3)
		return explain(c->key, -EINVAL,
			       "%s: operation %u has %u matrices, at most 3 are taken", what, i,
			       from->n_w);
	coppice__program_op__init(to);
	to->kind = from->kind;
	to->flags = from->flags;
	to->in = from->in;
	to->out = from->out;
	to->act = from->act;
	to->eps = from->eps;
	to->n_w = to->n_bias = from->n_w;
	to->w = (uint32_t *)from->w;
	to->bias = packed->bias[i];
	for (uint32_t j = 0; j < from->n_w; j++)
		packed->bias[i][j] = number_of(from->bias[j]);
	packed->op_pointers[i] = to;
	return 0;
}

static int pack(struct coppice *c, struct packed *packed, const struct coppice_program_info *info)
{
	int r = check_kinds(c, info);

	for (uint32_t i = 0; i < info->n_ops && r == 0; i++)
		r = pack_op(c, packed, i, &info->ops[i]);
	for (uint32_t i = 0; i < info->n_kinds; i++)
		packed->kind_n_ops[i] = info->kinds[i].n_ops;
	for (uint32_t i = 0; i < info->n_layers * info->n_slots; i++)
		packed->slots[i] = number_of(info->tensors[i]);
	return r;
}

static float factor_or_1(float factor)
{
	return factor != 0 ? factor : 1;
}

static Coppice__ProgramNew message_of(const struct coppice_weights *weights,
				      const struct coppice_program_info *info,
				      struct packed *packed)
{
	Coppice__ProgramNew m = COPPICE__PROGRAM_NEW__INIT;

	m.weights = weights_id(weights);
	m.hidden = info->hidden;
	m.n_vocab = info->n_vocab;
	m.n_layers = info->n_layers;
	m.n_q_heads = info->n_q_heads;
	m.n_kv_heads = info->n_kv_heads;
	m.head_dim = info->head_dim;
	m.max_positions = info->max_positions;
	m.dtype = (uint32_t)info->dtype;
	m.scale = info->scale;
	m.eps = info->eps;
	m.embed_factor = factor_or_1(info->embed_factor);
	m.logit_factor = factor_or_1(info->logit_factor);
	m.rope_factor = factor_or_1(info->rope_factor);
	m.n_inv_freq = info->n_turned / 2;
	m.inv_freq = (double *)info->inv_freq;
	m.embed = info->embed;
	m.final_norm = info->final_norm;
	m.head = info->head;
	m.n_op = info->n_ops;
	m.op = packed->op_pointers;
	m.n_kind_n_ops = info->n_kinds;
	m.kind_n_ops = packed->kind_n_ops;
	m.kind_of = (ProtobufCBinaryData){info->n_layers, (uint8_t *)info->kind_of};
	m.n_slots = info->n_slots;
	m.n_slot = (size_t)info->n_layers * info->n_slots;
	m.slot = packed->slots;
	m.has_page_tokens = info->page_tokens != 0;
	m.page_tokens = info->page_tokens;
	return m;
}

static struct model model_of(const struct coppice_program_info *info,
			     const Coppice__ModelReply *reply)
{
	uint32_t element_bytes = info->dtype == COPPICE_FP32 ? 4 : 2;

	return (struct model){
		.id = reply->model,
		.q_row_bytes = info->n_q_heads * info->head_dim * element_bytes,
		.kv_row_bytes = info->n_kv_heads * info->head_dim * element_bytes,
		.lse_row_bytes = info->n_q_heads * (uint32_t)sizeof(float),
		.n_vocab = info->n_vocab,
		.hidden = info->hidden,
		.page_tokens = reply->page_tokens,
		.page_bytes = reply->page_bytes,
	};
}

static int give(struct coppice *c, const Coppice__ProgramNew *message,
		const struct coppice_program_info *info, uint32_t *ret_model)
{
	struct call call = call_of(what);
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	struct model model;
	int r;

	call.request.program_new = (Coppice__ProgramNew *)message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->model)
		return call_bad_answer(c, what);
	model = model_of(info, answer.reply->model);
	r = model_remember(c, &model, what);
	if (r == 0)
		*ret_model = model.id;
	return r;
}

int coppice_program_new(struct coppice *c, struct coppice_weights *weights,
			const struct coppice_program_info *info, uint32_t *ret_model)
{
	Coppice__ProgramNew message;
	CLEANUP_FREE struct packed *packed = NULL;
	int r = check_info(c, info);

	if (r < 0)
		return r;
	packed = calloc(1, sizeof(*packed));
	if (!packed)
		return explain(c->key, -ENOMEM, "%s: out of memory", what);
	r = pack(c, packed, info);
	if (r < 0)
		return r;
	message = message_of(weights, info, packed);
	return give(c, &message, info, ret_model);
}
