/*
 * program_run_test.c - runs of whole tokens on the CPU: what comes of a row's logits, what is
 * refused, and that whatever the check lets pass can be run.
 */
#include "kernels/cpu/huge.h"
#include "kernels/cpu/program_scratch.h"
#include "kernels/plan/plan.h"
#include "played_cores.h"
#include "program_machine.h"
#include "program_results.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- results --------------------------------------------------------------------------------- */

/* Ids that are alike have the same row in the head. */
static void make_twins(struct program_model *m, struct oracle_random *random)
{
	const struct program_tensor *t = &m->tensors[m->p.head];
	size_t bytes = t->n_in * work_dtype_bytes(t->dtype);
	char *head = m->weights + t->offset;

	for (uint32_t i = 0; i < t->n_out / 2; i++)
		memcpy(head + oracle_below(random, t->n_out) * bytes,
		       head + oracle_below(random, t->n_out) * bytes, bytes);
}

static void test_results_are_those_of_a_sort_and_ties_go_to_the_lower_id(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t round = 0; round < 10; round++) {
		struct model_want want = model_want_random(&random);
		struct program_model *m = model_new(&want, &random);
		struct machine_part part = {0, MACHINE_TOKENS, NULL};
		struct machine machine;
		struct machine_result result;

		make_twins(m, &random);
		machine_init(&machine, m, 2);
		machine_run(&machine, &part, 1, 0, &result);
		for (uint32_t i = 0; i < part.n; i++) {
			const float *logits = result.logits + (size_t)i * m->p.n_vocab;

			assert_int_equal(result.rows[i].n_top, 1 + i % PROGRAM_TOP_MAX);
			results_check(&result.rows[i], logits, m->p.n_vocab,
				      i + 1 < part.n ? machine.seqs[0].ids[i + 1] : PROGRAM_NONE);
		}
		machine_result_done(&result);
		machine_done(&machine);
		model_free(m);
	}
}

/* ---- one row, and what is refused ------------------------------------------------------------ */

/* A run of one token of a sequence of its own. */
struct one {
	struct machine machine;
	struct program_model *m;
	struct work_node node;
	struct work_slice slice;
	struct work_query query;
	struct work_tree tree;
	struct work_list list;
	struct backend_io io;
	struct backend_job job;
	uint32_t id, position;
	struct program_wanted wanted;
	struct program_rows rows;
	struct backend_run run;
	struct backend_ran ran;
	char out[sizeof(struct program_row) + 4096];
};

static void one_init(struct one *o, struct program_model *m)
{
	struct plan_config config;

	*o = (struct one){.m = m,
			  .node = {WORK_NONE, 0, 1, 0, 1},
			  .slice = {0, 0, 1},
			  .query = {.n_rows = 1},
			  .wanted = {.want = PROGRAM_WANT_TOP, .n_top = 3, .next = PROGRAM_NONE}};
	machine_init(&o->machine, m, 1);
	o->tree = (struct work_tree){&o->node, &o->slice, &o->query, 1, 1, 1};
	plan_config_init(&config, PLAN_AUTO, &m->p.shape, 1);
	assert_int_equal(plan_make(&config, &o->tree, &o->list), 0);
	o->io = (struct backend_io){.slots = &o->slice, .n_slots = 1};
	o->job = (struct backend_job){&m->p.shape, &o->tree, &o->list, &o->io, 0};
	o->wanted.out = (uintptr_t)o->out;
	o->rows = (struct program_rows){1, &o->id, &o->position, &o->wanted, 1};
	o->run = (struct backend_run){.program = o->machine.program,
				      .job = &o->job,
				      .rows = &o->rows};
}

static void one_done(struct one *o)
{
	plan_list_done(&o->list);
	machine_done(&o->machine);
	model_free(o->m);
}

static int one_run(struct one *o)
{
	return backend_cpu.program->run(o->machine.backend, &o->run, &o->ran);
}

/* Two layers or more. */
static struct program_model *deep_model(struct oracle_random *random)
{
	struct model_want want = model_want_random(random);

	want.n_layers = 3;
	return model_new(&want, random);
}

