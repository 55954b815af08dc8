/*
 * program_oracle.c - each operation as program.h says it, over all tokens of a sequence at once,
 * with nothing kept from one to the next but the registers.
 */
#include "program_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pass {
	const struct program_model *m;
	const struct program *p;
	uint32_t n; /* tokens */
	uint32_t layer;
	const struct program_op *op;
	double *of[PROGRAM_REGISTERS]; /* owned, [n][width] */
	uint32_t width[PROGRAM_REGISTERS];
	double *scores; /* owned, [n] */
	struct oracle_random *random; /* NULL: values are rounded from what they are */
};

static double *make(size_t n)
{
	double *at = calloc(n + 1, sizeof(*at));

	if (!at)
		abort();
	return at;
}

static const float *values(const struct pass *pass, uint32_t slot)
{
	return pass->m->values[pass->p->slots[pass->layer * pass->p->n_slots + slot]];
}

/* Instead of, or added to, what was in the operation's register. Takes `made`. */
static void write_out(struct pass *pass, double *made, uint32_t width)
{
	uint32_t out = pass->op->out;

	for (size_t i = 0; pass->op->flags & PROGRAM_ADD && i < (size_t)pass->n * width; i++)
		made[i] += pass->of[out][i];
	free(pass->of[out]);
	pass->of[out] = made;
	pass->width[out] = width;
}

static void norm(double *to, const double *x, const float *weight, uint32_t n, double eps)
{
	double squares = 0;

	for (uint32_t i = 0; i < n; i++)
		squares += x[i] * x[i];
	for (uint32_t i = 0; i < n; i++)
		to[i] = x[i] / sqrt(squares / n + eps) * (double)weight[i];
}

static void run_norm(struct pass *pass)
{
	uint32_t width = pass->width[pass->op->in];
	double *made = make((size_t)pass->n * width);

	for (size_t t = 0; t < pass->n; t++)
		norm(made + t * width, pass->of[pass->op->in] + t * width,
		     values(pass, pass->op->w[0]), width, (double)pass->op->eps);
	write_out(pass, made, width);
}

static double act(uint32_t kind, double x)
{
	if (kind == PROGRAM_SILU)
		return x / (1 + exp(-x));
	if (kind == PROGRAM_GELU)
		return x * (1 + erf(x / sqrt(2))) / 2;
	if (kind == PROGRAM_GELU_TANH)
		return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
	return x;
}

/* Each token's outputs of all matrices behind each other. */
static void multiply(const struct pass *pass, double *made, uint32_t width)
{
	const struct program_op *op = pass->op;

	for (uint32_t i = 0; i < op->n_w; i++) {
		struct oracle_product product = {
			.x = pass->of[op->in],
			.w = values(pass, op->w[i]),
			.y = made,
			.y_stride = width,
			.n_rows = pass->n,
			.n_out = program_tensor(pass->p, pass->layer, op->w[i])->n_out,
			.n_in = pass->width[op->in],
		};

		for (size_t t = 0; op->bias[i] != PROGRAM_NONE && t < pass->n; t++)
			for (uint32_t o = 0; o < product.n_out; o++)
				made[t * width + o] = (double)values(pass, op->bias[i])[o];
		oracle_multiply(&product);
		made += product.n_out;
	}
}

static void run_linear(struct pass *pass)
{
	const struct program_op *op = pass->op;
	uint32_t width = 0, n_out;
	double *made;

	for (uint32_t i = 0; i < op->n_w; i++)
		width += program_tensor(pass->p, pass->layer, op->w[i])->n_out;
	made = make((size_t)pass->n * width);
	multiply(pass, made, width);
	n_out = op->flags & PROGRAM_GATED ? width / 2 : width;
	for (size_t t = 0; op->flags & PROGRAM_GATED && t < pass->n; t++)
		for (size_t o = 0; o < n_out; o++)
			made[t * n_out + o] =
				act(op->act, made[t * width + o]) * made[t * width + n_out + o];
	write_out(pass, made, n_out);
}

static void turn(const struct program *p, double *head, uint32_t position)
{
	uint32_t half = p->n_turned / 2;

	for (uint32_t i = 0; i < half; i++) {
		double angle = position * p->inv_freq[i], a = head[i], b = head[i + half];
		double c = cos(angle) * (double)p->rope_factor,
		       s = sin(angle) * (double)p->rope_factor;

		head[i] = a * c - b * s;
		head[i + half] = b * c + a * s;
	}
}

/* From as near to it as what is computed in fp32 is; no further than a value's own fp32 error. */
#define NEAR 0x1p-20

static double near(const struct pass *pass, double x)
{
	const uint32_t steps = 1u << 16;

	if (!pass->random)
		return x;
	return x * (1 + NEAR * (2.0 * oracle_below(pass->random, steps + 1) / steps - 1));
}

/* To values of the type that pages have. */
static void round_to_type(const struct pass *pass, float *to, const double *x, uint32_t n)
{
	const struct program *p = pass->p;
	char *stored = malloc(n * sizeof(float));

	if (!stored)
		abort();
	for (uint32_t i = 0; i < n; i++)
		to[i] = (float)near(pass, x[i]);
	oracle_encode(p->shape.dtype, stored, to, n);
	oracle_decode(p->shape.dtype, to, stored, n);
	free(stored);
}

