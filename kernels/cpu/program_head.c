/*
 * program_head.c - final norm and head of the wanted rows alone, some at a time, and what comes of
 * their logits.
 *
 * So many rows go at a time that reading the head again for the next ones is little beside their
 * products, and that the logits of all do not lie in memory at once.
 */
#include "program_phase.h"
#include "proto/arith.h"

#include <math.h>
#include <string.h>

#define HEAD_PHASES 3u
#define OF_LOGITS (PROGRAM_WANT_TOP | PROGRAM_WANT_SCORE | PROGRAM_WANT_LOGITS)

static float *logits_of(const struct program_pass *pass, uint32_t i)
{
	return pass->program->scratch.logits + (size_t)i * pass->program->p->n_vocab;
}

static float *normed_of(const struct program_pass *pass, uint32_t i)
{
	return pass->program->scratch.normed + i * program_stride(pass->program->p->hidden);
}

static void norm_row(void *arg, uint32_t thread, uint32_t i)
{
	const struct program_pass *pass = arg;
	const struct program *p = pass->program->p;
	const float *x = pass->program->scratch.of[PROGRAM_X];

	(void)thread;
	pass->b->rows->rmsnorm(normed_of(pass, i),
			       x + pass->wanted[i].row * program_stride(p->hidden),
			       pass->program->scratch.vectors, p->hidden, p->eps);
}

static struct program_phase norms_phase(const struct program_pass *pass)
{
	const struct program *p = pass->program->p;
	struct rows_matrix w = program_matrix(pass->program, &p->tensors[p->final_norm]);

	pass->b->rows->widen(pass->program->scratch.vectors, w.data, w.dtype, p->hidden);
	return program_phase_of_rows(norm_row, pass->n_wanted, p->hidden);
}

static void set_linear(struct program_pass *pass)
{
	const struct program *p = pass->program->p;

	pass->linear = (struct linear){
		.rows = pass->b->rows,
		.x = pass->program->scratch.normed,
		.x_stride = program_stride(p->hidden),
		.y = pass->program->scratch.logits,
		.y_stride = p->n_vocab,
		.n_rows = pass->n_wanted,
		.n_w = 1,
		.w = {program_matrix(pass->program, &p->tensors[p->head])},
	};
}

static void take_top(const struct program_pass *pass, uint32_t i, struct program_row *ret)
{
	struct rows_score top[PROGRAM_TOP_MAX];
	uint32_t n_top = min_u32(pass->wanted[i].n_top, PROGRAM_TOP_MAX);

	ret->n_top =
		pass->b->rows->likeliest(top, n_top, logits_of(pass, i), pass->program->p->n_vocab);
	for (uint32_t t = 0; t < ret->n_top; t++)
		ret->top[t] = (struct program_top){top[t].id, top[t].logit};
}

static void score(const struct program_pass *pass, uint32_t i, struct program_row *ret)
{
	const struct program_wanted *wanted = &pass->wanted[i];
	const struct program *p = pass->program->p;
	float *logits = logits_of(pass, i);
	double lse;

	if (p->logit_factor != 1)
		pass->b->rows->scale(logits, p->logit_factor, p->n_vocab);
	lse = pass->b->rows->log_sum(logits, p->n_vocab);
	ret->lse = (float)lse;
	if (wanted->want & PROGRAM_WANT_SCORE && wanted->next != PROGRAM_NONE)
		ret->score = (float)((double)logits[wanted->next] - lse);
	if (wanted->want & PROGRAM_WANT_TOP)
		take_top(pass, i, ret);
}

/* What comes of one row goes to where it is wanted. */
static void write_row(void *arg, uint32_t thread, uint32_t i)
{
	const struct program_pass *pass = arg;
	const struct program *p = pass->program->p;
	uint32_t want = pass->wanted[i].want;
	char *out = (char *)(uintptr_t)pass->wanted[i].out;
	struct program_row row = {.lse = NAN, .score = NAN};

	(void)thread;
	if (want & OF_LOGITS)
		score(pass, i, &row);
	memcpy(out, &row, sizeof(row));
	out += sizeof(row);
	if (want & PROGRAM_WANT_LOGITS) {
		memcpy(out, logits_of(pass, i), p->n_vocab * sizeof(float));
		out += p->n_vocab * sizeof(float);
	}
	if (want & PROGRAM_WANT_HIDDEN)
		memcpy(out, normed_of(pass, i), p->hidden * sizeof(float));
}

static bool wants_logits(const struct program_pass *pass)
{
	for (uint32_t i = 0; i < pass->n_wanted; i++)
		if (pass->wanted[i].want & OF_LOGITS)
			return true;
	return false;
}

static struct program_phase logits_phase(struct program_pass *pass)
{
	if (!wants_logits(pass))
		return (struct program_phase){.n_units = 0};
	set_linear(pass);
	return program_phase_of_linear(pass);
}

/* The logits of a row take longer than a worker needs to wake. */
static struct program_phase results_phase(const struct program_pass *pass)
{
	return (struct program_phase){.unit = write_row,
				      .n_units = pass->n_wanted,
				      .look_every = 1};
}

uint32_t program_head_phases(const struct backend_run *run)
{
	return HEAD_PHASES * ceil_div(run->rows->n_wanted, PROGRAM_HEAD_ROWS);
}

bool program_head_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret)
{
	const struct program_rows *rows = pass->run->rows;
	uint32_t first = i / HEAD_PHASES * PROGRAM_HEAD_ROWS;

	if (first >= rows->n_wanted)
		return false;
	pass->wanted = rows->wanted + first;
	pass->n_wanted = min_u32(rows->n_wanted - first, PROGRAM_HEAD_ROWS);
	if (i % HEAD_PHASES == 0)
		*ret = norms_phase(pass);
	else if (i % HEAD_PHASES == 1)
		*ret = logits_phase(pass);
	else
		*ret = results_phase(pass);
	return true;
}