static void test_hidden_rows_alone_need_no_head(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_row row;
	struct one o;
	float before[256], after[256];

	(void)state;
	one_init(&o, deep_model(&random));
	o.wanted.want = PROGRAM_WANT_HIDDEN | PROGRAM_WANT_SCORE;
	assert_int_equal(one_run(&o), 0);
	memcpy(before, o.out + sizeof(row), o.m->p.hidden * sizeof(float));
	o.wanted.want = PROGRAM_WANT_HIDDEN;
	assert_int_equal(one_run(&o), 0);
	memcpy(&row, o.out, sizeof(row));
	memcpy(after, o.out + sizeof(row), o.m->p.hidden * sizeof(float));
	assert_true(isnan(row.lse) && isnan(row.score) && row.n_top == 0);
	assert_memory_equal(before, after, o.m->p.hidden * sizeof(float));
	one_done(&o);
}

static void test_a_run_that_does_not_fit_is_refused_and_ends_what_was_under_way(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct one o;

	(void)state;
	one_init(&o, deep_model(&random));
#define REFUSED(field, value) \
	do { \
		uint32_t was = field; \
		field = (value); \
		assert_int_equal(one_run(&o), -EINVAL); \
		field = was; \
	} while (0)
	REFUSED(o.id, o.m->p.n_vocab);
	REFUSED(o.position, o.m->p.max_positions);
	REFUSED(o.wanted.row, 1);
	REFUSED(o.wanted.next, o.m->p.n_vocab);
	REFUSED(o.rows.n_rows, 0);
	REFUSED(o.query.n_rows, 2);
	REFUSED(o.run.goes_on, 1);
	o.run.most_ns = 1;
	assert_int_equal(one_run(&o), 0);
	assert_false(o.ran.ended);
	o.rows.n_rows = o.query.n_rows = 2;
	REFUSED(o.run.goes_on, 1);
	o.rows.n_rows = o.query.n_rows = 1;
	REFUSED(o.run.goes_on, 1);
	o.run.most_ns = 0;
	assert_int_equal(one_run(&o), 0);
	assert_true(o.ran.ended);
	REFUSED(o.run.goes_on, 1);
	one_done(&o);
}

/* Of one layer, whose matrices are cut into units of some outputs. */
static void test_a_run_that_is_to_end_soon_ends_within_an_operation(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct model_want want = model_want_random(&random);
	struct machine_part part = {0, MACHINE_TOKENS, NULL};
	struct machine_result whole, cut;
	struct program_model *m;
	struct machine machine;

	(void)state;
	want.n_layers = 1;
	want.hidden = 256;
	want.side = false;
	want.intermediate = 4096; /* 64 units or more of a gate, or of what there is in its place */
	m = model_new(&want, &random);
	machine_init(&machine, m, 1);
	machine_run(&machine, &part, 1, 0, &whole);
	machine_done(&machine);
	machine_init(&machine, m, 1);
	machine_run(&machine, &part, 1, 1, &cut);
	assert_in_range(machine.n_segments, MACHINE_TOKENS + 64, 10000);
	assert_memory_equal(whole.logits, cut.logits,
			    (size_t)part.n * m->p.n_vocab * sizeof(float));
	assert_memory_equal(whole.rows, cut.rows, part.n * sizeof(*cut.rows));
	machine_result_done(&whole);
	machine_result_done(&cut);
	machine_done(&machine);
	model_free(m);
}

/* ---- attention ------------------------------------------------------------------------------- */

static struct program_model *model_of_attention(struct oracle_random *random)
{
	struct model_want want = model_want_random(random);

	want.n_layers = 1;
	want.hidden = 64;
	want.side = false;
	want.n_q_heads = 64;
	want.n_kv_heads = 1;
	want.head_dim = want.n_turned = 64;
	return model_new(&want, random);
}

/* All of a sequence at once. */
static uint32_t run_whole(struct program_model *m, uint64_t most_ns, uint32_t segment_tokens,
			  uint32_t replan_at, struct machine_result *ret)
{
	struct machine_part part = {0, MACHINE_TOKENS, NULL};
	struct machine machine;

	machine_init(&machine, m, 1);
	machine.segment_tokens = segment_tokens;
	machine.replan_at = replan_at;
	machine_run(&machine, &part, 1, most_ns, ret);
	machine_done(&machine);
	return machine.n_segments;
}

