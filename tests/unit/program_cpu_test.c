/*
 * program_cpu_test.c - whole tokens on the CPU: random programs against float64, and what may
 * change a row's bits: nothing but its own tokens.
 */
#include "kernels/cpu/vec.h"
#include "program_machine.h"
#include "program_oracle.h"
#include "program_results.h"
#include "tests/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A sanitizer meets no line in six programs that it misses in two. */
#define N_BITS ROUNDS(6, 2)

static const char *const isas[] = {"generic", "avx2", "avx512"};

/* ThreadSanitizer looks for who meets whom, which is the same whatever the instructions are: what
 * most of their loops touch it is told (kernels/races.h). */
static bool is_run(const char *isa)
{
	const struct vec *vec = vec_select(isa);

	return vec && (!SANITIZED_THREADS || vec == vec_select(NULL));
}

/* Chains of at most some hundred products in fp32, a dozen operations in a row: 1e-5 of a row. What
 * is rounded to a narrow type can come out a unit in the last place apart, where the exact value
 * lies within fp32's error of a tie: 2^-10 or 2^-7 of a value, in all values at once at worst, and
 * twice that behind some layers; or as far as the truth itself moves. */
static const double bounds[] = {[WORK_FP32] = 1e-5, [WORK_FP16] = 0x1p-9, [WORK_BF16] = 0x1p-6};

#define N_NEAR 16u
#define NEAR_FACTOR 2 /* between the largest of so many by chance and what may come */

static double rows_apart(const double *a, const double *b, uint32_t n, uint32_t width)
{
	float *rows = malloc((size_t)n * width * sizeof(*rows));
	double apart;

	assert_non_null(rows);
	for (size_t i = 0; i < (size_t)n * width; i++)
		rows[i] = (float)a[i];
	apart = rows_error(rows, b, n, width);
	free(rows);
	return apart;
}

/* By how much the truth itself moves where fp32's error decides to what values beside a tie are
 * rounded. Norms of few values make much of a unit in the last place: with the seed
 * 1795454980360662 a row of three layers in fp16 is 2.3e-3 off, and the truth moves by 3.4e-3. */
static double truth_moves(const struct program_model *m, const uint32_t *ids, uint32_t n,
			  const struct program_truth *truth)
{
	struct oracle_random random = {n};
	double most = 0;

	for (uint32_t i = 0; i < N_NEAR; i++) {
		struct program_truth near = program_oracle_near(m, ids, n, &random);

		most = fmax(most, rows_apart(near.logits, truth->logits, n, m->p.n_vocab));
		most = fmax(most, rows_apart(near.hidden, truth->hidden, n, m->p.hidden));
		program_truth_done(&near);
	}
	return most;
}

static double check_oracle(const struct model_want *want, struct oracle_random *random)
{
	struct program_model *m = model_new(want, random);
	struct machine_part part = {0, 1 + oracle_below(random, 100), NULL};
	struct machine machine;
	struct machine_result result;
	struct program_truth truth;
	double logits, hidden, most = bounds[want->dtype];

	machine_init(&machine, m, 1 + oracle_below(random, 2));
	machine_run(&machine, &part, 1, 1, &result);
	truth = program_oracle(m, machine.seqs[0].ids, part.n);
	logits = rows_error(result.logits, truth.logits, part.n, m->p.n_vocab);
	hidden = rows_error(result.hidden, truth.hidden, part.n, m->p.hidden);
	if (want->dtype != WORK_FP32 && fmax(logits, hidden) > most)
		most = fmax(most,
			    NEAR_FACTOR * truth_moves(m, machine.seqs[0].ids, part.n, &truth));
	if (logits > most || hidden > most)
		fail_msg("type %d, norms %u %s, activation %u, %u layers: %g and %g (at most %g)",
			 (int)want->dtype, want->norms,
			 want->side	? "beside"
			 : want->behind ? "behind"
					: "before",
			 want->act, want->n_layers, logits, hidden, most);
	program_truth_done(&truth);
	machine_result_done(&result);
	machine_done(&machine);
	model_free(m);
	return logits;
}

struct tally {
	uint32_t n_narrow, n_near; /* these as near to the truth as fp32 */
};

static void count_programs(struct oracle_random *random, uint32_t n, struct tally *tally)
{
	for (uint32_t i = 0; i < n; i++) {
		struct model_want want = model_want_random(random);
		double error = check_oracle(&want, random);

		tally->n_narrow += want.dtype != WORK_FP32;
		tally->n_near += want.dtype != WORK_FP32 && error <= bounds[WORK_FP32];
	}
}

/* Where nothing falls near a tie, narrow types are as near to the truth as fp32: what is rounded is
 * what is said to be, and nothing else. That is so of more than a quarter of the programs here, and
 * of 60 it is by chance too few once in some thousands of runs: then three times as many tell. */
static void run_oracle(struct oracle_random *random)
{
	struct tally tally = {0};

	count_programs(random, 60, &tally);
	if (tally.n_near * 12 <= tally.n_narrow)
		count_programs(random, 120, &tally);
	assert_true(tally.n_near * 12 > tally.n_narrow);
}

static void every_isa(void (*run)(struct oracle_random *), const char *name)
{
	struct oracle_random random = oracle_seed(name);

	for (uint32_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		if (!is_run(isas[i]))
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
		ret[n++] = (struct machine_part){seq, 1 + oracle_below(random, most), NULL};
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
		machine_run(machine, parts, n, segment_random(random), &all);
		for (uint32_t i = 0; i < n; row += parts[i++].n)
			compare(&machine->model->p, &all, row, &alone[parts[i].seq], first[i],
				parts[i].n);
		machine_result_done(&all);
	}
}

