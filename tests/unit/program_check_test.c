/*
 * program_check_test.c - programs that cannot be run are refused in a sentence that names layer,
 * operation and tensor; good ones pass, with the widths of their registers.
 */
#include "program_model.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Three layers of both kinds, with everything that can be left out. */
static const struct model_want good = {.n_layers = 3,
				       .n_q_heads = 4,
				       .n_kv_heads = 2,
				       .head_dim = 32,
				       .hidden = 48,
				       .intermediate = 80,
				       .n_vocab = 100,
				       .page_tokens = 32,
				       .n_turned = 16,
				       .dtype = WORK_BF16,
				       .weights = WORK_BF16,
				       .biases = true,
				       .norms = PROGRAM_HEAD_NORM,
				       .act = PROGRAM_SILU,
				       .embed_factor = 1,
				       .logit_factor = 1,
				       .rope_factor = 1};
/* Its operations, by their places in a kind. */
enum { NORM, QKV, ATTEND, O, NORM_2, GATE, DOWN };

static struct program_model *good_model(void)
{
	struct oracle_random random = {1};

	return model_new(&good, &random);
}

static void assert_refused(struct program_model *m, const char *words)
{
	struct program_widths widths = {.product = 77};
	char why[PROGRAM_WHY_BYTES] = "";

	assert_int_equal(program_check(&m->p, &widths, why), -EINVAL);
	if (!strstr(why, words))
		fail_msg("\"%s\" is not in: %s", words, why);
	assert_int_equal(widths.product, 77);
	model_free(m);
}

/* m is a good program until `change`. */
#define REFUSED(words, change) \
	do { \
		struct program_model *m = good_model(); \
		change; \
		assert_refused(m, words); \
	} while (0)

/* The tensor in a slot of the layer 1. */
static struct program_tensor *tensor_at(struct program_model *m, enum model_slot slot)
{
	return &m->tensors[m->slots[MODEL_SLOTS + slot]];
}

/* An operation of layer 1's kind. */
static struct program_op *op_at(struct program_model *m, uint32_t op)
{
	return &m->ops[m->kinds[1].first_op + op];
}

static void test_a_good_program_passes_with_its_widths(void **state)
{
	struct program_model *m = good_model();
	struct program_widths widths;
	char why[PROGRAM_WHY_BYTES];

	(void)state;
	assert_int_equal(program_check(&m->p, &widths, why), 0);
	assert_int_equal(widths.of[PROGRAM_X], 48);
	assert_int_equal(widths.of[PROGRAM_A], 48);
	assert_int_equal(widths.of[PROGRAM_B], (4 + 2 + 2) * 32);
	assert_int_equal(widths.of[PROGRAM_C], 4 * 32);
	assert_int_equal(widths.product, (4 + 2 + 2) * 32);
	model_free(m);
}

static void test_every_family_passes(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 200; i++) {
		struct model_want want = model_want_random(&random);
		struct program_model *m = model_new(&want, &random);
		struct program_widths widths;
		char why[PROGRAM_WHY_BYTES] = "";

		if (program_check(&m->p, &widths, why))
			fail_msg("%s", why);
		model_free(m);
	}
}

static void test_shapes_are_refused(void **state)
{
	(void)state;
	REFUSED("head_dim 40", m->p.shape.head_dim = 40);
	REFUSED("head_dim 272", m->p.shape.head_dim = 272);
	REFUSED("head_dim 0", m->p.shape.head_dim = 0);
	REFUSED("query heads", m->p.shape.n_q_heads = 5);
	REFUSED("needs layers", m->p.shape.n_kv_heads = 0);
	REFUSED("needs layers", m->p.shape.n_layers = 0);
	REFUSED("1025 layers", m->p.shape.n_layers = 1025);
	REFUSED("4294967295 layers", m->p.shape.n_layers = UINT32_MAX);
	REFUSED("page_tokens 48", m->p.shape.page_tokens = 48);
	REFUSED("dtype 3", m->p.shape.dtype = 3);
	REFUSED("hidden 0", m->p.hidden = 0);
	REFUSED("n_vocab 0", m->p.n_vocab = 0);
	REFUSED("max_positions 0", m->p.max_positions = 0);
}