static bool are_alike(const struct program_model *m, const struct machine_result *a,
		      const struct machine_result *b)
{
	return memcmp(a->logits, b->logits, (size_t)a->n * m->p.n_vocab * sizeof(float)) == 0;
}

/* 64 heads of 6 rows are a unit, of a segment's keys. */
static void test_a_run_that_is_to_end_soon_ends_within_attention(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = model_of_attention(&random);
	struct machine_result whole, cut;
	uint32_t n_few, n_many;

	(void)state;
	run_whole(m, 0, WORK_TILE_TOKENS, 0, &whole);
	n_many = run_whole(m, 1, WORK_TILE_TOKENS, 0, &cut);
	assert_true(are_alike(m, &whole, &cut));
	machine_result_done(&whole);
	machine_result_done(&cut);
	n_few = run_whole(m, 1, 4 * WORK_TILE_TOKENS, 0, &cut);
	assert_in_range(n_many - n_few, 16, 1000);
	machine_result_done(&cut);
	model_free(m);
}

/* It goes by the one list or by the other, and never by some of both. */
static void test_attention_begins_anew_where_its_list_is_another_one(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = model_of_attention(&random);
	struct machine_result old, new, cut;
	uint32_t n, n_old = 0, n_new = 0, n_tries = 0;

	(void)state;
	n = run_whole(m, 1, WORK_TILE_TOKENS, 0, &old);
	run_whole(m, 0, 2 * WORK_TILE_TOKENS, 0, &new);
	assert_false(are_alike(m, &old, &new));
	for (uint32_t at = 1; at < n; at += ROUNDS(1u, 9u), n_tries++) {
		run_whole(m, 1, WORK_TILE_TOKENS, at, &cut);
		n_old += are_alike(m, &old, &cut);
		n_new += are_alike(m, &new, &cut);
		assert_int_equal(n_old + n_new, n_tries + 1);
		machine_result_done(&cut);
	}
	assert_true(n_old > 0 && n_new > 0);
	machine_result_done(&old);
	machine_result_done(&new);
	model_free(m);
}

#define MANY (BACKEND_PROGRAMS_AT_ONCE + 1)
#define LATER 7u /* segments that each begins behind the one before */

/* Lists are the same, and what they are of is not. Nothing is done again, however many have rows
 * under way, or had and were given up. */
static void test_programs_in_turns_take_as_many_segments_as_one_alone(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = model_of_attention(&random);
	struct machine_part part = {0, MACHINE_TOKENS, NULL};
	struct machine machines[MANY];
	struct machine_pass *passes[MANY];
	struct machine_result alone, result;
	uint32_t n;

	(void)state;
	n = run_whole(m, 1, WORK_TILE_TOKENS, 0, &alone);
	machine_init(&machines[0], m, 1);
	for (uint32_t i = 1; i < MANY; i++)
		machine_init_beside(&machines[i], &machines[i - 1], m);
	for (uint32_t i = 0; i < MANY; i++)
		passes[i] = machine_begin(&machines[i], &part, 1, 1);
	for (uint32_t turn = 1; turn <= n + (MANY - 1) * LATER; turn++)
		for (uint32_t i = 0; i < MANY; i++)
			if (turn > i * LATER && turn <= n + i * LATER)
				assert_int_equal(machine_go_on(passes[i]), turn < n + i * LATER);
	for (uint32_t i = MANY; i-- > 0;) {
		machine_end(passes[i], &result);
		assert_int_equal(are_alike(m, &alone, &result), i == 0);
		machine_result_done(&result);
		machine_done(&machines[i]);
	}
	machine_result_done(&alone);
	model_free(m);
}

