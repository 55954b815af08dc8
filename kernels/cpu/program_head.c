/*
 * program_head.c - final norm and head of the wanted rows alone, some at a time, and what comes of
 * their logits.
 *
 * So many rows go at a time that reading the head again for the next ones is little beside their
 * products, and that the logits of all do not lie in memory at once.
 */
#include "program_head.h"
#include "linear.h"
#include "program_scratch.h"
#include "kernels/arith.h"

#include <math.h>
#include <string.h>

#define OF_LOGITS (PROGRAM_WANT_TOP | PROGRAM_WANT_SCORE | PROGRAM_WANT_LOGITS)

struct head {
	struct backend *b;
	const struct backend_program *program;
	const struct program_wanted *wanted; /* [n], of which these are at a time */
	uint32_t n;
};

static const float *logits_of(const struct head *head, uint32_t i)
{
	return head->program->scratch.logits + (size_t)i * head->program->p->n_vocab;
}

static float *normed_of(const struct head *head, uint32_t i)
{
	return head->program->scratch.normed + i * program_stride(head->program->p->hidden);
}

static void norm_wanted(const struct head *head)
{
	const struct program *p = head->program->p;
	const struct rows_ops *rows = head->b->rows;
	struct rows_matrix w = program_matrix(head->program, &p->tensors[p->final_norm]);
	float *weight = head->program->scratch.vectors;

	rows->widen(weight, w.data, w.dtype, p->hidden);
	for (uint32_t i = 0; i < head->n; i++) {
		rows->rmsnorm(normed_of(head, i),
			      head->program->scratch.of[PROGRAM_X] +
				      head->wanted[i].row * program_stride(p->hidden),
			      weight, p->hidden, p->eps);
	}
}

static void multiply(const struct head *head)
{
	const struct program *p = head->program->p;
	const struct linear linear = {
		.rows = head->b->rows,
		.x = head->program->scratch.normed,
		.x_stride = program_stride(p->hidden),
		.y = head->program->scratch.logits,
		.y_stride = p->n_vocab,
		.n_rows = head->n,
		.n_w = 1,
		.w = {program_matrix(head->program, &p->tensors[p->head])},
	};

	linear_run(&linear, head->b->threads);
	if (p->logit_factor != 1)
		head->b->rows->scale(head->program->scratch.logits, p->logit_factor,
				     (size_t)head->n * p->n_vocab);
}

static void take_top(const struct head *head, uint32_t i, struct program_row *ret)
{
	struct rows_score top[PROGRAM_TOP_MAX];
	uint32_t n_top = min_u32(head->wanted[i].n_top, PROGRAM_TOP_MAX);

	ret->n_top =
		head->b->rows->likeliest(top, n_top, logits_of(head, i), head->program->p->n_vocab);
	for (uint32_t t = 0; t < ret->n_top; t++)
		ret->top[t] = (struct program_top){top[t].id, top[t].logit};
}

static void score(const struct head *head, uint32_t i, struct program_row *ret)
{
	const struct program_wanted *wanted = &head->wanted[i];
	const float *logits = logits_of(head, i);
	double lse = head->b->rows->log_sum(logits, head->program->p->n_vocab);

	ret->lse = (float)lse;
	if (wanted->want & PROGRAM_WANT_SCORE && wanted->next != PROGRAM_NONE)
		ret->score = (float)((double)logits[wanted->next] - lse);
	if (wanted->want & PROGRAM_WANT_TOP)
		take_top(head, i, ret);
}

/* What comes of one row goes to where it is wanted. */
static void write_row(void *arg, uint32_t thread, uint32_t i)
{
	const struct head *head = arg;
	const struct program *p = head->program->p;
	uint32_t want = head->wanted[i].want;
	char *out = (char *)(uintptr_t)head->wanted[i].out;
	struct program_row row = {.lse = NAN, .score = NAN};

	(void)thread;
	if (want & OF_LOGITS)
		score(head, i, &row);
	memcpy(out, &row, sizeof(row));
	out += sizeof(row);
	if (want & PROGRAM_WANT_LOGITS) {
		memcpy(out, logits_of(head, i), p->n_vocab * sizeof(float));
		out += p->n_vocab * sizeof(float);
	}
	if (want & PROGRAM_WANT_HIDDEN)
		memcpy(out, normed_of(head, i), p->hidden * sizeof(float));
}

static bool wants_logits(const struct head *head)
{
	for (uint32_t i = 0; i < head->n; i++)
		if (head->wanted[i].want & OF_LOGITS)
			return true;
	return false;
}

void program_head(struct backend *b, const struct backend_run *run)
{
	const struct program_rows *rows = run->rows;

	for (uint32_t i = 0; i < rows->n_wanted; i += PROGRAM_HEAD_ROWS) {
		struct head head = {b, run->program, rows->wanted + i,
				    min_u32(rows->n_wanted - i, PROGRAM_HEAD_ROWS)};

		norm_wanted(&head);
		if (wants_logits(&head))
			multiply(&head);
		threads_run(b->threads, write_row, &head, head.n, false);
	}
}
