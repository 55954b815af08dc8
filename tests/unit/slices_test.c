/*
 * slices_test.c - matrices that go in slices, on a device that is played: what is asked of cuBLASLt
 * before a program is taken; and of which layers.
 */
#include "fake_device.h"
#include "kernels/cuda/program/scratch.h"
#include "kernels/program/backend_program.h"
#include "program_model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of more elements than go at once; slices have 64 outputs, and the gate's last has eight. */
static struct program_model *sliced_model(struct oracle_random *random)
{
	struct model_want want = model_want_random(random);

	want.n_q_heads = want.n_kv_heads = 2;
	want.head_dim = 64;
	want.hidden = 128;
	want.intermediate = 200;
	want.n_vocab = 101;
	want.dtype = want.weights = WORK_FP16;
	want.mixed = want.mixed_vectors = want.fused = want.side = false;
	return model_new(&want, random);
}

/* Of a program, where there is no product of so many outputs. */
static int make(uint32_t refused, char why[PROGRAM_WHY_BYTES])
{
	struct backend_config config = {2u << 20, 2u << 20, 0, NULL};
	struct oracle_random random = oracle_seed(__func__);
	struct program_model *m = sliced_model(&random);
	const struct backend_ops *ops = fake_device_ops();
	struct backend_program *program = NULL;
	struct backend_weights *weights;
	struct backend *b;
	int r;

	fake_device_refused = refused;
	assert_int_equal(ops->open(&config, &b, NULL, 0), 0);
	assert_int_equal(ops->program->weights_new(b, m->p.weights_bytes, &weights), 0);
	r = ops->program->program_new(b, &m->p, weights, &program, why);
	assert_true((r == 0) == (program != NULL));
	if (r == 0) {
		struct backend_program_cost cost;

		ops->program->cost(b, program, &cost);
		assert_int_equal(ops->program->program_bytes(b, &m->p), cost.scratch_bytes);
	}
	ops->program->program_free(b, program);
	ops->program->weights_free(b, weights);
	ops->close(b);
	model_free(m);
	return r;
}

static void a_program_whose_slices_have_no_product_is_refused(void **state)
{
	char why[PROGRAM_WHY_BYTES] = "";

	(void)state;
	assert_int_equal(make(64, why), -EOPNOTSUPP);
	assert_non_null(strstr(why, "for 64 outputs of which cuBLASLt has no product"));
	assert_int_equal(make(8, why), -EOPNOTSUPP);
	assert_non_null(strstr(why, "[200, 128], for 8 outputs of which"));
}

static void of_what_goes_in_slices_the_whole_is_not_asked_for(void **state)
{
	char why[PROGRAM_WHY_BYTES] = "";

	(void)state;
	assert_int_equal(make(200, why), 0);
	assert_int_equal(make(101, why), -EOPNOTSUPP); /* the head has no slices */
}

static void of_each_kind_one_layer_is_the_first(void **state)
{
	static const uint8_t kind_of[] = {1, 1, 0, 1, 2, 0, 2};
	static const bool is_first[] = {true, false, true, false, true, false, false};
	const struct program p = {.kind_of = kind_of, .n_kinds = 3, .shape.n_layers = 7};

	(void)state;
	for (uint32_t layer = 0; layer < p.shape.n_layers; layer++)
		assert_int_equal(program_is_first(&p, layer), is_first[layer]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_whose_slices_have_no_product_is_refused),
		cmocka_unit_test(of_what_goes_in_slices_the_whole_is_not_asked_for),
		cmocka_unit_test(of_each_kind_one_layer_is_the_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
