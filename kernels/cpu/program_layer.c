/*
 * program_layer.c - an operation takes all rows from one register to another before the next one
 * begins.
 *
 * What concerns a row alone (norms, turns, types) is dealt out by rows, products by outputs
 * (linear.h), attention as any job's, with Q, K, V and O in the run's own memory. Nothing of a row
 * depends on others, so neither on which of them come along.
 */
#include "program_layer.h"
#include "job.h"
#include "program_scratch.h"
#include "kernels/rows/turn.h"

#include <string.h>

#define ALONE_ELEMENTS (64u << 10) /* fewer than these are done before a worker is awake */

struct pass {
	struct backend *b;
	struct backend_program *program;
	const struct backend_run *run;
	uint32_t layer;
	const struct program_op *op;
	uint32_t width[PROGRAM_REGISTERS]; /* as it is now */
};

static float *row_of(const struct backend_program *program, uint32_t reg, uint32_t row)
{
	return program->scratch.of[reg] + row * program_stride(program->widths.of[reg]);
}

static void each_row(const struct pass *pass, threads_unit unit, uint32_t width)
{
	uint32_t n = pass->run->rows->n_rows;

	threads_run(pass->b->threads, unit, (void *)pass, n, (uint64_t)n * width < ALONE_ELEMENTS);
}

/* ---- before the layers ----------------------------------------------------------------------- */

static void embed_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct pass *pass = arg;
	const struct program *p = pass->program->p;
	struct rows_matrix w = program_matrix(pass->program, &p->tensors[p->embed]);
	struct rows_matrix id = rows_part(&w, pass->run->rows->ids[row], 1);
	float *x = row_of(pass->program, PROGRAM_X, row);

	(void)thread;
	pass->b->rows->widen(x, id.data, id.dtype, p->hidden);
	if (p->embed_factor != 1)
		pass->b->rows->scale(x, p->embed_factor, p->hidden);
}

void program_embed(struct backend *b, const struct backend_run *run)
{
	struct pass pass = {.b = b, .program = run->program, .run = run};

	each_row(&pass, embed_row, run->program->p->hidden);
}

static void turns_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct pass *pass = arg;
	const struct program *p = pass->program->p;
	const struct turn turn = {p->inv_freq, p->n_turned, p->rope_factor};

	(void)thread;
	turn_set(&turn, pass->run->rows->positions[row],
		 pass->program->scratch.turns + (size_t)row * p->n_turned);
}

void program_turns(struct backend *b, const struct backend_run *run)
{
	struct pass pass = {.b = b, .program = run->program, .run = run};

	/* a sine takes as long as some 16 elements elsewhere */
	each_row(&pass, turns_row, run->program->p->n_turned * 16);
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* The vector of a slot, widened to where it says; NULL: there is none. */
static float *vector(const struct pass *pass, uint32_t slot, float *to)
{
	const struct program_tensor *t;

	if (slot == PROGRAM_NONE)
		return NULL;
	t = program_tensor(pass->program->p, pass->layer, slot);
	pass->b->rows->widen(to, pass->program->weights + t->offset, t->dtype, t->n_in);
	return to;
}

/* ---- NORM ------------------------------------------------------------------------------------ */

static void norm_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct pass *pass = arg;
	const struct backend_program *program = pass->program;
	const struct program_op *op = pass->op;
	const float *in = row_of(program, op->in, row);
	float *out = row_of(program, op->out, row), *line = out;
	uint32_t n = pass->width[op->in];

	if (op->flags & PROGRAM_ADD)
		line = program->scratch.lines + (size_t)thread * program->line;
	pass->b->rows->rmsnorm(line, in, program->scratch.vectors, n, op->eps);
	if (op->flags & PROGRAM_ADD)
		pass->b->rows->add(out, line, n);
}

