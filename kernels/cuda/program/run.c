/*
 * run.c - operations of a run, each a launch or a few on the batches' stream.
 *
 * Inputs of products are narrow, and rounded once: where a sum, a norm or a gate ends. All else is
 * fp32. Matrices of one operation that lie one behind the other, or are of one size, are one
 * product: a launch less, and more to read at a time. Those that take long go in slices of some
 * outputs, so that a segment can end between two, and always in the same ones.
 */
#include "elements.h"
#include "few.h"
#include "head.h"
#include "proto/arith.h"
#include "pass.h"
#include "product.h"
#include "program.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#define SLICE_STEP 64u /* outputs */

/* That of a slot; none: a vector of nothing. */
static struct device_vector vector(const struct pass *pass, uint32_t slot)
{
	if (slot == PROGRAM_NONE)
		return (struct device_vector){0};
	return product_vector(pass->program, program_tensor(pass->program->p, pass->layer, slot));
}

static struct device_vector vector_behind(struct device_vector v, uint32_t n)
{
	if (v.at)
		v.at = (const char *)v.at + n * work_dtype_bytes(v.type);
	return v;
}

static int expect(const struct pass *pass, int r)
{
	return queue_expect(&pass->b->queue, r);
}

static struct launch_to to(const struct pass *pass)
{
	return queue_to(&pass->b->queue);
}

static bool is_bf16(const struct pass *pass)
{
	return pass->program->p->shape.dtype == WORK_BF16;
}

/* The operation's own, in these forms. */
static struct device_rows out_rows(const struct pass *pass, uint32_t forms)
{
	const struct program_scratch *s = &pass->program->scratch;
	uint32_t out = pass->op->out;

	return (struct device_rows){
		.wide = forms & PROGRAM_WIDE ? s->wide[out] : NULL,
		.narrow = forms & PROGRAM_NARROW ? s->narrow[out] : NULL,
		.wide_stride = s->stride[out],
		.narrow_stride = s->stride[out],
		.bf16 = is_bf16(pass),
		.add = (pass->op->flags & PROGRAM_ADD) != 0,
	};
}

static uint32_t forms_read(const struct pass *pass)
{
	return program_forms_read(pass->program->p, pass->kind, pass->at);
}

