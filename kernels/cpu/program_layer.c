/*
 * program_layer.c - an operation takes all rows from one register to another before the next one
 * begins.
 *
 * What concerns a row alone (norms, rotations, types) is dealt out by rows, products by outputs
 * (linear.h), attention as any job's, with Q, K, V and O in the run's own memory. Nothing of a row
 * depends on others, so neither on which of them come along.
 */
#include "job.h"
#include "program_phase.h"
#include "kernels/rows/rope.h"

#include <string.h>

static float *row_of(const struct backend_program *program, uint32_t reg, uint32_t row)
{
	return program->scratch.of[reg] + row * program_stride(program->widths.of[reg]);
}

static struct program_phase rows_phase(const struct program_pass *pass, threads_unit unit,
				       uint32_t width)
{
	return program_phase_of_rows(unit, pass->run->rows->n_rows, width);
}

/* Elements of a row in a register, as it is now. */
static uint32_t width_of(const struct program_pass *pass, uint32_t reg)
{
	return pass->program->width[reg];
}

/* ---- before the layers ----------------------------------------------------------------------- */

static void embed_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct program_pass *pass = arg;
	const struct program *p = pass->program->p;
	struct rows_matrix w = program_matrix(pass->program, &p->tensors[p->embed]);
	struct rows_matrix id = rows_part(&w, pass->run->rows->ids[row], 1);
	float *x = row_of(pass->program, PROGRAM_X, row);

	(void)thread;
	pass->b->rows->widen(x, id.data, id.dtype, p->hidden);
	if (p->embed_factor != 1)
		pass->b->rows->scale(x, p->embed_factor, p->hidden);
}

static void rotations_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct program_pass *pass = arg;
	const struct program *p = pass->program->p;
	const struct rope_angles angles = {p->inv_freq, p->n_turned, p->rope_factor};

	(void)thread;
	rope_set(&angles, pass->run->rows->positions[row],
		 pass->program->scratch.rotations + (size_t)row * p->n_turned);
}

bool program_begin_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret)
{
	const struct program *p = pass->program->p;

	if (i == 0)
		*ret = rows_phase(pass, embed_row, p->hidden);
	else if (i == 1) /* a sine takes as long as some 16 elements elsewhere */
		*ret = rows_phase(pass, rotations_row, p->n_turned * 16);
	else
		pass->program->width[PROGRAM_X] = p->hidden;
	return i < 2;
}

/* ---- vectors --------------------------------------------------------------------------------- */

static uint32_t layer_of(const struct program_pass *pass)
{
	return pass->program->progress.cursor.layer;
}

/* The vector of a slot, widened to where it says; NULL: there is none. */
static float *vector(const struct program_pass *pass, uint32_t slot, float *to)
{
	const struct program_tensor *t;

	if (slot == PROGRAM_NONE)
		return NULL;
	t = program_tensor(pass->program->p, layer_of(pass), slot);
	pass->b->rows->widen(to, pass->program->weights + t->offset, t->dtype, t->n_in);
	return to;
}

/* ---- NORM ------------------------------------------------------------------------------------ */

static void norm_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct program_pass *pass = arg;
	const struct backend_program *program = pass->program;
	const struct program_op *op = pass->op;
	const float *in = row_of(program, op->in, row);
	float *out = row_of(program, op->out, row), *line = out;
	uint32_t n = width_of(pass, op->in);

	if (op->flags & PROGRAM_ADD)
		line = program->scratch.lines + (size_t)thread * program->line;
	pass->b->rows->rmsnorm(line, in, program->scratch.vectors, n, op->eps);
	if (op->flags & PROGRAM_ADD)
		pass->b->rows->add(out, line, n);
}

static bool norm_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret)
{
	if (i == 0) {
		vector(pass, pass->op->w[0], pass->program->scratch.vectors);
		*ret = rows_phase(pass, norm_row, width_of(pass, pass->op->in));
		return true;
	}
	pass->program->width[pass->op->out] = width_of(pass, pass->op->in);
	return false;
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */

static uint32_t n_outs_of(const struct program_pass *pass)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < pass->op->n_w; i++)
		n += program_tensor(pass->program->p, layer_of(pass), pass->op->w[i])->n_out;
	return pass->op->flags & PROGRAM_GATED ? n / 2 : n;
}

static void set_linear(struct program_pass *pass)
{
	const struct program_op *op = pass->op;
	const struct backend_program *program = pass->program;
	float *biases = program->scratch.vectors;
	uint32_t n_outs = 0;

	pass->linear = (struct linear){
		.rows = pass->b->rows,
		.x = row_of(program, op->in, 0),
		.x_stride = program_stride(program->widths.of[op->in]),
		.y = row_of(program, op->out, 0),
		.y_stride = program_stride(program->widths.of[op->out]),
		.n_rows = pass->run->rows->n_rows,
		.n_w = op->n_w,
		.add = op->flags & PROGRAM_ADD,
		.gated = op->flags & PROGRAM_GATED,
		.act = (enum rows_act)op->act,
		.gates = program->scratch.gates,
	};
	for (uint32_t i = 0; i < op->n_w; i++) {
		const struct program_tensor *t =
			program_tensor(program->p, layer_of(pass), op->w[i]);

		pass->linear.w[i] = program_matrix(program, t);
		pass->linear.bias[i] = vector(pass, op->bias[i], biases + n_outs);
		n_outs += t->n_out;
	}
}

