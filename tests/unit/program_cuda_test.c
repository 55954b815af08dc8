/*
 * program_cuda_test.c - whole tokens on the GPU: random programs against float64 and against the
 * CPU's, the same batch twice, segments, two programs in turns, and what comes of logits. Products
 * have program_products_cuda_test.c.
 *
 * argv[1] is the module; argv[2] "speed": no tests, but times of a model of 8 billion weights, of
 * the numbers of rows that follow (program_speed.h). Without a device the program says so and exits
 * with 77, which CTest counts as skipped. With PROGRAM_FAKE the device is played (fake_device.h):
 * that is program_device_test.
 */
#ifndef PROGRAM_FAKE
#include "program_speed.h"
#endif
#include "oracle.h"
#include "program_errors.h"
#include "program_gpu.h"
#include "program_machine.h"
#include "program_oracle.h"
#include "program_results.h"

#include "proto/arith.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- against the truth ----------------------------------------------------------------------- */

static void test_random_programs_agree_with_float64_and_the_cpu(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		struct model_want want = gpu_want(&random);

		gpu_check_new(&want, 1 + oracle_below(&random, 100), &random, &errors);
	}
	program_errors_print(&errors);
}

/* Attention's wide tiles, and products of many rows. */
static void test_prompts_of_some_hundred_rows_agree_with_float64(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct model_want want = gpu_want(&random);

		want.n_layers = 2;
		gpu_check_new(&want, 300 + oracle_below(&random, MACHINE_TOKENS - 300), &random,
			      &errors);
	}
	program_errors_print(&errors);
}

/* Inputs of a product. A row is then what a norm makes of that alone; of 32 inputs one came out so
 * short that weights off in the last place moved it by a fifth. */
#define LONG_ENOUGH 128u

/* What a norm adds to X counts also where X is read but once before it is written anew. */
static void test_norms_onto_an_x_that_goes_agree_with_float64(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct model_want want = gpu_want(&random);
		struct program_model *m;

		want.side = false;
		want.behind = true;
		want.intermediate = max_u32(want.intermediate, LONG_ENOUGH);
		m = model_new(&want, &random);
		for (uint32_t k = 0; k < m->p.n_kinds; k++)
			m->ops[m->kinds[k].first_op + m->kinds[k].n_ops - 1].flags = 0;
		gpu_check(m, &want, 1 + i, &errors);
	}
	program_errors_print(&errors);
}

/* Prompts, then tokens one by one, several sequences at a time, in chunks as they come. */
static void test_decoding_behind_a_prompt_agrees_with_float64(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t round = 0; round < 6; round++) {
		struct model_want want = gpu_want(&random);
		struct program_model *m = model_new(&want, &random);
		struct program_truth truth[3];
		struct machine machine;

		gpu_start(&machine, m);
		for (uint32_t s = 0; s < 3; s++)
			truth[s] = program_oracle(m, machine.seqs[s].ids, 90);
		for (uint32_t at = 0; at < 90;) {
			uint32_t n = at < 60 ? 1 + oracle_below(&random, 30) : 1;
			struct machine_part parts[3] = {{0, n, NULL}, {2, n, NULL}, {1, n, NULL}};
			struct machine_result result;

			machine_run(&machine, parts, 3, segment_random(&random), &result);
			for (uint32_t i = 0; i < 3; i++)
				program_errors_add(&errors, &want,
						   &(struct program_compared){
							   "in company",
							   result.logits +
								   (size_t)i * n * m->p.n_vocab,
							   truth[parts[i].seq].logits +
								   (size_t)at * m->p.n_vocab,
							   n, m->p.n_vocab});
			machine_result_done(&result);
			at += n;
		}
		for (uint32_t s = 0; s < 3; s++)
			program_truth_done(&truth[s]);
		machine_done(&machine);
		model_free(m);
	}
	program_errors_print(&errors);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void assert_same(const struct program *p, const struct machine_result *a,
			const struct machine_result *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->logits, b->logits, (size_t)a->n * p->n_vocab * sizeof(float));
	assert_memory_equal(a->hidden, b->hidden, (size_t)a->n * p->hidden * sizeof(float));
	assert_memory_equal(a->rows, b->rows, a->n * sizeof(*a->rows));
}

