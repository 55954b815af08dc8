/*
 * program_cpu_test.c - whole tokens on the CPU: random programs against float64, and what may change
 * a row's bits: nothing but its own tokens.
 */
#include "kernels/cpu/vec.h"
#include "kernels/plan/plan.h"
#include "program_machine.h"
#include "program_oracle.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const isas[] = {"generic", "avx2", "avx512"};

/* The largest norm of a row's difference to the truth over the norm of the truth. */
static double error_of(const float *rows, const double *truth, uint32_t n, uint32_t width)
{
	double largest = 0;

	for (size_t r = 0; r < n; r++) {
		double off = 0, all = 0;

		for (size_t i = r * width; i < (r + 1) * width; i++) {
			off += ((double)rows[i] - truth[i]) * ((double)rows[i] - truth[i]);
			all += truth[i] * truth[i];
		}
		largest = fmax(largest, all > 0 ? sqrt(off / all) : off);
	}
	return largest;
}

static void set_ids(struct machine *machine, struct oracle_random *random)
{
	for (uint32_t s = 0; s < MACHINE_SEQS; s++)
		for (uint32_t i = 0; i < MACHINE_TOKENS; i++)
			machine->seqs[s].ids[i] = oracle_below(random, machine->model->p.n_vocab);
}

/* Chains of at most some hundred products in fp32, a dozen operations in a row: 1e-5 of a row. What
 * is rounded to a narrow type can come out a unit in the last place apart, where the exact value
 * lies within fp32's error of a tie: 2^-10 or 2^-7 of a value, in all values at once at worst, and
 * twice that behind some layers. */
static const double bounds[] = {[WORK_FP32] = 1e-5, [WORK_FP16] = 0x1p-9, [WORK_BF16] = 0x1p-6};

static double check_oracle(const struct model_want *want, struct oracle_random *random)
{
	struct program_model *m = model_new(want, random);
	struct machine_part part = {0, 1 + oracle_below(random, 100)};
	struct machine machine;
	struct machine_result result;
	struct program_truth truth;
	double logits, hidden;

	machine_init(&machine, m, 1 + oracle_below(random, 2));
	set_ids(&machine, random);
	machine_run(&machine, &part, 1, 2, &result);
	truth = program_oracle(m, machine.seqs[0].ids, part.n);
	logits = error_of(result.logits, truth.logits, part.n, m->p.n_vocab);
	hidden = error_of(result.hidden, truth.hidden, part.n, m->p.hidden);
	if (logits > bounds[want->dtype] || hidden > bounds[want->dtype])
		fail_msg("type %d, norms %u %s, activation %u, %u layers: %g and %g (at most %g)",
			 (int)want->dtype, want->norms, want->behind ? "behind" : "before",
			 want->act, want->n_layers, logits, hidden, bounds[want->dtype]);
	program_truth_done(&truth);
	machine_result_done(&result);
	machine_done(&machine);
	model_free(m);
	return logits;
}

/* Where nothing falls near a tie, narrow types are as near to the truth as fp32: what is rounded is
 * what is said to be, and nothing else. That is so of a third of the programs here. */
static void run_oracle(struct oracle_random *random)
{
	uint32_t n_narrow = 0, n_near = 0;

	for (uint32_t i = 0; i < 60; i++) {
		struct model_want want = model_want_random(random);
		double error = check_oracle(&want, random);

		n_narrow += want.dtype != WORK_FP32;
		n_near += want.dtype != WORK_FP32 && error <= bounds[WORK_FP32];
	}
	assert_true(n_near * 12 > n_narrow);
}

static void every_isa(void (*run)(struct oracle_random *), const char *name)
{
	struct oracle_random random = oracle_seed(name);

	for (uint32_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		if (!vec_select(isas[i]))
			continue;
		assert_int_equal(setenv("COPPICE_CPU_ISA", isas[i], 1), 0);
		run(&random);
	}
	unsetenv("COPPICE_CPU_ISA");
}