static void run_norm(struct pass *pass)
{
	vector(pass, pass->op->w[0], pass->program->scratch.vectors);
	each_row(pass, norm_row, pass->width[pass->op->in]);
	pass->width[pass->op->out] = pass->width[pass->op->in];
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */

static void run_linear(struct pass *pass)
{
	const struct program_op *op = pass->op;
	const struct backend_program *program = pass->program;
	bool gated = op->flags & PROGRAM_GATED;
	float *biases = program->scratch.vectors;
	uint32_t n_outs = 0;
	struct linear linear = {
		.rows = pass->b->rows,
		.x = row_of(program, op->in, 0),
		.x_stride = program_stride(program->widths.of[op->in]),
		.y = row_of(program, op->out, 0),
		.y_stride = program_stride(program->widths.of[op->out]),
		.n_rows = pass->run->rows->n_rows,
		.n_w = op->n_w,
		.add = op->flags & PROGRAM_ADD,
		.gated = gated,
		.act = (enum rows_act)op->act,
		.gates = program->scratch.gates,
	};

	for (uint32_t i = 0; i < op->n_w; i++) {
		const struct program_tensor *t = program_tensor(program->p, pass->layer, op->w[i]);

		linear.w[i] = program_matrix(program, t);
		linear.bias[i] = vector(pass, op->bias[i], biases + n_outs);
		n_outs += t->n_out;
	}
	linear_run(&linear, pass->b->threads);
	pass->width[op->out] = gated ? n_outs / 2 : n_outs;
}

/* ---- ATTEND ---------------------------------------------------------------------------------- */

static void norm_heads(const struct pass *pass, float *qkv, uint32_t n_q, uint32_t n_kv)
{
	const struct rows_ops *rows = pass->b->rows;
	const float *weight = pass->program->scratch.vectors;
	uint32_t dim = pass->program->p->shape.head_dim, n_weight = n_q * dim;
	float eps = pass->op->eps;

	if (pass->op->flags & PROGRAM_WIDE_NORM) {
		rows->rmsnorm(qkv, qkv, weight, n_q * dim, eps);
		rows->rmsnorm(qkv + n_weight, qkv + n_weight, weight + n_weight, n_kv * dim, eps);
	} else if (pass->op->flags & PROGRAM_HEAD_NORM) {
		for (uint32_t h = 0; h < n_q + n_kv; h++, qkv += dim)
			rows->rmsnorm(qkv, qkv, weight + (h < n_q ? 0 : dim), dim, eps);
	}
}

/* Q, K and V of a row to where attention takes them from. */
static void hand_over_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct pass *pass = arg;
	const struct backend_program *program = pass->program;
	const struct program *p = program->p;
	uint32_t n_q = p->shape.n_q_heads, n_kv = p->shape.n_kv_heads;
	uint32_t width = pass->width[pass->op->in];
	size_t row_bytes = width * work_dtype_bytes(p->shape.dtype);
	float *line = program->scratch.lines + (size_t)thread * program->line;

	memcpy(line, row_of(program, pass->op->in, row), width * sizeof(*line));
	norm_heads(pass, line, n_q, n_kv);
	if (!(pass->op->flags & PROGRAM_UNTURNED))
		turn_heads(line, n_q + n_kv, p->shape.head_dim,
			   program->scratch.turns + (size_t)row * p->n_turned, p->n_turned);
	pass->b->rows->narrow(program->scratch.qkv + row * row_bytes, p->shape.dtype, line, width);
}

static void take_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct pass *pass = arg;
	const struct program *p = pass->program->p;
	uint32_t q = program_q_width(p);

	(void)thread;
	pass->b->rows->widen(row_of(pass->program, pass->op->out, row),
			     pass->program->scratch.o + row * q * work_dtype_bytes(p->shape.dtype),
			     p->shape.dtype, q);
}

/* Rows of all queries lie in the run's own memory, one query after the other. */
static void set_io(const struct pass *pass)
{
	const struct backend_job *job = pass->run->job;
	const struct program *p = pass->program->p;
	size_t bytes = work_dtype_bytes(p->shape.dtype);
	uint64_t q = program_q_width(p) * bytes, kv = program_kv_width(p) * bytes;
	uint64_t at = (uintptr_t)pass->program->scratch.qkv,
		 o = (uintptr_t)pass->program->scratch.o;

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		pass->program->scratch.io[i] = (struct backend_io){
			.q = at,
			.k = at + q,
			.v = at + q + kv,
			.o = o,
			.q_stride = q + 2 * kv,
			.k_stride = q + 2 * kv,
			.v_stride = q + 2 * kv,
			.o_stride = q,
			.slots = job->io[i].slots,
			.n_slots = job->io[i].n_slots,
		};
		at += job->tree->queries[i].n_rows * (q + 2 * kv);
		o += job->tree->queries[i].n_rows * q;
	}
}

static void run_attend(struct pass *pass)
{
	const struct program *p = pass->program->p;
	const struct program_op *op = pass->op;
	struct backend_job job = *pass->run->job;
	float *vectors = pass->program->scratch.vectors;
	bool wide = op->flags & PROGRAM_WIDE_NORM;

	if (op->n_w) {
		vector(pass, op->w[0], vectors);
		vector(pass, op->w[1], vectors + (wide ? program_q_width(p) : p->shape.head_dim));
	}
	each_row(pass, hand_over_row, pass->width[op->in]);
	set_io(pass);
	job.shape = &p->shape;
	job.io = pass->program->scratch.io;
	job.layer = pass->layer;
	job_run(pass->b, &job);
	each_row(pass, take_row, program_q_width(p));
	pass->width[op->out] = program_q_width(p);
}

void program_layer(struct backend *b, const struct backend_run *run, uint32_t layer)
{
	const struct program *p = run->program->p;
	const struct program_kind *kind = &p->kinds[p->kind_of[layer]];
	struct pass pass = {.b = b, .program = run->program, .run = run, .layer = layer};

	pass.width[PROGRAM_X] = p->hidden;
	for (uint32_t i = 0; i < kind->n_ops; i++) {
		pass.op = &p->ops[kind->first_op + i];
		if (pass.op->kind == PROGRAM_NORM)
			run_norm(&pass);
		else if (pass.op->kind == PROGRAM_LINEAR)
			run_linear(&pass);
		else
			run_attend(&pass);
	}
}