static bool reads_attention(const struct pass *pass)
{
	return program_reads_attention(pass->program->p, pass->kind, pass->at);
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */

/* X itself is never rounded: what a product reads of it is a copy. */
static int narrow_x(const struct pass *pass)
{
	const struct program_scratch *s = &pass->program->scratch;
	uint32_t stride = s->stride[PROGRAM_X];
	struct device_norm norm = {
		.wide = s->wide[PROGRAM_X],
		.out = {.narrow = s->narrow[PROGRAM_X],
			.narrow_stride = stride,
			.bf16 = is_bf16(pass)},
		.stride = stride,
		.n = pass->program->p->hidden,
		.n_rows = pass->run->rows->n_rows,
	};

	return expect(pass, device_norm(&norm, to(pass)));
}

static const struct program_tensor *matrix(const struct pass *pass, uint32_t i)
{
	return program_tensor(pass->program->p, pass->layer, pass->op->w[i]);
}

/* The operation's matrices from i on as one product, as many as go into one; returns how many. */
static uint32_t put_together(const struct pass *pass, uint32_t i, struct lt_product *ret)
{
	const struct program_tensor *t = matrix(pass, i), *next = t;
	uint64_t n_out = t->n_out;
	uint32_t n = 1, left = pass->op->n_w - i;

	while (n < left &&
	       matrix(pass, i + n)->offset == next->offset + program_tensor_bytes(next)) {
		next = matrix(pass, i + n++);
		n_out += next->n_out;
	}
	ret->w = pass->program->weights->base + t->offset;
	ret->n_in = t->n_in;
	ret->n_out = (uint32_t)n_out;
	ret->n_w = 1;
	if (n > 1 || left == 1)
		return n;
	next = matrix(pass, i + 1);
	if (next->n_out != t->n_out || next->offset < t->offset)
		return 1;
	ret->n_w = 2;
	ret->w_stride = (next->offset - t->offset) / work_dtype_bytes(t->dtype);
	return 2;
}

/* All matrices, their outputs behind each other. */
static int multiply(const struct pass *pass, struct lt_product product)
{
	size_t bytes = work_dtype_bytes(product.out_type);
	char *out = product.out;
	int r = 0;

	for (uint32_t i = 0; i < pass->op->n_w && !r;) {
		i += put_together(pass, i, &product);
		product.out = out;
		if (product.n_w > 1 && lt_find(pass->program->lt, &product) != 0) {
			product.n_w = 1;
			i--;
		}
		r = product_run(pass->b, pass->program, &product);
		out += product.n_w * (uint64_t)product.n_out * bytes;
	}
	return r;
}

static int finish(const struct pass *pass, uint32_t forms)
{
	const struct program_scratch *s = &pass->program->scratch;
	const struct program_op *op = pass->op;
	struct device_finishing finishing = {
		.made = s->made,
		.out = out_rows(pass, forms),
		.stride = s->made_stride,
		.n = pass->width[op->out],
		.n_rows = pass->run->rows->n_rows,
		.gated = (op->flags & PROGRAM_GATED) != 0,
		.act = op->act,
	};

	for (uint32_t i = 0; i < op->n_w; i++) {
		finishing.bias[i] = vector(pass, op->bias[i]);
		finishing.n_out[i] = matrix(pass, i)->n_out;
	}
	return expect(pass, device_finishing(&finishing, to(pass)));
}

static bool has_bias(const struct program_op *op)
{
	for (uint32_t i = 0; i < op->n_w; i++)
		if (op->bias[i] != PROGRAM_NONE)
			return true;
	return false;
}

/* What it reads; where it leaves what it makes is the caller's. */
static struct lt_product product_of(const struct pass *pass)
{
	const struct program_scratch *s = &pass->program->scratch;
	bool attention = reads_attention(pass);
	uint32_t in = pass->op->in;

	return (struct lt_product){
		.in = attention ? s->o : s->narrow[in],
		.in_stride = attention ? program_q_width(pass->program->p) : s->stride[in],
		.n_rows = pass->run->rows->n_rows,
		.type = pass->program->p->shape.dtype,
	};
}

/* Both halves of what is gated, be they one matrix or two. False: they are neither. */
static bool set_halves(const struct pass *pass, struct device_few *few)
{
	uint32_t half = pass->width[pass->op->out];

	few->n_out[0] = few->n_out[1] = half;
	if (pass->op->n_w == 2)
		return matrix(pass, 0)->n_out == half;
	few->w[1] = (const char *)few->w[0] + (uint64_t)half * few->n_in * 2;
	few->bias[1] = vector_behind(few->bias[0], half);
	return pass->op->n_w == 1;
}

/* False: not as few rows. */
static bool set_few(const struct pass *pass, uint32_t forms, struct device_few *ret)
{
	const struct lt_product product = product_of(pass);
	const struct program_op *op = pass->op;

	*ret = (struct device_few){
		.in = product.in,
		.out = out_rows(pass, forms),
		.in_stride = product.in_stride,
		.w_stride = matrix(pass, 0)->n_in,
		.n_in = matrix(pass, 0)->n_in,
		.n_rows = product.n_rows,
		.gated = (op->flags & PROGRAM_GATED) != 0,
		.act = op->act,
	};
	if (pass->norm) {
		ret->wide = pass->program->scratch.wide[pass->norm->in];
		ret->wide_stride = pass->program->scratch.stride[pass->norm->in];
		ret->norm = vector(pass, pass->norm->w[0]);
		ret->eps = pass->norm->eps;
	}
	for (uint32_t i = 0; i < op->n_w; i++) {
		ret->w[i] = pass->program->weights->base + matrix(pass, i)->offset;
		ret->n_out[i] = matrix(pass, i)->n_out;
		ret->bias[i] = vector(pass, op->bias[i]);
	}
	return (!ret->gated || set_halves(pass, ret)) && product_takes_few(ret);
}

/* A product may leave its outputs in the register itself where nothing is to be done with them. */
static bool is_direct(const struct pass *pass, uint32_t forms)
{
	return !(pass->op->flags & PROGRAM_GATED) && !has_bias(pass->op) &&
	       forms != (PROGRAM_WIDE | PROGRAM_NARROW);
}

static struct lt_product many_of(const struct pass *pass, uint32_t forms)
{
	const struct program_scratch *s = &pass->program->scratch;
	uint32_t out = pass->op->out;
	struct lt_product product = product_of(pass);
	bool wide = forms == PROGRAM_WIDE;

	if (!is_direct(pass, forms)) {
		product.out = s->made;
		product.out_stride = s->made_stride;
		product.out_type = WORK_FP32;
		return product;
	}
	product.out = wide ? (void *)s->wide[out] : s->narrow[out];
	product.out_stride = s->stride[out];
	product.out_type = wide ? WORK_FP32 : product.type;
	product.add = pass->op->flags & PROGRAM_ADD;
	return product;
}

static int run_many(const struct pass *pass, uint32_t forms)
{
	int r = multiply(pass, many_of(pass, forms));

	return r || is_direct(pass, forms) ? r : finish(pass, forms);
}

/* ---- LINEAR, in slices ----------------------------------------------------------------------- */

uint32_t pass_slice_outs(const struct backend_program *program, const struct program_tensor *t)
{
	uint64_t n = program->slice_elements / t->n_in / SLICE_STEP * SLICE_STEP;

	return (uint32_t)min_u64(max_u64(n, SLICE_STEP), t->n_out);
}

uint32_t pass_count_parts(const struct backend_program *program,
			  const struct program_cursor *cursor)
{
	const struct program_op *op = program_op_at(program->p, cursor);
	uint64_t n_elements = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; op->kind == PROGRAM_LINEAR && i < op->n_w; i++) {
		const struct program_tensor *t =
			program_tensor(program->p, cursor->layer, op->w[i]);

		n_elements += (uint64_t)t->n_out * t->n_in;
		n += ceil_div(t->n_out, pass_slice_outs(program, t));
	}
	return n_elements > program->slice_elements ? n : 1;
}