static void test_random_programs_agree_with_float64(void **state)
{
	(void)state;
	every_isa(run_oracle, __func__);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Rows [row, row + n) of a run are a sequence's from its token `at` on: as it had them alone. */
static void compare(const struct program *p, const struct machine_result *all, size_t row,
		    const struct machine_result *one, size_t at, size_t n)
{
	assert_memory_equal(all->logits + row * p->n_vocab, one->logits + at * p->n_vocab,
			    n * p->n_vocab * sizeof(float));
	assert_memory_equal(all->hidden + row * p->hidden, one->hidden + at * p->hidden,
			    n * p->hidden * sizeof(float));
	assert_memory_equal(all->rows + row, one->rows + at, n * sizeof(*one->rows));
}

/* Some sequences in random order, each with some tokens or one. */
static uint32_t draw_parts(const struct machine *machine, struct oracle_random *random,
			   struct machine_part *ret, uint32_t *ret_first)
{
	uint32_t n = 0, start = oracle_below(random, MACHINE_SEQS);

	for (uint32_t i = 0; i < MACHINE_SEQS; i++) {
		uint32_t seq = (start + i) % MACHINE_SEQS, done = machine->seqs[seq].n_tokens;
		uint32_t most = oracle_below(random, 2) ? 1 : 40;

		if (oracle_below(random, 3) == 0 || done == MACHINE_TOKENS)
			continue;
		most = most < MACHINE_TOKENS - done ? most : MACHINE_TOKENS - done;
		ret_first[n] = done;
		ret[n++] = (struct machine_part){seq, 1 + oracle_below(random, most)};
	}
	return n;
}

static bool all_done(const struct machine *machine)
{
	for (uint32_t i = 0; i < MACHINE_SEQS; i++)
		if (machine->seqs[i].n_tokens < MACHINE_TOKENS)
			return false;
	return true;
}

/* All sequences to their ends, in random company, chunks, segments. */
static void run_in_company(struct machine *machine, const struct machine_result *alone,
			   struct oracle_random *random)
{
	while (!all_done(machine)) {
		struct machine_part parts[MACHINE_SEQS];
		uint32_t first[MACHINE_SEQS], n = draw_parts(machine, random, parts, first);
		struct machine_result all;
		size_t row = 0;

		if (n == 0)
			continue;
		machine_run(machine, parts, n, 1 + oracle_below(random, 3), &all);
		for (uint32_t i = 0; i < n; row += parts[i++].n)
			compare(&machine->model->p, &all, row, &alone[parts[i].seq], first[i],
				parts[i].n);
		machine_result_done(&all);
	}
}

/* The same tokens for every machine of a model. */
static void machine_start(struct machine *machine, struct program_model *m, uint32_t n_threads)
{
	struct oracle_random random = {7};

	machine_init(machine, m, n_threads);
	set_ids(machine, &random);
}

static void run_bits(struct oracle_random *random)
{
	struct model_want want = model_want_random(random);
	struct program_model *m = model_new(&want, random);
	struct machine_result alone[MACHINE_SEQS];
	struct machine machine;

	machine_start(&machine, m, 1);
	for (uint32_t i = 0; i < MACHINE_SEQS; i++)
		machine_run(&machine, &(struct machine_part){i, MACHINE_TOKENS}, 1, UINT32_MAX,
			    &alone[i]);
	machine_done(&machine);
	for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
		machine_start(&machine, m, n_threads);
		run_in_company(&machine, alone, random);
		machine_done(&machine);
	}
	for (uint32_t i = 0; i < MACHINE_SEQS; i++)
		machine_result_done(&alone[i]);
	model_free(m);
}

static void run_bits_often(struct oracle_random *random)
{
	for (uint32_t i = 0; i < 6; i++)
		run_bits(random);
}

static void test_bits_depend_neither_on_company_nor_chunks_nor_segments_nor_threads(void **state)
{
	(void)state;
	every_isa(run_bits_often, __func__);
}

/* ---- results --------------------------------------------------------------------------------- */