/* Small pages of gigabytes would be given back for as long as a batch takes. */
static void test_memory_of_many_rows_is_of_huge_pages(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = deep_model(&random);
	struct backend_program program = {.p = &m->p, .line = 1u << 14, .n_threads = 1};

	(void)state;
	program.widths.of[PROGRAM_X] = 1u << 14;
	assert_int_equal(program_scratch_reserve(&program, 3), 0);
	assert_true(program.scratch.bytes < 16 * HUGE_BYTES);
	memset(program.scratch.block, 1, program.scratch.bytes);
	assert_int_equal(program_scratch_reserve(&program, 1024), 0);
	assert_true(program.scratch.bytes > 16 * HUGE_BYTES);
	assert_int_equal((uintptr_t)program.scratch.block % HUGE_BYTES, 0);
	memset(program.scratch.block, 1, program.scratch.bytes);
	program_scratch_done(&program);
	program_scratch_done(&program);
	model_free(m);
}

static void test_a_page_larger_than_an_extent_is_refused_in_a_sentence(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct model_want want = model_want_random(&random);
	struct program_model *m;
	struct backend_program *program = NULL;
	char why[PROGRAM_WHY_BYTES] = "";
	struct machine machine;

	(void)state;
	want.page_tokens = 64;
	want.dtype = WORK_FP32;
	m = model_new(&want, &random);
	machine_init(&machine, m, 1);
	m->p.shape.n_layers = PROGRAM_LAYERS_MAX;
	for (uint32_t i = want.n_layers; i < PROGRAM_LAYERS_MAX; i++) {
		m->kind_of[i] = 0;
		memcpy(m->slots + i * MODEL_SLOTS, m->slots, MODEL_SLOTS * sizeof(*m->slots));
	}
	assert_int_equal(backend_cpu.program->program_new(machine.backend, &m->p, machine.weights,
							  &program, why),
			 -EOPNOTSUPP);
	assert_non_null(strstr(why, "larger than an extent"));
	assert_null(program);
	machine_done(&machine);
	model_free(m);
}