static void run_bits(struct oracle_random *random)
{
	struct model_want want = model_want_random(random);
	struct program_model *m = model_new(&want, random);
	struct machine_result alone[MACHINE_SEQS];
	struct machine machine;

	machine_init(&machine, m, 1);
	for (uint32_t i = 0; i < MACHINE_SEQS; i++)
		machine_run(&machine, &(struct machine_part){i, MACHINE_TOKENS, NULL}, 1, 0,
			    &alone[i]);
	machine_done(&machine);
	for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
		machine_init(&machine, m, n_threads);
		run_in_company(&machine, alone, random);
		machine_done(&machine);
	}
	for (uint32_t i = 0; i < MACHINE_SEQS; i++)
		machine_result_done(&alone[i]);
	model_free(m);
}

static void run_bits_often(struct oracle_random *random)
{
	for (uint32_t i = 0; i < N_BITS; i++)
		run_bits(random);
}

static void test_bits_depend_neither_on_company_nor_chunks_nor_segments_nor_threads(void **state)
{
	(void)state;
	every_isa(run_bits_often, __func__);
}

/* ---- drafts ---------------------------------------------------------------------------------- */

/* Tokens 50 and 51 follow each other, 52 stands beside 50, and 53 behind that. */
#define BEFORE 50u
static const uint32_t draft_parents[] = {WORK_NONE, 0, WORK_NONE, 2};

/* The last two rows of sequence 1, whose tokens 50 and 51 are the draft's from `at` on. */
static struct machine_result without_draft(struct program_model *m, uint32_t at)
{
	struct machine machine;
	struct machine_result before, ret;

	machine_init(&machine, m, 1);
	memcpy(machine.seqs[1].ids, machine.seqs[0].ids, sizeof(machine.seqs[0].ids));
	memmove(machine.seqs[1].ids + BEFORE, machine.seqs[0].ids + BEFORE + at, 2 * 4);
	machine_run(&machine, &(struct machine_part){1, BEFORE, NULL}, 1, 1, &before);
	machine_run(&machine, &(struct machine_part){1, 2, NULL}, 1, 1, &ret);
	machine_result_done(&before);
	machine_done(&machine);
	return ret;
}

/* Keys of drafts lie elsewhere in their block, so sums over them are of another order: fp32's
 * bound. */
static void check_draft(const struct program *p, const struct machine_result *draft, uint32_t at,
			const struct machine_result *plain)
{
	size_t n = (size_t)2 * p->n_vocab;
	double *truth = malloc(n * sizeof(*truth));

	assert_non_null(truth);
	for (size_t i = 0; i < n; i++)
		truth[i] = (double)plain->logits[i];
	assert_true(rows_error(draft->logits + (size_t)at * p->n_vocab, truth, 2, p->n_vocab) <=
		    bounds[WORK_FP32]);
	free(truth);
}

static void test_drafts_are_turned_by_their_depth_and_see_their_path_alone(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t round = 0; round < 10; round++) {
		struct model_want want = model_want_random(&random);
		struct program_model *m;
		struct machine machine;
		struct machine_result before, draft, plain;

		want.dtype = WORK_FP32;
		m = model_new(&want, &random);
		machine_init(&machine, m, 1);
		machine_run(&machine, &(struct machine_part){0, BEFORE, NULL}, 1, 1, &before);
		machine_run(&machine, &(struct machine_part){0, 4, draft_parents}, 1, 1, &draft);
		for (uint32_t at = 0; at < 4; at += 2) {
			plain = without_draft(m, at);
			check_draft(&m->p, &draft, at, &plain);
			machine_result_done(&plain);
		}
		machine_result_done(&before);
		machine_result_done(&draft);
		machine_done(&machine);
		model_free(m);
	}
}

#define N_TREE 40u

/* A tree of tokens that goes in parts of any size, each in a run of its own: as if it were one. */
static void compare_parts(struct program_model *m, const uint32_t *parents,
			  struct oracle_random *random)
{
	struct machine machine;
	struct machine_result before, all, part;
	uint32_t done = 0, n;

	machine_init(&machine, m, 1 + oracle_below(random, 2));
	machine_run(&machine, &(struct machine_part){0, BEFORE, NULL, 0}, 1, 0, &before);
	machine_run(&machine, &(struct machine_part){0, N_TREE, parents, 0}, 1, 0, &all);
	machine.seqs[0].n_tokens = BEFORE;
	for (; done < N_TREE; done += n) {
		n = 1 + oracle_below(random, N_TREE - done);
		machine_run(&machine, &(struct machine_part){0, n, parents, done}, 1,
			    segment_random(random), &part);
		compare(&m->p, &part, 0, &all, done, n);
		machine_result_done(&part);
	}
	machine_result_done(&before);
	machine_result_done(&all);
	machine_done(&machine);
}

static void test_bits_do_not_depend_on_the_parts_of_a_draft(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	uint32_t parents[N_TREE];

	(void)state;
	for (uint32_t round = 0; round < 10; round++) {
		struct model_want want = model_want_random(&random);
		struct program_model *m = model_new(&want, &random);

		for (uint32_t i = 0; i < N_TREE; i++)
			parents[i] = i == 0 || oracle_below(&random, 4) == 0
					     ? WORK_NONE
					     : oracle_below(&random, i);
		compare_parts(m, parents, &random);
		model_free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_programs_agree_with_float64),
		cmocka_unit_test(
			test_bits_depend_neither_on_company_nor_chunks_nor_segments_nor_threads),
		cmocka_unit_test(test_drafts_are_turned_by_their_depth_and_see_their_path_alone),
		cmocka_unit_test(test_bits_do_not_depend_on_the_parts_of_a_draft),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