static int by_logit(const void *a, const void *b)
{
	const struct program_top *x = a, *y = b;

	if (x->logit != y->logit)
		return x->logit < y->logit ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

static void check_top(const struct program_row *row, const float *logits, uint32_t n_vocab)
{
	struct program_top *sorted = calloc(n_vocab, sizeof(*sorted));
	static const struct program_top none[PROGRAM_TOP_MAX];

	assert_non_null(sorted);
	for (uint32_t i = 0; i < n_vocab; i++)
		sorted[i] = (struct program_top){i, logits[i]};
	qsort(sorted, n_vocab, sizeof(*sorted), by_logit);
	assert_memory_equal(row->top, sorted, row->n_top * sizeof(*sorted));
	assert_memory_equal(row->top + row->n_top, none,
			    (PROGRAM_TOP_MAX - row->n_top) * sizeof(*none));
	free(sorted);
}

/* exp is good to 2 units in the last place, x - max to 2^-24 of at most 16 here, and 64 terms are
 * summed in fp32: 1e-5 is more than all of it, and a few units of lse itself. */
static void check_sums(const struct program_row *row, const float *logits, uint32_t n_vocab,
		       uint32_t next)
{
	double sum = 0;

	for (uint32_t i = 0; i < n_vocab; i++)
		sum += exp((double)logits[i]);
	assert_true(fabs((double)row->lse - log(sum)) < 1e-5);
	if (next == PROGRAM_NONE)
		assert_true(isnan(row->score));
	else
		assert_true(fabs((double)row->score - ((double)logits[next] - log(sum))) < 1e-5);
}

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
		struct machine_part part = {0, MACHINE_TOKENS};
		struct machine machine;
		struct machine_result result;

		make_twins(m, &random);
		machine_start(&machine, m, 2);
		machine_run(&machine, &part, 1, UINT32_MAX, &result);
		for (uint32_t i = 0; i < part.n; i++) {
			const float *logits = result.logits + (size_t)i * m->p.n_vocab;

			assert_int_equal(result.rows[i].n_top, 1 + i % PROGRAM_TOP_MAX);
			check_top(&result.rows[i], logits, m->p.n_vocab);
			check_sums(&result.rows[i], logits, m->p.n_vocab,
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
	o->run =
		(struct backend_run){o->machine.program, &o->job, &o->rows, 0, m->p.shape.n_layers};
}

static void one_done(struct one *o)
{
	plan_list_done(&o->list);
	machine_done(&o->machine);
	model_free(o->m);
}

static int one_run(struct one *o)
{
	uint64_t id;

	return backend_cpu.program->run(o->machine.backend, &o->run, &id);
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
	REFUSED(o.run.n_layers, 4);
	REFUSED(o.run.n_layers, 0);
	REFUSED(o.run.first_layer, 1);
	o.run.n_layers = 1;
	assert_int_equal(one_run(&o), 0);
	REFUSED(o.run.first_layer, 2);
	REFUSED(o.run.first_layer, 1);
	o.run.n_layers = 3;
	assert_int_equal(one_run(&o), 0);
	one_done(&o);
}

static void test_a_page_larger_than_an_extent_is_refused_in_a_sentence(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct model_want want = model_want_random(&random);
	struct program_model *m = model_new(&want, &random);
	struct backend_program *program = NULL;
	char why[PROGRAM_WHY_BYTES] = "";
	struct machine machine;

	(void)state;
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

static void test_the_cost_falls_with_threads_and_scratch_is_said(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = deep_model(&random);
	struct backend_program_cost cost[3];

	(void)state;
	for (uint32_t n = 1; n <= 2; n++) {
		struct machine machine;

		machine_init(&machine, m, n);
		backend_cpu.program->cost(machine.backend, machine.program, &cost[n]);
		machine_done(&machine);
		assert_true(cost[n].row_ns > 0 && cost[n].fixed_ns > cost[n].row_ns);
		assert_true(cost[n].scratch_bytes >
			    backend_cpu.program->max_rows * (uint64_t)m->p.hidden * sizeof(float));
	}
	assert_true(cost[1].fixed_ns > cost[2].fixed_ns && cost[1].row_ns > cost[2].row_ns);
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
		cmocka_unit_test(test_random_programs_agree_with_float64),
		cmocka_unit_test(
			test_bits_depend_neither_on_company_nor_chunks_nor_segments_nor_threads),
		cmocka_unit_test(test_results_are_those_of_a_sort_and_ties_go_to_the_lower_id),
		cmocka_unit_test(test_hidden_rows_alone_need_no_head),
		cmocka_unit_test(
			test_a_run_that_does_not_fit_is_refused_and_ends_what_was_under_way),
		cmocka_unit_test(test_a_page_larger_than_an_extent_is_refused_in_a_sentence),
		cmocka_unit_test(test_the_cost_falls_with_threads_and_scratch_is_said),
		cmocka_unit_test(test_what_passes_the_check_can_be_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
