/*
 * program_model.c - a program is put together as a client would: tensors by name, a table of slots
 * for each layer, a list of operations for each kind.
 *
 * Matrices are normal, divided by the root of what they sum over, so that what comes of an
 * operation is as large as what goes in. Layers whose number is odd are of kind 1.
 */
#include "program_model.h"

#include "proto/arith.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct builder {
	struct program_model *m;
	const struct model_want *want;
	struct oracle_random *random;
	uint32_t layer;
};

static bool chance(struct oracle_random *random)
{
	return oracle_below(random, 2);
}

static float one_or(struct oracle_random *random, float other)
{
	return chance(random) ? 1 : other;
}

struct model_want model_want_random(struct oracle_random *random)
{
	static const uint32_t norms[] = {0, PROGRAM_HEAD_NORM, PROGRAM_WIDE_NORM};
	uint32_t dim = 16 * (1 + oracle_below(random, 4)), n_kv = 1 + oracle_below(random, 3);
	uint32_t hidden = 16 + oracle_below(random, 100);
	bool side = oracle_below(random, 3) == 0;

	return (struct model_want){
		.n_layers = 1 + oracle_below(random, 3),
		.n_q_heads = n_kv * (1 + oracle_below(random, 3)),
		.n_kv_heads = n_kv,
		.head_dim = dim,
		.hidden = hidden,
		.intermediate = side ? hidden : 10 + oracle_below(random, 150),
		.n_vocab = 70 + oracle_below(random, 300),
		.page_tokens = 16u << oracle_below(random, 3),
		.n_turned = chance(random) ? dim : 2 * oracle_below(random, dim / 2 + 1),
		.dtype = oracle_below(random, 3),
		.weights = oracle_below(random, 3),
		.mixed = chance(random),
		.fused = chance(random),
		.biases = chance(random),
		.behind = chance(random),
		.side = side,
		.tied = chance(random),
		.unturned = chance(random),
		.norms = norms[oracle_below(random, 3)],
		.act = oracle_below(random, 4),
		.embed_factor = one_or(random, 1.5f),
		.logit_factor = one_or(random, 0.5f),
		.rope_factor = one_or(random, 1.1f),
	};
}

/* ---- tensors --------------------------------------------------------------------------------- */

static size_t elements(const struct program_tensor *t)
{
	return (size_t)(t->n_out ? t->n_out : 1) * t->n_in;
}

static void give_place(struct program *p, struct program_tensor *t)
{
	t->offset = p->weights_bytes;
	p->weights_bytes += align_to(elements(t) * work_dtype_bytes(t->dtype), PROGRAM_ALIGN);
}

/* All at once, as what is longer is copied. Values are what their types make of them. */
static void encode(struct program_model *m)
{
	m->weights = calloc(1, m->p.weights_bytes);
	assert_non_null(m->weights);
	for (uint32_t i = 0; i < m->p.n_tensors; i++) {
		const struct program_tensor *t = &m->tensors[i];

		oracle_encode(t->dtype, m->weights + t->offset, m->values[i], elements(t));
		oracle_decode(t->dtype, m->values[i], m->weights + t->offset, elements(t));
	}
}

/* n_out 0: a vector. Values are mean + normal * spread. */
static uint32_t add_tensor(struct builder *b, const char *name, uint32_t n_out, uint32_t n_in,
			   float mean)
{
	uint32_t index = b->m->p.n_tensors++;
	struct program_tensor *t = &b->m->tensors[index];
	float spread = n_out ? 1 / sqrtf((float)n_in) : 0.2f;

	assert_true(index < MODEL_TENSORS);
	snprintf(b->m->names[index], sizeof(b->m->names[index]), "%u.%s", b->layer, name);
	*t = (struct program_tensor){.name = b->m->names[index], .n_out = n_out, .n_in = n_in};
	t->dtype = b->want->mixed || (b->want->mixed_vectors && n_out == 0)
			   ? oracle_below(b->random, 3)
			   : b->want->weights;
	b->m->values[index] = malloc(elements(t) * sizeof(float));
	assert_non_null(b->m->values[index]);
	for (size_t i = 0; i < elements(t); i++)
		b->m->values[index][i] = mean + oracle_normal(b->random) * spread;
	give_place(&b->m->p, t);
	return index;
}

static void put(struct builder *b, enum model_slot slot, uint32_t tensor)
{
	b->m->slots[b->layer * MODEL_SLOTS + slot] = tensor;
}