/* Outputs of a slice of one matrix; those of the matrices before it stand before. */
static struct lt_product slice_of(const struct pass *pass, struct lt_product all)
{
	size_t bytes = work_dtype_bytes(all.out_type);
	uint32_t before = 0, part = pass->part, i = 0, outs, n, first;

	for (;; i++, before += matrix(pass, i - 1)->n_out) {
		outs = pass_slice_outs(pass->program, matrix(pass, i));
		n = ceil_div(matrix(pass, i)->n_out, outs);
		if (part < n)
			break;
		part -= n;
	}
	first = part * outs;
	all.n_w = 1;
	all.n_in = matrix(pass, i)->n_in;
	all.n_out = min_u32(outs, matrix(pass, i)->n_out - first);
	all.w = pass->program->weights->base + matrix(pass, i)->offset +
		(uint64_t)first * all.n_in * work_dtype_bytes(all.type);
	all.out = (char *)all.out + (before + first) * bytes;
	return all;
}

static int run_slice(const struct pass *pass, uint32_t forms, bool last)
{
	const struct lt_product product = slice_of(pass, many_of(pass, forms));
	int r = product_run(pass->b, pass->program, &product);

	return r || !last || is_direct(pass, forms) ? r : finish(pass, forms);
}

static uint32_t count_parts(const struct pass *pass)
{
	const struct program_cursor cursor = {.layer = pass->layer, .op = pass->at};

	return pass_count_parts(pass->program, &cursor);
}

static void set_width(struct pass *pass)
{
	const struct program_op *op = pass->op;
	uint32_t n_outs = 0;

	for (uint32_t i = 0; op->kind == PROGRAM_LINEAR && i < op->n_w; i++)
		n_outs += matrix(pass, i)->n_out;
	pass->width[op->out] = op->flags & PROGRAM_GATED ? n_outs / 2 : n_outs;
}

static int run_linear(struct pass *pass)
{
	uint32_t forms = forms_read(pass), n_parts = count_parts(pass);
	struct device_few few;
	int r = pass->op->in == PROGRAM_X && pass->part == 0 ? narrow_x(pass) : 0;

	set_width(pass);
	if (r || !forms)
		return r;
	if (n_parts > 1)
		return run_slice(pass, forms, pass->part == n_parts - 1);
	return set_few(pass, forms, &few) ? product_few(pass->b, pass->program, &few)
					  : run_many(pass, forms);
}

/* ---- NORM ------------------------------------------------------------------------------------ */

/* Does the next operation alone read it, few rows, and not write what it is of? X is added to, and
 * there for the next layer. */
static bool is_made_by_next(const struct pass *pass)
{
	const struct program_op *op = pass->op;
	struct pass next = *pass;
	struct device_few few;

	if (++next.at == pass->kind->n_ops || reads_attention(pass) || op->out == PROGRAM_X)
		return false;
	next.op++;
	next.norm = op;
	next.width[op->out] = pass->width[op->in];
	set_width(&next);
	return next.op->kind == PROGRAM_LINEAR && next.op->in == op->out &&
	       next.op->out != op->in && forms_read(&next) && count_parts(&next) == 1 &&
	       !program_is_read_behind(pass->program->p, pass->kind, next.at, op->out) &&
	       set_few(&next, forms_read(&next), &few);
}