static void test_heads_that_the_products_do_not_make_are_refused(void **state)
{
	(void)state;
	REFUSED("layer 0, operation 2 (ATTEND): B has 256 elements, q, k and v are 384",
		m->p.shape.n_q_heads = 8);
	REFUSED("B has 256 elements, q, k and v are 512", m->p.shape.head_dim = 64);
	REFUSED("q, k and v are 786432", m->p.shape.n_q_heads = m->p.shape.n_kv_heads = 1024;
		m->p.shape.head_dim = 256);
	REFUSED("2147483648 query heads; a model has at most 1024",
		m->p.shape.n_q_heads = m->p.shape.n_kv_heads = 1u << 31);
}

static void test_factors_and_eps_are_refused(void **state)
{
	(void)state;
	REFUSED("scale nan", m->p.shape.scale = NAN);
	REFUSED("embed_factor inf", m->p.embed_factor = INFINITY);
	REFUSED("logit_factor -inf", m->p.logit_factor = -INFINITY);
	REFUSED("rope_factor nan", m->p.rope_factor = NAN);
	REFUSED("program: eps -1", m->p.eps = -1);
	REFUSED("program: eps nan", m->p.eps = NAN);
	REFUSED("layer 1, operation 0 (NORM): eps -1", op_at(m, NORM)->eps = -1);
	REFUSED("layer 1, operation 2 (ATTEND): eps inf", op_at(m, ATTEND)->eps = INFINITY);
}

static void test_turns_are_refused(void **state)
{
	(void)state;
	REFUSED("n_turned 15", m->p.n_turned = 15);
	REFUSED("n_turned 34", m->p.n_turned = 34);
	REFUSED("inv_freq[7] nan", m->inv_freq[7] = (double)NAN);
	REFUSED("inv_freq[0] inf", m->inv_freq[0] = (double)INFINITY);
}

static void test_kinds_are_refused(void **state)
{
	(void)state;
	REFUSED("layer 2: is of kind 2 of 2", m->kind_of[2] = 2);
	REFUSED("0 kinds", m->p.n_kinds = 0);
	REFUSED("17 kinds", m->p.n_kinds = 17);
	REFUSED("33 slots", m->p.n_slots = 33);
	REFUSED("kind 1 has 8 operations from 7 on, of 14", m->kinds[1].n_ops = 8);
	REFUSED("kind 0 has 0 operations", m->kinds[0].n_ops = 0);
	REFUSED("kind 0 has 4294967295 operations", m->kinds[0].n_ops = UINT32_MAX);
	REFUSED("kind 1 has 7 operations from 4294967290 on",
		m->kinds[1].first_op = UINT32_MAX - 5);
	REFUSED("kind 0 has 17 operations", m->kinds[0].n_ops = 17; m->p.n_ops = 30);
}

static void test_operations_are_refused(void **state)
{
	(void)state;
	REFUSED("layer 1, operation 3 (?): kind 4", op_at(m, O)->kind = 4);
	REFUSED("layer 1, operation 3 (?): kind 0", op_at(m, O)->kind = 0);
	REFUSED("(NORM): flags 0x2", op_at(m, NORM)->flags = PROGRAM_GATED);
	REFUSED("(LINEAR): flags 0x4", op_at(m, QKV)->flags = PROGRAM_HEAD_NORM);
	REFUSED("(ATTEND): flags 0x5", op_at(m, ATTEND)->flags |= PROGRAM_ADD);
	REFUSED("norms of heads, and over all", op_at(m, ATTEND)->flags |= PROGRAM_WIDE_NORM);
	REFUSED("activation 4, which nobody knows", op_at(m, GATE)->act = 4);
	REFUSED("activation 1 without a gate", op_at(m, QKV)->act = PROGRAM_SILU);
	REFUSED("(NORM): 2 weights", op_at(m, NORM)->n_w = 2);
	REFUSED("(LINEAR): 0 weights", op_at(m, QKV)->n_w = 0);
	REFUSED("(LINEAR): 4 weights", op_at(m, QKV)->n_w = 4);
	REFUSED("(ATTEND): 0 weights", op_at(m, ATTEND)->n_w = 0);
	REFUSED("(ATTEND): 2 weights", op_at(m, ATTEND)->flags = 0);
	REFUSED("(NORM): 1 weights; what is unused", op_at(m, NORM)->w[2] = 0);
	REFUSED("(NORM): 1 weights; what is unused", op_at(m, NORM)->bias[0] = 0);
}