static void test_weights_that_no_memory_holds_are_refused(void **state)
{
	struct backend_config config = {2u << 20, 2u << 20, 1, NULL};
	const uint64_t bytes[] = {UINT64_C(1) << 60, UINT64_MAX, UINT64_MAX - (4u << 20)};
	struct backend_weights *weights = NULL;
	struct backend *b;

	(void)state;
	assert_int_equal(backend_cpu.open(&config, &b, NULL, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(backend_cpu.program->weights_new(b, bytes[i], &weights), -ENOMEM);
	assert_null(weights);
	backend_cpu.program->weights_free(b, NULL);
	backend_cpu.program->program_free(b, NULL);
	backend_cpu.close(b);
}

static struct backend_program_cost cost_of(struct program_model *m, uint32_t n_threads,
					   uint32_t n_cores)
{
	struct backend_program_cost cost;
	struct machine machine;

	played_cores = n_cores;
	machine_init(&machine, m, n_threads);
	backend_cpu.program->cost(machine.backend, machine.program, &cost);
	machine_done(&machine);
	played_cores = 0;
	assert_true(cost.row_ns > 0 && cost.wanted_ns > 0 && cost.fixed_ns > cost.row_ns);
	assert_true(cost.scratch_bytes >
		    backend_cpu.program->max_rows * (uint64_t)m->p.hidden * sizeof(float));
	return cost;
}

/* As many as have cores. */
static void test_the_cost_falls_with_threads_and_scratch_is_said(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = deep_model(&random);
	struct backend_program_cost one = cost_of(m, 1, 2), two = cost_of(m, 2, 2);
	struct backend_program_cost crowded = cost_of(m, 2, 1);

	(void)state;
	assert_true(one.fixed_ns > two.fixed_ns && one.row_ns > two.row_ns);
	assert_true(one.fixed_ns == crowded.fixed_ns && one.row_ns == crowded.row_ns);
	assert_true(one.head_ns == crowded.head_ns && one.wanted_ns == crowded.wanted_ns);
	model_free(m);
}

/* ---- what passes the check can be run -------------------------------------------------------- */

/* Numbers that are near to good ones, or at ends. */
static uint32_t odd_number(struct oracle_random *random, uint32_t was)
{
	static const uint32_t odd[] = {0, 1, 2, 3, 16, 17, 64, UINT32_MAX, UINT32_MAX / 2};

	if (oracle_below(random, 2))
		return was + oracle_below(random, 5) - 2;
	return odd[oracle_below(random, sizeof(odd) / sizeof(odd[0]))];
}

static void mutate(struct program_model *m, struct oracle_random *random)
{
	struct program *p = &m->p;
	/* lengths of arrays are none of what may be wrong, as they are whoever's that made them */
	uint32_t *const of_program[] = {&p->shape.n_q_heads,
					&p->shape.n_kv_heads,
					&p->shape.head_dim,
					&p->shape.page_tokens,
					(uint32_t *)&p->shape.dtype,
					&p->hidden,
					&p->n_vocab,
					&p->max_positions,
					&p->embed,
					&p->final_norm,
					&p->head,
					&m->kinds[0].first_op,
					&m->kinds[1].n_ops,
					&p->n_turned};
	uint32_t kind = oracle_below(random, 4), n = sizeof(of_program) / sizeof(of_program[0]);
	uint32_t *at = of_program[oracle_below(random, n)];

	if (kind == 1)
		at = (uint32_t *)&m->ops[oracle_below(random, p->n_ops)] +
		     oracle_below(random, sizeof(*m->ops) / sizeof(uint32_t));
	else if (kind == 2)
		at = &m->slots[oracle_below(random, p->shape.n_layers * MODEL_SLOTS)];
	else if (kind == 3)
		at = (uint32_t *)&m->tensors[oracle_below(random, p->n_tensors)].dtype +
		     oracle_below(random, 5);
	*at = odd_number(random, *at);
}

/* Whether the check let it pass; then it runs, whatever comes of it. */
static bool run_if_it_passes(struct one *o)
{
	const struct backend_program_ops *ops = backend_cpu.program;
	struct program_widths widths;
	char why[PROGRAM_WHY_BYTES] = "";

	if (program_check(&o->m->p, &widths, why) != 0) {
		assert_true(strlen(why) > 0);
		return false;
	}
	if (ops->program_new(o->machine.backend, &o->m->p, o->machine.weights, &o->run.program,
			     why) != 0)
		return false;
	assert_int_equal(one_run(o), 0);
	ops->program_free(o->machine.backend, o->run.program);
	return true;
}

static void run_mutants(struct oracle_random *random)
{
	struct program_model *good = malloc(sizeof(*good));
	uint32_t n_passed = 0;
	struct one o;

	assert_non_null(good);
	one_init(&o, deep_model(random));
	*good = *o.m;
	for (uint32_t i = 0; i < 500; i++) {
		for (uint32_t n = 1 + oracle_below(random, 3); n > 0; n--)
			mutate(o.m, random);
		n_passed += run_if_it_passes(&o);
		*o.m = *good;
	}
	assert_in_range(n_passed, 1, 499);
	one_done(&o);
	free(good);
}

static void test_what_passes_the_check_can_be_run(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 10; i++)
		run_mutants(&random);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results_are_those_of_a_sort_and_ties_go_to_the_lower_id),
		cmocka_unit_test(test_hidden_rows_alone_need_no_head),
		cmocka_unit_test(
			test_a_run_that_does_not_fit_is_refused_and_ends_what_was_under_way),
		cmocka_unit_test(test_a_run_that_is_to_end_soon_ends_within_an_operation),
		cmocka_unit_test(test_a_run_that_is_to_end_soon_ends_within_attention),
		cmocka_unit_test(test_attention_begins_anew_where_its_list_is_another_one),
		cmocka_unit_test(test_programs_in_turns_take_as_many_segments_as_one_alone),
		cmocka_unit_test(test_memory_of_many_rows_is_of_huge_pages),
		cmocka_unit_test(test_a_page_larger_than_an_extent_is_refused_in_a_sentence),
		cmocka_unit_test(test_weights_that_no_memory_holds_are_refused),
		cmocka_unit_test(test_the_cost_falls_with_threads_and_scratch_is_said),
		cmocka_unit_test(test_what_passes_the_check_can_be_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