static void add_matrix(struct builder *b, enum model_slot slot, const char *name, uint32_t n_out,
		       uint32_t n_in)
{
	char bias[32];

	put(b, slot, add_tensor(b, name, n_out, n_in, 0));
	if (!b->want->biases)
		return;
	snprintf(bias, sizeof(bias), "%s.bias", name);
	put(b,
	    slot <= MODEL_V    ? slot + (MODEL_Q_BIAS - MODEL_Q)
	    : slot <= MODEL_UP ? slot + (MODEL_GATE_BIAS - MODEL_GATE)
			       : slot + 1,
	    add_tensor(b, bias, 0, n_out, 0));
}

static void add_attention(struct builder *b)
{
	const struct model_want *w = b->want;
	uint32_t q = w->n_q_heads * w->head_dim, kv = w->n_kv_heads * w->head_dim;
	bool wide = w->norms == PROGRAM_WIDE_NORM;

	add_matrix(b, MODEL_Q, w->fused ? "qkv" : "q", w->fused ? q + 2 * kv : q, w->hidden);
	if (!w->fused) {
		add_matrix(b, MODEL_K, "k", kv, w->hidden);
		add_matrix(b, MODEL_V, "v", kv, w->hidden);
	}
	if (w->norms) {
		put(b, MODEL_Q_NORM, add_tensor(b, "q_norm", 0, wide ? q : w->head_dim, 1));
		put(b, MODEL_K_NORM, add_tensor(b, "k_norm", 0, wide ? kv : w->head_dim, 1));
	}
	put(b, MODEL_O, add_tensor(b, "o", w->hidden, q, 0));
	if (w->biases)
		put(b, MODEL_O_BIAS, add_tensor(b, "o.bias", 0, w->hidden, 0));
}