static void test_registers_are_refused(void **state)
{
	(void)state;
	REFUSED("operation 0 (NORM): registers 4 and 1", op_at(m, NORM)->in = 4);
	REFUSED("registers 0 and 4294967295", op_at(m, NORM)->out = UINT32_MAX);
	REFUSED("operation 1 (LINEAR): reads C, to which this layer has written nothing",
		op_at(m, QKV)->in = PROGRAM_C);
	REFUSED("(LINEAR): adds to B", op_at(m, O)->out = PROGRAM_B);
	REFUSED("(NORM): adds to A", op_at(m, NORM)->flags = PROGRAM_ADD);
	REFUSED("(LINEAR): reads and writes A", op_at(m, QKV)->out = PROGRAM_A);
	REFUSED("writes 256 elements to X, which has 48", op_at(m, QKV)->out = PROGRAM_X);
	REFUSED("writes 128 elements to X", op_at(m, ATTEND)->out = PROGRAM_X);
}

static void test_attention_that_is_left_out_or_repeated_is_refused(void **state)
{
	(void)state;
	REFUSED("layer 0: 0 operations are ATTEND, 1 is needed", m->kinds[0].n_ops = 2);
	REFUSED("layer 1: 2 operations are ATTEND", *op_at(m, O) = *op_at(m, ATTEND);
		op_at(m, O)->out = PROGRAM_C; op_at(m, NORM_2)->in = PROGRAM_X;);
}

static void test_slots_are_refused(void **state)
{
	(void)state;
	REFUSED("layer 1, operation 1 (LINEAR): slot 18 of 18", op_at(m, QKV)->w[1] = 18);
	REFUSED("(LINEAR): slot 4294967295 of 18", op_at(m, QKV)->w[1] = PROGRAM_NONE);
	REFUSED("(LINEAR): slot 99 of 18", op_at(m, QKV)->bias[2] = 99);
	REFUSED("layer 1, operation 0 (NORM): slot 0 has no tensor in this layer",
		m->slots[MODEL_SLOTS] = PROGRAM_NONE);
	REFUSED("layer 2, operation 6 (LINEAR): tensor 50000 of",
		m->slots[2 * MODEL_SLOTS + MODEL_DOWN] = 50000);
}