/* Each number of rows is a step of its own, and the largest the last. */
static void prepare(struct machine *machine)
{
	const struct backend_program_ops *ops = machine->ops->program;
	uint32_t n = 1;

	while (ops->program_prepare(machine->backend, machine->program))
		n++;
	assert_in_range(n, 8, 16);
	assert_false(ops->program_prepare(machine->backend, machine->program));
}

static void run_some(struct program_model *m, uint64_t segment, bool prepared,
		     struct machine_result ret[3])
{
	const struct machine_part prompts[] = {{0, 70, NULL}, {1, 33, NULL}, {4, 5, NULL}};
	const struct machine_part tokens[] = {{4, 1, NULL}, {0, 1, NULL}, {1, 1, NULL}};
	struct machine machine;

	gpu_start(&machine, m);
	if (prepared)
		prepare(&machine);
	machine_run(&machine, prompts, 3, segment, &ret[0]);
	machine_run(&machine, tokens, 3, segment, &ret[1]);
	machine_run(&machine, tokens + 1, 1, segment, &ret[2]);
	machine_done(&machine);
}

static void test_bits_repeat_and_do_not_depend_on_segments(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t round = 0; round < 8; round++) {
		static const uint64_t segments[] = {0, 1, 300000};
		struct model_want want = gpu_want(&random);
		struct program_model *m;
		struct machine_result first[3], again[3];

		want.n_layers = 3;
		m = model_new(&want, &random);
		run_some(m, 0, round == 0, first);
		for (uint32_t s = 0; s < 3; s++) {
			run_some(m, segments[s], false, again);
			for (uint32_t i = 0; i < 3; i++) {
				assert_same(&m->p, &first[i], &again[i]);
				machine_result_done(&again[i]);
			}
		}
		for (uint32_t i = 0; i < 3; i++)
			machine_result_done(&first[i]);
		model_free(m);
	}
}

/* ---- in turns -------------------------------------------------------------------------------- */

#define N_TURNS 3u /* passes of each */

static const struct machine_part parts_in_turns[N_TURNS][2] = {{{0, 40, NULL}, {1, 9, NULL}},
							       {{1, 1, NULL}, {0, 1, NULL}},
							       {{0, 20, NULL}, {1, 1, NULL}}};

/* Two programs of one backend. */
struct couple {
	struct program_model *models[2];
	struct machine machines[2];
	struct machine_pass *passes[2]; /* NULL: none is under way */
	uint32_t n_begun[2];
	struct machine_result results[2][N_TURNS];
};

static void couple_init(struct couple *c, struct program_model *const models[2])
{
	*c = (struct couple){.models = {models[0], models[1]}};
	gpu_start(&c->machines[0], models[0]);
	machine_init_beside(&c->machines[1], &c->machines[0], models[1]);
}

static void couple_done(struct couple *c)
{
	for (uint32_t i = 0; i < 2 * N_TURNS; i++)
		machine_result_done(&c->results[i / N_TURNS][i % N_TURNS]);
	machine_done(&c->machines[1]);
	machine_done(&c->machines[0]);
}

/* A segment of one of them. False: it has no more. */
static bool couple_go_on(struct couple *c, uint32_t i, uint64_t most_ns)
{
	if (!c->passes[i] && c->n_begun[i] == N_TURNS)
		return false;
	if (!c->passes[i])
		c->passes[i] =
			machine_begin(&c->machines[i], parts_in_turns[c->n_begun[i]++], 2, most_ns);
	if (!machine_go_on(c->passes[i])) {
		machine_end(c->passes[i], &c->results[i][c->n_begun[i] - 1]);
		c->passes[i] = NULL;
	}
	return true;
}

/* Until neither has any. */
static void take_turns(struct couple *c, struct oracle_random *random)
{
	bool left[2] = {true, true};

	while (left[0] || left[1]) {
		uint32_t i = oracle_below(random, 2);

		for (uint32_t n = 1 + oracle_below(random, 4); n > 0 && left[i]; n--)
			left[i] = couple_go_on(c, i, oracle_below(random, 4) ? 1 : 20000);
	}
}

