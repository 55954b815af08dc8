/*
 * lane_program.c - a pass touches all that a backend would: tokens are below the vocabulary, rows
 * are as many as the tree's queries have, and results are written over their whole length, so that
 * what leads outside of the arena is found by its guards.
 */
#include "lane_program.h"

#include "daemon/program/held_program.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/verbs/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROWS 64u

static struct backend_ops ops;

static int program_run(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	const struct program_rows *rows = run->rows;
	const struct work_tree *tree = run->job->tree;
	uint32_t n_rows = 0;

	(void)b;
	for (uint32_t i = 0; i < tree->n_queries; i++)
		n_rows += tree->queries[i].n_rows;
	assert_int_equal(n_rows, rows->n_rows);
	assert_in_range(n_rows, 1, MAX_ROWS);
	for (uint32_t i = 0; i < n_rows; i++)
		assert_in_range(rows->ids[i], 0, PROGRAM_VOCAB - 1);
	for (uint32_t i = 0; i < rows->n_wanted; i++)
		memset((void *)(uintptr_t)rows->wanted[i].out, 0x5a,
		       lane_program_row(rows->wanted[i].want));
	*ret = (struct backend_ran){.part = 1, .ended = true};
	return 0;
}

static uint32_t as_many(uint32_t n_rows)
{
	return n_rows;
}

static const struct backend_program_ops program_ops = {.max_rows = MAX_ROWS,
						       .rows_as = as_many,
						       .run = program_run};

void lane_program_backend(struct harness *h)
{
	ops = *h->ops;
	ops.program = &program_ops;
	h->ops = &ops;
}

uint32_t lane_program_open(struct world *w)
{
	struct model_call call = {.name = "tokens",
				  .shape = {.n_layers = 1,
					    .n_q_heads = 1,
					    .n_kv_heads = 1,
					    .head_dim = 16,
					    .page_tokens = 16,
					    .dtype = WORK_FP32}};
	struct sched_session *session = w->hostile.c.session;
	struct sched_request rq = {.serve = verb_model_open.serve,
				   .session = session,
				   .room = &call};
	struct held_program *held = calloc(1, sizeof(*held));

	assert_non_null(held);
	assert_int_equal(harness_call(&w->h, &rq), 0);
	held->program = (struct program){.shape = call.shape,
					 .hidden = PROGRAM_HIDDEN,
					 .n_vocab = PROGRAM_VOCAB,
					 .max_positions = 4000};
	held->cost = (struct backend_program_cost){.fixed_ns = 1000, .row_ns = 10};
	session->models[call.model - 1]->program = held;
	return call.model;
}

uint32_t lane_program_row(uint32_t want)
{
	uint32_t bytes = sizeof(struct program_row);

	bytes += want & PROGRAM_WANT_LOGITS ? PROGRAM_VOCAB * (uint32_t)sizeof(float) : 0;
	bytes += want & PROGRAM_WANT_HIDDEN ? PROGRAM_HIDDEN * (uint32_t)sizeof(float) : 0;
	return bytes;
}