static void test_tensors_of_a_wrong_shape_are_refused_by_name(void **state)
{
	(void)state;
	REFUSED("layer 1, operation 0 (NORM): tensor 1.norm is [47], [48] is needed",
		tensor_at(m, MODEL_NORM)->n_in = 47);
	REFUSED("tensor 1.norm is [1, 48], [48] is needed", tensor_at(m, MODEL_NORM)->n_out = 1);
	REFUSED("(LINEAR): tensor 1.q is [128, 40], [.., 48] is needed",
		tensor_at(m, MODEL_Q)->n_in = 40);
	REFUSED("(LINEAR): tensor 1.k is [48], [.., 48] is needed",
		tensor_at(m, MODEL_K)->n_out = 0);
	REFUSED("tensor 1.v.bias is [63], [64] is needed", tensor_at(m, MODEL_V_BIAS)->n_in = 63);
	REFUSED("(ATTEND): tensor 1.k_norm is [64], [32] is needed",
		tensor_at(m, MODEL_K_NORM)->n_in = 64);
	REFUSED("(ATTEND): tensor 1.q_norm is [32], [128] is needed",
		op_at(m, ATTEND)->flags = PROGRAM_WIDE_NORM);
	REFUSED("operation 5 (LINEAR): makes 159 elements, which have no halves",
		tensor_at(m, MODEL_UP)->n_out = 79;
		tensor_at(m, MODEL_UP_BIAS)->n_in = 79);
	REFUSED("operation 6 (LINEAR): tensor 1.down is [48, 80], [.., 60] is needed",
		tensor_at(m, MODEL_UP)->n_out = tensor_at(m, MODEL_UP_BIAS)->n_in = 40);
	REFUSED("embedding: tensor 0.embed is [99, 48], [100, 48] is needed",
		m->tensors[m->p.embed].n_out = 99);
	REFUSED("head: tensor 0.head is [100, 47], [.., 48] is needed",
		m->tensors[m->p.head].n_in = 47);
	REFUSED("final norm: tensor 0.final_norm is [50]", m->tensors[m->p.final_norm].n_in = 50);
	REFUSED("head: tensor 4294967295 of", m->p.head = PROGRAM_NONE);
}

static void test_tensors_beyond_the_weights_are_refused(void **state)
{
	(void)state;
	REFUSED("tensor 1.o is of a type that nobody knows (3)", tensor_at(m, MODEL_O)->dtype = 3);
	REFUSED("tensor 1.o is empty", tensor_at(m, MODEL_O)->n_in = 0);
	REFUSED("tensor 1.o is empty, or not aligned", tensor_at(m, MODEL_O)->offset += 2);
	REFUSED("tensor 1.o ends behind the weights'",
		tensor_at(m, MODEL_O)->offset = m->p.weights_bytes);
	REFUSED("tensor 1.o ends behind the weights'",
		tensor_at(m, MODEL_O)->offset = UINT64_MAX - 255);
	REFUSED("tensor 1.o ends behind the weights'", tensor_at(m, MODEL_O)->n_out = UINT32_MAX);
	REFUSED("tensor 1.o ends behind the weights'", tensor_at(m, MODEL_O)->n_out = UINT32_MAX;
		tensor_at(m, MODEL_O)->n_in = UINT32_MAX);
	REFUSED("ends behind the weights' 0 bytes", m->p.weights_bytes = 0);
	REFUSED("tensor without a name is empty", tensor_at(m, MODEL_O)->name = NULL;
		tensor_at(m, MODEL_O)->n_in = 0);
}

static void test_a_long_name_leaves_room_for_what_is_wrong(void **state)
{
	char name[1000];

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	REFUSED("nn is [128, 40], [.., 48] is needed", tensor_at(m, MODEL_Q)->n_in = 40;
		tensor_at(m, MODEL_Q)->name = name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_good_program_passes_with_its_widths),
		cmocka_unit_test(test_every_family_passes),
		cmocka_unit_test(test_shapes_are_refused),
		cmocka_unit_test(test_heads_that_the_products_do_not_make_are_refused),
		cmocka_unit_test(test_factors_and_eps_are_refused),
		cmocka_unit_test(test_turns_are_refused),
		cmocka_unit_test(test_kinds_are_refused),
		cmocka_unit_test(test_operations_are_refused),
		cmocka_unit_test(test_registers_are_refused),
		cmocka_unit_test(test_attention_that_is_left_out_or_repeated_is_refused),
		cmocka_unit_test(test_slots_are_refused),
		cmocka_unit_test(test_tensors_of_a_wrong_shape_are_refused_by_name),
		cmocka_unit_test(test_tensors_beyond_the_weights_are_refused),
		cmocka_unit_test(test_a_long_name_leaves_room_for_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