/* Wherever the one is, the other goes on from where it was. */
static void test_programs_in_turns_have_the_bits_of_each_alone(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t round = 0; round < 4; round++) {
		struct model_want want[2] = {gpu_want(&random), gpu_want(&random)};
		struct program_model *models[2];
		struct couple alone, turns;

		want[0].n_layers = want[1].n_layers = 2;
		for (uint32_t i = 0; i < 2; i++)
			models[i] = model_new(&want[round % 2 ? 0 : i], &random);
		couple_init(&alone, models);
		for (uint32_t i = 0; i < 2; i++)
			while (couple_go_on(&alone, i, 0))
				;
		couple_init(&turns, models);
		take_turns(&turns, &random);
		for (uint32_t i = 0; i < 2 * N_TURNS; i++)
			assert_same(&models[i / N_TURNS]->p,
				    &alone.results[i / N_TURNS][i % N_TURNS],
				    &turns.results[i / N_TURNS][i % N_TURNS]);
		couple_done(&alone);
		couple_done(&turns);
		model_free(models[0]);
		model_free(models[1]);
	}
}

/* ---- what is no number ----------------------------------------------------------------------- */

/* An id that the sequence has none of in its first n. */
static uint32_t foreign_id(const struct machine_seq *seq, uint32_t n, uint32_t n_vocab)
{
	uint32_t id = n_vocab - 1;

	for (uint32_t i = 0; i < n; i++)
		if (seq->ids[i] == id) {
			id--;
			i = UINT32_MAX;
		}
	return id;
}

/* Two sequences at once, the first of which has that id as its third. */
static void run_two(struct program_model *m, uint32_t n, uint32_t *ret_id,
		    struct machine_result *ret)
{
	const struct machine_part parts[] = {{0, n, NULL}, {1, n, NULL}};
	struct machine machine;

	gpu_start(&machine, m);
	*ret_id = foreign_id(&machine.seqs[1], n, m->p.n_vocab);
	machine.seqs[0].ids[2] = *ret_id;
	machine_run(&machine, parts, 2, 0, ret);
	machine_done(&machine);
}

/* Its K and V come out as NaN, and lie in pages that others' attention has beside its own. */
static void test_a_token_that_is_no_number_spares_who_does_not_see_it(void **state)
{
	static const uint32_t n_rows[] = {4, 40};
	struct oracle_random random = oracle_seed(__func__);
	const float infinite = INFINITY;

	(void)state;
	for (uint32_t i = 0; i < 6; i++) {
		struct model_want want = gpu_want(&random);
		uint32_t n = n_rows[i % 2], id;
		struct machine_result first, again;
		const struct program_tensor *embed;
		struct program_model *m;

		want.tied = false;
		want.n_vocab = 100;
		m = model_new(&want, &random);
		embed = &m->tensors[m->p.embed];
		run_two(m, n, &id, &first);
		oracle_encode(embed->dtype,
			      m->weights + embed->offset +
				      (uint64_t)id * embed->n_in * work_dtype_bytes(embed->dtype),
			      &infinite, 1);
		run_two(m, n, &id, &again);
		for (uint32_t row = 0; row < 2 * n; row++) {
			const float *hidden = again.hidden + (uint64_t)row * m->p.hidden;

			if (row >= 2 && row < n)
				assert_true(isnan(hidden[0]) && isnan(hidden[m->p.hidden - 1]));
			else
				assert_memory_equal(hidden,
						    first.hidden + (uint64_t)row * m->p.hidden,
						    m->p.hidden * sizeof(*hidden));
		}
		machine_result_done(&first);
		machine_result_done(&again);
		model_free(m);
	}
}

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

static void check_results(const struct model_want *want, uint32_t n, struct oracle_random *random)
{
	struct program_model *m = model_new(want, random);
	struct machine_part part = {0, n, NULL};
	struct machine_result result;
	struct machine machine;

	make_twins(m, random);
	gpu_start(&machine, m);
	machine_run(&machine, &part, 1, 0, &result);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(result.rows[i].n_top, 1 + i % PROGRAM_TOP_MAX);
		results_check(&result.rows[i], result.logits + (size_t)i * m->p.n_vocab,
			      m->p.n_vocab, machine.seqs[0].ids[i + 1]);
	}
	machine_result_done(&result);
	machine_done(&machine);
	model_free(m);
}

/* Of one block of logits, of several, and of more than are merged at a time. */
static void test_results_are_those_of_a_sort_and_ties_go_to_the_lower_id(void **state)
{
	static const uint32_t vocabularies[] = {1,    64,   65,	   1000,   4096,
						4097, 9999, 50257, 128256, 270001};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++) {
		struct model_want want = gpu_want(&random);

		want.n_layers = 1;
		want.hidden = want.intermediate = 32;
		want.n_vocab = vocabularies[i];
		if (want.n_vocab >= PROGRAM_TOP_MAX)
			check_results(&want, want.n_vocab > 60000 ? 6 : 70, &random);
		else
			check_results(&want, want.n_vocab, &random);
	}
}