/* Norms, rotations and the type of one token's q, k and v. */
static void prepare(const struct pass *pass, double *qkv, uint32_t position, float *to)
{
	const struct program *p = pass->p;
	const struct program_op *op = pass->op;
	uint32_t dim = p->shape.head_dim, q = program_q_width(p), kv = program_kv_width(p);
	double eps = (double)op->eps;

	if (op->flags & PROGRAM_WIDE_NORM) {
		norm(qkv, qkv, values(pass, op->w[0]), q, eps);
		norm(qkv + q, qkv + q, values(pass, op->w[1]), kv, eps);
	}
	for (uint32_t at = 0; at < q + kv; at += dim) {
		if (op->flags & PROGRAM_HEAD_NORM)
			norm(qkv + at, qkv + at, values(pass, op->w[at < q ? 0 : 1]), dim, eps);
		if (!(op->flags & PROGRAM_UNTURNED))
			turn(p, qkv + at, position);
	}
	round_to_type(pass, to, qkv, q + 2 * kv);
}

/* A head of a token over all tokens up to it; k and v are those of token 0, stride apart. */
static void attend_head(const struct pass *pass, const float *q, const float *k, const float *v,
			uint32_t token, double *o)
{
	const struct program *p = pass->p;
	uint32_t dim = p->shape.head_dim;
	size_t stride = program_q_width(p) + 2 * program_kv_width(p);
	double sum = 0, most = -INFINITY;

	for (size_t t = 0; t <= token; t++) {
		pass->scores[t] = oracle_dot(q, k + t * stride, dim) * (double)p->shape.scale;
		most = fmax(most, pass->scores[t]);
	}
	for (size_t t = 0; t <= token; t++) {
		double weight = exp(pass->scores[t] - most);

		sum += weight;
		for (uint32_t d = 0; d < dim; d++)
			o[d] += weight * (double)v[t * stride + d];
	}
	for (uint32_t d = 0; d < dim; d++)
		o[d] /= sum;
}

/* All heads of a token, as the type has them. */
static void attend_token(const struct pass *pass, const float *qkv, uint32_t token, double *made)
{
	const struct program *p = pass->p;
	uint32_t dim = p->shape.head_dim, q = program_q_width(p), kv = program_kv_width(p);
	uint32_t group = p->shape.n_q_heads / p->shape.n_kv_heads;
	float *rounded = malloc(q * sizeof(*rounded));

	if (!rounded)
		abort();
	for (uint32_t h = 0; h < p->shape.n_q_heads; h++) {
		const float *k = qkv + q + (size_t)(h / group) * dim;

		attend_head(pass, qkv + token * (size_t)(q + 2 * kv) + (size_t)h * dim, k, k + kv,
			    token, made + (size_t)h * dim);
	}
	round_to_type(pass, rounded, made, q);
	for (uint32_t i = 0; i < q; i++)
		made[i] = (double)rounded[i];
	free(rounded);
}

static void run_attend(struct pass *pass)
{
	const struct program *p = pass->p;
	uint32_t q = program_q_width(p);
	size_t width = q + 2 * program_kv_width(p);
	double *of = pass->of[pass->op->in], *made = make((size_t)pass->n * q);
	double *one = make(width);
	float *qkv = malloc(pass->n * width * sizeof(*qkv));

	if (!qkv)
		abort();
	for (uint32_t t = 0; t < pass->n; t++) {
		memcpy(one, of + t * width, width * sizeof(*one));
		prepare(pass, one, t, qkv + t * width);
	}
	for (uint32_t t = 0; t < pass->n; t++)
		attend_token(pass, qkv, t, made + (size_t)t * q);
	free(one);
	free(qkv);
	write_out(pass, made, q);
}

static void run_layer(struct pass *pass)
{
	const struct program_kind *kind = &pass->p->kinds[pass->p->kind_of[pass->layer]];

	for (uint32_t i = 0; i < kind->n_ops; i++) {
		pass->op = &pass->p->ops[kind->first_op + i];
		if (pass->op->kind == PROGRAM_NORM)
			run_norm(pass);
		else if (pass->op->kind == PROGRAM_LINEAR)
			run_linear(pass);
		else
			run_attend(pass);
	}
}

struct program_truth program_oracle(const struct program_model *m, const uint32_t *ids, uint32_t n)
{
	return program_oracle_near(m, ids, n, NULL);
}

struct program_truth program_oracle_near(const struct program_model *m, const uint32_t *ids,
					 uint32_t n, struct oracle_random *random)
{
	const struct program *p = &m->p;
	uint32_t hidden = p->hidden;
	struct pass pass = {
		.m = m, .p = p, .n = n, .width = {hidden}, .scores = make(n), .random = random};
	struct program_truth truth = {make((size_t)n * p->n_vocab), make((size_t)n * hidden)};

	pass.of[PROGRAM_X] = make((size_t)n * hidden);
	for (size_t t = 0; t < n; t++)
		for (uint32_t i = 0; i < hidden; i++)
			pass.of[PROGRAM_X][t * hidden + i] =
				(double)m->values[p->embed][(size_t)ids[t] * hidden + i] *
				(double)p->embed_factor;
	for (; pass.layer < p->shape.n_layers; pass.layer++)
		run_layer(&pass);
	for (size_t t = 0; t < n; t++)
		norm(truth.hidden + t * hidden, pass.of[PROGRAM_X] + t * hidden,
		     m->values[p->final_norm], hidden, (double)p->eps);
	oracle_multiply(&(struct oracle_product){.x = truth.hidden,
						 .w = m->values[p->head],
						 .y = truth.logits,
						 .y_stride = p->n_vocab,
						 .n_rows = n,
						 .n_out = p->n_vocab,
						 .n_in = hidden});
	for (size_t i = 0; i < (size_t)n * p->n_vocab; i++)
		truth.logits[i] *= (double)p->logit_factor;
	for (uint32_t i = 0; i < PROGRAM_REGISTERS; i++)
		free(pass.of[i]);
	free(pass.scores);
	return truth;
}

void program_truth_done(struct program_truth *truth)
{
	free(truth->logits);
	free(truth->hidden);
}