static void linear_run_unit(void *arg, uint32_t thread, uint32_t unit)
{
	const struct program_pass *pass = arg;

	linear_unit(&pass->linear, thread, unit);
}

struct program_phase program_phase_of_linear(struct program_pass *pass)
{
	linear_cut(&pass->linear, threads_count(pass->b->threads));
	return (struct program_phase){.unit = linear_run_unit,
				      .n_units = pass->linear.n_units,
				      .look_every = 1,
				      .alone = pass->linear.alone};
}

static bool linear_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret)
{
	if (i == 0) {
		set_linear(pass);
		*ret = program_phase_of_linear(pass);
		return true;
	}
	pass->program->width[pass->op->out] = n_outs_of(pass);
	return false;
}

/* ---- ATTEND ---------------------------------------------------------------------------------- */

static void norm_heads(const struct program_pass *pass, float *qkv, uint32_t n_q, uint32_t n_kv)
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
	const struct program_pass *pass = arg;
	const struct backend_program *program = pass->program;
	const struct program *p = program->p;
	uint32_t n_q = p->shape.n_q_heads, n_kv = p->shape.n_kv_heads;
	uint32_t width = width_of(pass, pass->op->in);
	size_t row_bytes = width * work_dtype_bytes(p->shape.dtype);
	float *line = program->scratch.lines + (size_t)thread * program->line;

	memcpy(line, row_of(program, pass->op->in, row), width * sizeof(*line));
	norm_heads(pass, line, n_q, n_kv);
	if (!(pass->op->flags & PROGRAM_UNTURNED))
		rope_turn_heads(line, n_q + n_kv, p->shape.head_dim,
				program->scratch.rotations + (size_t)row * p->n_turned,
				p->n_turned);
	pass->b->rows->narrow(program->scratch.qkv + row * row_bytes, p->shape.dtype, line, width);
}

static void take_row(void *arg, uint32_t thread, uint32_t row)
{
	const struct program_pass *pass = arg;
	const struct program *p = pass->program->p;
	uint32_t q = program_q_width(p);

	(void)thread;
	pass->b->rows->widen(row_of(pass->program, pass->op->out, row),
			     pass->program->scratch.o + row * q * work_dtype_bytes(p->shape.dtype),
			     p->shape.dtype, q);
}

/* Rows of all queries lie in the run's own memory, one query after the other. */
static void set_io(const struct program_pass *pass)
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

/* Between two segments all of it may have moved, but for what attention has in its own memory. */
static void set_job(struct program_pass *pass)
{
	const struct work_shape *shape = &pass->program->p->shape;

	set_io(pass);
	pass->job = *pass->run->job;
	pass->job.shape = shape;
	pass->job.io = pass->program->scratch.io;
	pass->job.layer = layer_of(pass);
	pass->pages = *job_pages(pass->b, shape);
	pass->attends = (struct attend_job){&pass->program->attend, &pass->job, &pass->pages};
}

static void begin_attend(struct program_pass *pass)
{
	set_job(pass);
	job_begin(pass->b, &pass->program->attend, &pass->job, &pass->pages);
	if (pass->run->most_ns)
		attend_remember(&pass->program->attend, &pass->job);
}

static void fold_unit(void *arg, uint32_t thread, uint32_t unit)
{
	struct program_pass *pass = arg;

	attend_fold(&pass->attends, thread, unit);
}

static void merge_unit(void *arg, uint32_t thread, uint32_t unit)
{
	struct program_pass *pass = arg;

	attend_merge(&pass->attends, thread, unit);
}

static struct program_phase attention_phase(struct program_pass *pass, threads_unit unit)
{
	set_job(pass);
	return (struct program_phase){.unit = unit,
				      .n_units = unit == fold_unit
							 ? attend_n_folds(&pass->attends)
							 : attend_n_merges(&pass->attends),
				      .look_every = 1,
				      .alone = pass->program->attend.alone};
}

static void set_head_norms(const struct program_pass *pass)
{
	const struct program *p = pass->program->p;
	const struct program_op *op = pass->op;
	float *vectors = pass->program->scratch.vectors;
	bool wide = op->flags & PROGRAM_WIDE_NORM;

	if (!op->n_w)
		return;
	vector(pass, op->w[0], vectors);
	vector(pass, op->w[1], vectors + (wide ? program_q_width(p) : p->shape.head_dim));
}

static bool attend_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret)
{
	uint32_t q_width = program_q_width(pass->program->p);

	if (i == 0) {
		set_head_norms(pass);
		*ret = rows_phase(pass, hand_over_row, width_of(pass, pass->op->in));
	} else if (i == 1) {
		*ret = (struct program_phase){.go = begin_attend, .n_units = 1};
	} else if (i == 2) {
		*ret = attention_phase(pass, fold_unit);
	} else if (i == 3) {
		*ret = attention_phase(pass, merge_unit);
	} else if (i == 4) {
		*ret = rows_phase(pass, take_row, q_width);
	} else {
		pass->program->width[pass->op->out] = q_width;
	}
	return i < PROGRAM_ATTEND_PHASES;
}

bool program_op_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret)
{
	pass->op = program_op_at(pass->program->p, &pass->program->progress.cursor);
	if (pass->op->kind == PROGRAM_NORM)
		return norm_phase(pass, i, ret);
	if (pass->op->kind == PROGRAM_LINEAR)
		return linear_phase(pass, i, ret);
	return attend_phase(pass, i, ret);
}