static int run_norm(struct pass *pass)
{
	const struct program_scratch *s = &pass->program->scratch;
	const struct program_op *op = pass->op;
	bool attention = reads_attention(pass);
	struct device_norm norm = {
		.wide = attention ? NULL : s->wide[op->in],
		.narrow = s->o,
		.weight = vector(pass, op->w[0]),
		.out = out_rows(pass, forms_read(pass)),
		.stride = attention ? program_q_width(pass->program->p) : s->stride[op->in],
		.bf16 = is_bf16(pass),
		.n = pass->width[op->in],
		.n_rows = pass->run->rows->n_rows,
		.eps = op->eps,
	};

	pass->width[op->out] = norm.n;
	pass->norm = is_made_by_next(pass) ? op : NULL;
	return pass->norm ? 0 : expect(pass, device_norm(&norm, to(pass)));
}

/* ---- ATTEND ---------------------------------------------------------------------------------- */

static int prepare_heads(const struct pass *pass)
{
	const struct program *p = pass->program->p;
	const struct program_scratch *s = &pass->program->scratch;
	const struct program_op *op = pass->op;
	struct device_heads heads = {
		.qkv = s->wide[op->in],
		.rotations = op->flags & PROGRAM_UNTURNED || !p->n_turned ? NULL : s->rotations,
		.q = s->q,
		.places = s->places,
		.pool = batch_layers_pool(&pass->layers, pass->layer),
		.head_bytes = kv_head_bytes(&p->shape),
		.stride = s->stride[op->in],
		.n_rows = pass->run->rows->n_rows,
		.n_q = p->shape.n_q_heads,
		.n_kv = p->shape.n_kv_heads,
		.dim = p->shape.head_dim,
		.n_turned = p->n_turned,
		.bf16 = is_bf16(pass),
		.wide = (op->flags & PROGRAM_WIDE_NORM) != 0,
		.first = !pass->layers.attended,
		.eps = op->eps,
	};

	if (op->n_w) {
		heads.q_norm = vector(pass, op->w[0]);
		heads.k_norm = vector(pass, op->w[1]);
	}
	return expect(pass, device_heads(&heads, to(pass)));
}

static int widen_to_x(const struct pass *pass)
{
	const struct program_scratch *s = &pass->program->scratch;
	struct device_norm norm = {
		.narrow = s->o,
		.out = {.wide = s->wide[PROGRAM_X], .wide_stride = s->stride[PROGRAM_X]},
		.stride = program_q_width(pass->program->p),
		.bf16 = is_bf16(pass),
		.n = pass->program->p->hidden,
		.n_rows = pass->run->rows->n_rows,
	};

	return expect(pass, device_norm(&norm, to(pass)));
}

static int run_attend(struct pass *pass)
{
	int r = prepare_heads(pass);

	if (!r)
		r = batch_layers_attend(&pass->layers, pass->layer);
	pass->width[pass->op->out] = program_q_width(pass->program->p);
	return r || pass->op->out != PROGRAM_X ? r : widen_to_x(pass);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void enter_op(struct pass *pass, const struct program_cursor *cursor)
{
	const struct program *p = pass->program->p;

	pass->layer = cursor->layer;
	pass->at = cursor->op;
	pass->part = cursor->part;
	pass->kind = &p->kinds[p->kind_of[cursor->layer]];
	pass->op = program_op_at(p, cursor);
	pass->width[PROGRAM_X] = p->hidden;
}

int pass_run_op(struct pass *pass, const struct program_cursor *cursor)
{
	int r;

	enter_op(pass, cursor);
	if (pass->op->kind == PROGRAM_NORM)
		return run_norm(pass);
	r = pass->op->kind == PROGRAM_LINEAR ? run_linear(pass) : run_attend(pass);
	pass->norm = NULL;
	return r;
}

/* ---- products alone -------------------------------------------------------------------------- */

static int run_products(struct pass *pass, uint32_t layer)
{
	struct program_cursor cursor = {.layer = layer};
	int r = 0;

	while (cursor.layer == layer && !r) {
		enter_op(pass, &cursor);
		if (pass->op->kind == PROGRAM_LINEAR)
			r = run_linear(pass);
		if (++cursor.part == pass_count_parts(pass->program, &cursor))
			program_cursor_next(pass->program->p, &cursor);
	}
	return r;
}

int program_run_products(struct batch *b, struct backend_program *program, uint32_t n_rows,
			 bool once)
{
	const struct program *p = program->p;
	const struct program_rows rows = {.n_rows = n_rows};
	const struct backend_run run = {.program = program, .rows = &rows};
	struct pass pass = {.b = b, .program = program, .run = &run};
	int r = 0;

	for (uint32_t layer = 0; layer < p->shape.n_layers && !r; layer++)
		if (!once || program_is_first(p, layer))
			r = run_products(&pass, layer);
	return r ? r : head_multiply(b, program, min_u32(n_rows, PROGRAM_HEAD_ROWS));
}