static void add_layer(struct builder *b)
{
	const struct model_want *w = b->want;

	for (uint32_t i = 0; i < MODEL_SLOTS; i++)
		put(b, i, PROGRAM_NONE);
	put(b, MODEL_NORM, add_tensor(b, "norm", 0, w->hidden, 1));
	put(b, MODEL_NORM_2, add_tensor(b, "norm_2", 0, w->hidden, 1));
	add_attention(b);
	add_matrix(b, MODEL_GATE, w->fused ? "gate_up" : "gate",
		   (w->fused ? 2 : 1) * w->intermediate, w->hidden);
	if (!w->fused)
		add_matrix(b, MODEL_UP, "up", w->intermediate, w->hidden);
	put(b, MODEL_DOWN, add_tensor(b, "down", w->hidden, w->intermediate, 0));
	if (w->biases)
		put(b, MODEL_DOWN_BIAS, add_tensor(b, "down.bias", 0, w->hidden, 0));
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct program_op op_make(uint32_t kind, uint32_t flags, uint32_t in, uint32_t out)
{
	return (struct program_op){.kind = kind,
				   .flags = flags,
				   .in = in,
				   .out = out,
				   .w = {PROGRAM_NONE, PROGRAM_NONE, PROGRAM_NONE},
				   .bias = {PROGRAM_NONE, PROGRAM_NONE, PROGRAM_NONE},
				   .eps = kind == PROGRAM_LINEAR ? 0 : 1e-5f};
}

/* n matrices from a slot on, with biases from another on. */
static struct program_op linear(const struct builder *b, struct program_op op, uint32_t n,
				enum model_slot w, enum model_slot bias)
{
	op.n_w = n;
	for (uint32_t i = 0; i < n; i++) {
		op.w[i] = w + i;
		op.bias[i] = b->want->biases ? bias + i : PROGRAM_NONE;
	}
	return op;
}

static struct program_op norm(uint32_t flags, uint32_t in, uint32_t out, enum model_slot w)
{
	struct program_op op = op_make(PROGRAM_NORM, flags, in, out);

	op.n_w = 1;
	op.w[0] = w;
	return op;
}

static struct program_op attend(const struct builder *b, uint32_t flags, uint32_t in, uint32_t out)
{
	struct program_op op = op_make(PROGRAM_ATTEND, flags | b->want->norms, in, out);

	if (b->want->norms) {
		op.n_w = 2;
		op.w[0] = MODEL_Q_NORM;
		op.w[1] = MODEL_K_NORM;
	}
	return op;
}

static struct program_op qkv(const struct builder *b, uint32_t in, uint32_t out)
{
	return linear(b, op_make(PROGRAM_LINEAR, 0, in, out), b->want->fused ? 1 : 3, MODEL_Q,
		      MODEL_Q_BIAS);
}

static struct program_op gate(const struct builder *b, uint32_t flags, uint32_t in, uint32_t out)
{
	struct program_op op = op_make(PROGRAM_LINEAR, PROGRAM_GATED | flags, in, out);

	op.act = b->want->act;
	return linear(b, op, b->want->fused ? 1 : 2, MODEL_GATE, MODEL_GATE_BIAS);
}

static struct program_op one(const struct builder *b, uint32_t flags, uint32_t in, uint32_t out,
			     enum model_slot slot)
{
	return linear(b, op_make(PROGRAM_LINEAR, flags, in, out), 1, slot, slot + 1);
}

static void add_ops(struct builder *b, const struct program_op *ops, uint32_t n)
{
	struct program *p = &b->m->p;

	b->m->kinds[p->n_kinds++] = (struct program_kind){p->n_ops, n};
	memcpy(b->m->ops + p->n_ops, ops, n * sizeof(*ops));
	p->n_ops += n;
}

static void add_kind(struct builder *b, uint32_t flags)
{
	enum { X = PROGRAM_X, A = PROGRAM_A, B = PROGRAM_B, C = PROGRAM_C };
	const uint32_t onto = PROGRAM_ADD;
	const struct program_op before[] = {
		norm(0, X, A, MODEL_NORM),	qkv(b, A, B),
		attend(b, flags, B, C),		one(b, onto, C, X, MODEL_O),
		norm(0, X, A, MODEL_NORM_2),	gate(b, 0, A, C),
		one(b, onto, C, X, MODEL_DOWN),
	};
	const struct program_op behind[] = {
		qkv(b, X, A),
		attend(b, flags, A, A),
		one(b, 0, A, B, MODEL_O),
		norm(onto, B, X, MODEL_NORM),
		gate(b, 0, X, C),
		one(b, 0, C, A, MODEL_DOWN),
		norm(onto, A, X, MODEL_NORM_2),
	};

	const struct program_op side[] = {
		norm(0, X, A, MODEL_NORM),   qkv(b, A, B),	  attend(b, flags, B, C),
		one(b, onto, C, X, MODEL_O), gate(b, onto, A, X), norm(0, X, X, MODEL_NORM_2),
	};

	if (b->want->side)
		add_ops(b, side, 6);
	else
		add_ops(b, b->want->behind ? behind : before, 7);
}

static void set_program(struct program_model *m, const struct model_want *w)
{
	m->p = (struct program){
		.shape = {.n_layers = w->n_layers,
			  .n_q_heads = w->n_q_heads,
			  .n_kv_heads = w->n_kv_heads,
			  .head_dim = w->head_dim,
			  .page_tokens = w->page_tokens,
			  .dtype = w->dtype,
			  .scale = 1 / sqrtf((float)w->head_dim)},
		.hidden = w->hidden,
		.n_vocab = w->n_vocab,
		.max_positions = 1u << 17,
		.eps = 1e-6f,
		.embed_factor = w->embed_factor,
		.logit_factor = w->logit_factor,
		.rope_factor = w->rope_factor,
		.n_turned = w->n_turned,
		.inv_freq = m->inv_freq,
		.ops = m->ops,
		.kinds = m->kinds,
		.kind_of = m->kind_of,
		.slots = m->slots,
		.tensors = m->tensors,
		.n_slots = MODEL_SLOTS,
	};
	for (uint32_t i = 0; i < w->n_turned / 2; i++)
		m->inv_freq[i] = pow(10000, -2.0 * i / w->n_turned);
}

struct program_model *model_new(const struct model_want *want, struct oracle_random *random)
{
	struct program_model *m = calloc(1, sizeof(*m));
	struct builder b = {.m = m, .want = want, .random = random};

	assert_non_null(m);
	assert_true(want->n_layers <= MODEL_LAYERS);
	set_program(m, want);
	m->p.embed = add_tensor(&b, "embed", want->n_vocab, want->hidden, 0);
	m->p.head =
		want->tied ? m->p.embed : add_tensor(&b, "head", want->n_vocab, want->hidden, 0);
	m->p.final_norm = add_tensor(&b, "final_norm", 0, want->hidden, 1);
	for (; b.layer < want->n_layers; b.layer++)
		add_layer(&b);
	encode(m);
	add_kind(&b, 0);
	add_kind(&b, want->unturned ? PROGRAM_UNTURNED : 0);
	for (uint32_t i = 0; i < PROGRAM_LAYERS_MAX; i++)
		m->kind_of[i] = i % 2;
	return m;
}

void model_free(struct program_model *m)
{
	for (uint32_t i = 0; i < MODEL_TENSORS; i++)
		free(m->values[i]);
	free(m->weights);
	free(m);
}