static void test_hidden_rows_alone_need_no_head(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct model_want want = gpu_want(&random);
	struct program_model *m = model_new(&want, &random);
	const struct machine_part part = {3, 20, NULL};
	struct machine_result all, alone;
	struct machine machine;

	(void)state;
	gpu_start(&machine, m);
	machine_run(&machine, &part, 1, 0, &all);
	machine_done(&machine);
	gpu_start(&machine, m);
	machine.want = PROGRAM_WANT_HIDDEN;
	machine_run(&machine, &part, 1, 0, &alone);
	for (uint32_t i = 0; i < part.n; i++)
		assert_true(isnan(alone.rows[i].lse) && isnan(alone.rows[i].score) &&
			    alone.rows[i].n_top == 0);
	assert_memory_equal(all.hidden, alone.hidden, part.n * m->p.hidden * sizeof(float));
	machine_result_done(&all);
	machine_result_done(&alone);
	machine_done(&machine);
	model_free(m);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* The sentence, of a model that is not taken. */
static void refuse(struct program_model *m, const char *words)
{
	struct backend_config config = {2u << 20, 2u << 20, 0, NULL};
	struct backend_program *program = NULL;
	struct backend_weights *weights;
	char why[PROGRAM_WHY_BYTES] = "";
	struct backend *b;

	assert_int_equal(gpu_ops->open(&config, &b, NULL, 0), 0);
	assert_int_equal(gpu_ops->program->weights_new(b, m->p.weights_bytes, &weights), 0);
	assert_int_equal(gpu_ops->program->program_new(b, &m->p, weights, &program, why),
			 -EOPNOTSUPP);
	if (!strstr(why, words))
		fail_msg("\"%s\" lacks \"%s\"", why, words);
	assert_null(program);
	gpu_ops->program->weights_free(b, weights);
	gpu_ops->close(b);
	model_free(m);
}

static void test_what_the_gpu_does_not_multiply_is_named(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct model_want want = gpu_want(&random);

	(void)state;
	want.fused = want.tied = want.side = false;
	want.weights = WORK_FP32;
	refuse(model_new(&want, &random), "tensor 0.q is fp32");
	want.weights = want.dtype;
	want.intermediate = 20;
	refuse(model_new(&want, &random), "tensor 0.down is");
}

static void test_weights_that_no_memory_holds_are_refused(void **state)
{
	struct backend_config config = {2u << 20, 2u << 20, 0, NULL};
	struct backend_weights *weights = NULL;
	struct backend *b;

	(void)state;
	assert_int_equal(gpu_ops->open(&config, &b, NULL, 0), 0);
	assert_int_equal(gpu_ops->program->weights_new(b, UINT64_C(1) << 50, &weights), -ENOMEM);
	assert_null(weights);
	gpu_ops->program->weights_free(b, NULL);
	gpu_ops->program->program_free(b, NULL);
	gpu_ops->close(b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_programs_agree_with_float64_and_the_cpu),
		cmocka_unit_test(test_prompts_of_some_hundred_rows_agree_with_float64),
		cmocka_unit_test(test_norms_onto_an_x_that_goes_agree_with_float64),
		cmocka_unit_test(test_decoding_behind_a_prompt_agrees_with_float64),
		cmocka_unit_test(test_bits_repeat_and_do_not_depend_on_segments),
		cmocka_unit_test(test_programs_in_turns_have_the_bits_of_each_alone),
		cmocka_unit_test(test_a_token_that_is_no_number_spares_who_does_not_see_it),
		cmocka_unit_test(test_results_are_those_of_a_sort_and_ties_go_to_the_lower_id),
		cmocka_unit_test(test_hidden_rows_alone_need_no_head),
		cmocka_unit_test(test_what_the_gpu_does_not_multiply_is_named),
		cmocka_unit_test(test_weights_that_no_memory_holds_are_refused),
	};
	int r = gpu_find(argc > 1 ? argv[1] : NULL);

#ifndef PROGRAM_FAKE
	if (!r && argc > 2 && strcmp(argv[2], "speed") == 0)
		return program_speed(gpu_ops, argv[1], argv + 3);
#endif
	if (r)
		return r;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
