/*
 * world_cases.c - the worlds of each case, what of them is spoilt, grown or cut, and how rows are
 * judged.
 */
#include "world_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORLDS 16u

static void make_world_of(const struct world_cases *c, struct oracle_random *random,
			  enum work_dtype dtype, bool windows, struct world *ret)
{
	static const uint32_t dims[] = {64, 96, 128, 192};
	struct world_want want = {.shape = {.n_layers = 2,
					    .n_q_heads = 8,
					    .n_kv_heads = 2,
					    .head_dim = dims[oracle_below(random, 4)],
					    .page_tokens = 32,
					    .dtype = dtype,
					    .scale = 0.125f},
				  .ops = c->ops,
				  .n_threads = 1,
				  .n_nodes = 1 + oracle_below(random, 6),
				  .n_queries = 2 + oracle_below(random, 6),
				  .node_tokens = 100,
				  .drafts = true,
				  .windows = windows};

	world_init(ret, &want, random);
}

static void make_world(const struct world_cases *c, struct oracle_random *random,
		       enum work_dtype dtype, struct world *ret)
{
	make_world_of(c, random, dtype, false, ret);
}

static void run(const struct world_cases *c, struct world *w, uint32_t policy,
		struct world_answer *ret)
{
	struct plan_config config;

	c->config(w, policy, &config);
	world_run(w, &config, 0, w->tree.n_queries, ret);
}

void world_cases_silent(const struct world_cases *c, struct oracle_random *random)
{
	for (uint32_t i = 0; i < WORLDS; i++) {
		struct world_answer answer;
		struct world w;
		double lse;

		make_world(c, random, WORK_FP16, &w);
		for (uint32_t q = 0; q < w.tree.n_queries; q++)
			w.silent[q] = oracle_below(random, 2);
		run(c, &w, 0, &answer);
		for (uint32_t q = 0; q < w.tree.n_queries; q++)
			assert_true(w.silent[q] ||
				    world_error(&w, q, 1, &answer, &lse) <= c->bounds[WORK_FP16]);
		world_answer_done(&answer);
		world_done(&w);
	}
}

/* A few tokens of some nodes lose a value of one head. (An infinite K may give a score of -inf, a
 * weight of 0 and a row of numbers, or none: no more is promised of it.) */
static void spoil(struct world *w, struct oracle_random *random)
{
	static const float values[] = {NAN, INFINITY, -INFINITY};

	for (uint32_t i = 0; i < 1 + oracle_below(random, 4); i++) {
		const struct work_slice *slice = &w->slices[oracle_below(random, w->tree.n_slices)];
		uint32_t row = slice->first + oracle_below(random, slice->count);
		size_t at = oracle_kv_row(&w->kv, slice->page, row) +
			    oracle_below(random, w->shape.n_kv_heads * w->shape.head_dim);

		if (oracle_below(random, 2))
			w->kv.k[at] = NAN;
		else
			w->kv.v[at] = values[oracle_below(random, 3)];
	}
	world_load(w);
}

struct verdict {
	double off, norm; /* of rows and heads that see nothing but numbers */
	uint32_t n_harmed, n_spared;
};

/* One head of a row. */
static void judge(const double *want, const float *got, uint32_t dim, struct verdict *v)
{
	bool harmed = false;

	for (uint32_t j = 0; j < dim; j++) {
		harmed = harmed || !isfinite(want[j]);
		assert_true(isfinite(want[j]) || !isfinite(got[j]));
	}
	v->n_harmed += harmed;
	v->n_spared += !harmed;
	for (uint32_t j = 0; j < dim && !harmed; j++) {
		v->off += pow(want[j] - (double)got[j], 2);
		v->norm += want[j] * want[j];
	}
}

static void judge_all(struct world *w, const struct world_answer *answer, struct verdict *ret)
{
	size_t values = world_row_values(w), dim = w->shape.head_dim;

	*ret = (struct verdict){0};
	for (uint32_t q = 0; q < w->tree.n_queries; q++) {
		const struct world_truth *truth = world_truth(w, q);
		size_t at = w->first_row[q] * values, end = w->first_row[q + 1] * values;

		for (; at < end; at += dim)
			judge(truth->o + at, answer->o + at, (uint32_t)dim, ret);
	}
}

void world_cases_not_finite(const struct world_cases *c, struct oracle_random *random)
{
	uint32_t n_harmed = 0, n_spared = 0;

	for (uint32_t i = 0; i < WORLDS; i++) {
		enum work_dtype dtype = i % 2 ? WORK_BF16 : WORK_FP16;
		struct world w;

		make_world(c, random, dtype, &w);
		spoil(&w, random);
		for (uint32_t policy = 0; policy < c->n_policies; policy++) {
			struct world_answer answer;
			struct verdict v;

			run(c, &w, policy, &answer);
			judge_all(&w, &answer, &v);
			assert_true(v.off <= pow(c->bounds[dtype], 2) * v.norm);
			n_harmed += v.n_harmed;
			n_spared += v.n_spared;
			world_answer_done(&answer);
		}
		world_done(&w);
	}
	assert_true(n_harmed > 0 && n_spared > 0);
}

/* By powers of 2, which no dtype rounds. */
static void grow(struct world *w)
{
	uint32_t values = w->shape.n_kv_heads * w->shape.head_dim, token = 0;

	for (uint32_t i = 0; i < w->tree.n_slices; i++) {
		const struct work_slice *slice = &w->slices[i];

		for (uint32_t row = slice->first; row < slice->first + slice->count;
		     row++, token++) {
			float *k = &w->kv.k[oracle_kv_row(&w->kv, slice->page, row)];

			for (uint32_t j = 0; j < values; j++)
				k[j] *= (float)(1u << token / 16 % 5);
		}
	}
	world_load(w);
}

void world_cases_growing(const struct world_cases *c, struct oracle_random *random)
{
	for (uint32_t i = 0; i < WORLDS; i++) {
		enum work_dtype dtype = i % 2 ? WORK_BF16 : WORK_FP16;
		struct world w;

		make_world(c, random, dtype, &w);
		grow(&w);
		for (uint32_t policy = 0; policy < c->n_policies; policy++) {
			struct world_answer answer;
			double lse;

			run(c, &w, policy, &answer);
			assert_true(world_error(&w, 0, w.tree.n_queries, &answer, &lse) <=
				    c->bounds[dtype]);
			world_answer_done(&answer);
		}
		world_done(&w);
	}
}

void world_cases_windows(const struct world_cases *c, struct oracle_random *random)
{
	for (uint32_t i = 0; i < 2 * WORLDS; i++) {
		enum work_dtype dtype = i % 2 ? WORK_BF16 : WORK_FP16;
		struct world w;

		make_world_of(c, random, dtype, true, &w);
		for (uint32_t policy = 0; policy < c->n_policies; policy++) {
			struct world_answer answer;
			double lse;

			run(c, &w, policy, &answer);
			assert_true(world_error(&w, 0, w.tree.n_queries, &answer, &lse) <=
				    c->bounds[dtype]);
			world_answer_done(&answer);
		}
		world_done(&w);
	}
}
