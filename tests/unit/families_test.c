/*
 * families_test.c - models of every family: from config.json to logits, against what transformers
 * computes of the same weights and tokens. On the CPU; with COPPICE_TEST_BACKEND=cuda on a GPU, by
 * the module that argv[1] names, those whose sizes a GPU takes; with PROGRAM_FAKE these on a device
 * that is played (fake_device.h).
 *
 * Bounds. Outside attention the CPU rounds nothing to the model's type, so fp32 is off by its own
 * rounding (some 1e-6 of logits that are below 32) and by transformers' angles, which are fp32:
 * their inverse frequencies and their products each move logits about as far as families.py
 * measured for the products (moved_angles). In bf16 and fp16 q, k, v and what attention gives are
 * rounded. families.py measured how far that moves transformers' own logits in bf16; fp16 has three
 * bits more, an eighth of it. It measured where rounding counts most, at short prompts, and over
 * all of the vocabulary; sums in another order turn other values round, so twice that is allowed.
 *
 * A GPU rounds what goes into each product as well, weights of attention among it, and nothing else
 * but in fp32: its bound is twice what families.py measured with all of that.
 */
#include "client/model/coppice_hf.h"
#include "family_fixture.h"
#include "proto/arith.h"
#include "oracle.h"
#include "program_gpu.h"
#include "program_machine.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool on_gpu(void)
{
	return gpu_ops != NULL;
}

static double bound_of(const struct family_model *model, enum work_dtype dtype)
{
	const double fp32 = 4e-5 + 4 * model->moved_angles;
	const double bf16 = on_gpu() ? model->moved_products : model->moved_bf16;
	switch (dtype) {
	case WORK_BF16:
		return fp32 + 2 * bf16;
	case WORK_FP16:
		return fp32 + 2 * bf16 / 8;
	default:
		return fp32;
	}
}

/* ---- a program of a model ------------------------------------------------------------------- */

static int find(void *context, const char *name, uint32_t *ret_tensor)
{
	const struct family_model *model = context;
	for (uint32_t i = 0; i < model->n_tensors; i++)
		if (!strcmp(model->tensors[i].name, name)) {
			*ret_tensor = i;
			return 0;
		}
	return -ENOENT;
}

static struct coppice_hf_program *read_program(const struct family_model *model)
{
	const struct coppice_hf_options options = {.max_positions = model->max_positions};
	struct coppice_hf_program *hf;
	char why[COPPICE_HF_WHY_BYTES];
	if (coppice_hf_parse(model->config, strlen(model->config), &options, &hf, why) < 0)
		fail_msg("%s: %s", model->name, why);
	if (coppice_hf_bind(hf, find, (void *)model, why) < 0)
		fail_msg("%s: %s", model->name, why);
	return hf;
}

static size_t elements(const struct family_tensor *t)
{
	return (size_t)(t->n_out ? t->n_out : 1) * t->n_in;
}

static void put_tensors(struct program_model *m, const struct family_model *model,
			enum work_dtype dtype)
{
	float *values;
	size_t most = 0;
	for (uint32_t i = 0; i < model->n_tensors; i++) {
		const struct family_tensor *from = &model->tensors[i];
		const size_t bytes = elements(from) * work_dtype_bytes(dtype);
		m->tensors[i] = (struct program_tensor){from->name, dtype, from->n_out, from->n_in,
							m->p.weights_bytes};
		m->p.weights_bytes += align_to(bytes, PROGRAM_ALIGN);
		most = elements(from) > most ? elements(from) : most;
	}
	m->weights = calloc(1, m->p.weights_bytes);
	values = malloc(most * sizeof(*values));
	assert_true(values && m->weights);
	for (uint32_t i = 0; i < model->n_tensors; i++) {
		family_weight(model, &model->tensors[i], values);
		oracle_encode(dtype, m->weights + m->tensors[i].offset, values,
			      elements(&model->tensors[i]));
	}
	free(values);
}

static struct work_shape shape_of(const struct coppice_program_info *info, enum work_dtype dtype)
{
	return (struct work_shape){
		.n_layers = info->n_layers,
		.n_q_heads = info->n_q_heads,
		.n_kv_heads = info->n_kv_heads,
		.head_dim = info->head_dim,
		.page_tokens = 16,
		.dtype = dtype,
		.scale = 1 / sqrtf(info->head_dim),
	};
}

_Static_assert(sizeof(struct coppice_op) == sizeof(struct program_op) &&
		       sizeof(struct coppice_layer_kind) == sizeof(struct program_kind),
	       "the same, for clients and for backends");

/* Borrows from both. Owned by the caller. */
static struct program_model *make_model(const struct family_model *model,
					const struct coppice_hf_program *hf, enum work_dtype dtype)
{
	const struct coppice_program_info *info = &hf->info;
	struct program_model *m = calloc(1, sizeof(*m));
	assert_non_null(m);
	assert_true(model->n_tensors <= MODEL_TENSORS);
	m->p = (struct program){
		.shape = shape_of(info, dtype),
		.hidden = info->hidden,
		.n_vocab = info->n_vocab,
		.max_positions = info->max_positions,
		.eps = info->eps,
		.embed_factor = 1,
		.logit_factor = 1,
		.rope_factor = info->rope_factor,
		.n_turned = info->n_turned,
		.inv_freq = info->inv_freq,
		.embed = info->embed,
		.final_norm = info->final_norm,
		.head = info->head,
		.ops = (const struct program_op *)info->ops,
		.kinds = (const struct program_kind *)info->kinds,
		.kind_of = info->kind_of,
		.slots = info->tensors,
		.tensors = m->tensors,
		.n_ops = info->n_ops,
		.n_kinds = info->n_kinds,
		.n_slots = info->n_slots,
		.n_tensors = model->n_tensors,
	};
	put_tensors(m, model, dtype);
	return m;
}

/* ---- a run ---------------------------------------------------------------------------------- */

struct comparison {
	const struct family_model *model;
	double bound;
	double largest; /* difference of a logit or of the log of the sum */
	uint32_t n_rows, n_clear; /* rows whose likeliest token was demanded */
};

static void compare_row(struct comparison *c, const struct family_row *want,
			const struct program_row *got, const float *logits)
{
	double off = fmax(fabs(got->lse - want->lse), fabs(got->score - want->score) / 2);
	for (int i = 0; i < FAMILY_TOP; i++)
		off = fmax(off, fabs(logits[want->ids[i]] - want->logits[i]));
	c->largest = fmax(c->largest, off);
	c->n_rows++;
	if (off > c->bound || isnan(off))
		fail_msg("%s: %g off, at most %g", c->model->name, off, c->bound);
	if (want->logits[0] - want->logits[1] <= 2 * c->bound)
		return;
	c->n_clear++;
	assert_int_equal(got->top[0].id, want->ids[0]);
}

/* Row `row` of the result is the token'th behind a prompt. */
static void compare_result(struct comparison *c, uint32_t prompt, uint32_t token,
			   const struct machine_result *result, uint32_t row)
{
	compare_row(c, &c->model->rows[prompt * FAMILY_TOKENS + token], &result->rows[row],
		    result->logits + (size_t)row * c->model->n_vocab);
}

static void run_prompt(struct machine *machine, uint32_t prompt, struct comparison *c)
{
	uint32_t left = family_prompts[prompt];
	while (left) {
		const struct machine_part part = {prompt, left < 700 ? left : 700};
		struct machine_result result;
		machine_run(machine, &part, 1, 0, &result);
		left -= part.n;
		if (!left)
			compare_result(c, prompt, 0, &result, part.n - 1);
		machine_result_done(&result);
	}
}

static void run_token(struct machine *machine, uint32_t token, uint32_t n_prompts,
		      struct comparison *c)
{
	struct machine_part parts[FAMILY_PROMPTS];
	struct machine_result result;
	for (uint32_t i = 0; i < n_prompts; i++)
		parts[i] = (struct machine_part){i, 1};
	machine_run(machine, parts, n_prompts, 0, &result);
	for (uint32_t i = 0; i < n_prompts; i++)
		compare_result(c, i, token, &result, i);
	machine_result_done(&result);
}

/* What a GPU takes, too, is wider: on the CPU its longest prompt is left to the GPU. */
static uint32_t prompts_of(const struct family_model *model)
{
	return model->on_gpu && !on_gpu() ? N_PROMPTS - 1 : N_PROMPTS;
}

static struct comparison run_model(const struct family_model *model, enum work_dtype dtype)
{
	const uint32_t n_prompts = prompts_of(model);
	struct comparison c = {.model = model, .bound = bound_of(model, dtype)};
	struct coppice_hf_program *hf = read_program(model);
	struct program_model *m = make_model(model, hf, dtype);
	struct machine *machine = calloc(1, sizeof(*machine));
	assert_non_null(machine);
	machine_init_on(machine, on_gpu() ? gpu_ops : &backend_cpu, m, 2);
	for (uint32_t i = 0; i < n_prompts; i++) {
		family_ids(model, family_prompts[i], machine->seqs[i].ids);
		run_prompt(machine, i, &c);
	}
	for (uint32_t token = 1; token < FAMILY_TOKENS; token++)
		run_token(machine, token, n_prompts, &c);
	machine_done(machine);
	free(machine);
	model_free(m);
	coppice_hf_free(hf);
	return c;
}

/* least_clear: of a hundred rows, the likeliest token of so many must be demanded, else the bounds
 * say little. */
static void run_all(void **state, enum work_dtype dtype, uint32_t least_clear)
{
	const struct families *families = *state;
	uint32_t n_rows = 0, n_clear = 0;
	for (uint32_t i = 0; i < families->n; i++) {
		if (on_gpu() && !families->models[i].on_gpu)
			continue;
		const struct comparison c = run_model(&families->models[i], dtype);
		print_message("%-12s %.1e off, at most %.1e; %u of %u clear\n", c.model->name,
			      c.largest, c.bound, c.n_clear, c.n_rows);
		n_rows += c.n_rows;
		n_clear += c.n_clear;
	}
	print_message("%u of %u clear in all\n", n_clear, n_rows);
	assert_true(n_rows > 0 && n_clear * 100 >= n_rows * least_clear);
}

static void every_family_is_transformers_in_fp32(void **state)
{
	run_all(state, WORK_FP32, 98);
}

static void every_family_is_near_transformers_in_bf16(void **state)
{
	run_all(state, WORK_BF16, 50);
}

static void every_family_is_near_transformers_in_fp16(void **state)
{
	run_all(state, WORK_FP16, 90);
}

static int set_up(void **state)
{
	static struct families families;
	families_init(&families);
	*state = &families;
	return 0;
}

static int tear_down(void **state)
{
	families_done(*state);
	return 0;
}

/* That of the environment. 0; or what to exit with. */
static int find_backend(const char *module)
{
#ifdef PROGRAM_FAKE
	return gpu_find(module);
#else
	const char *name = getenv("COPPICE_TEST_BACKEND");
	return name && !strcmp(name, "cuda") ? gpu_find(module) : 0;
#endif
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_family_is_transformers_in_fp32),
		cmocka_unit_test(every_family_is_near_transformers_in_bf16),
		cmocka_unit_test(every_family_is_near_transformers_in_fp16),
	};
	const struct CMUnitTest halves[] = {tests[1], tests[2]};
	int r = find_backend(argc > 1 ? argv[1] : NULL);
	if (r)
		return r;
	return on_gpu() ? cmocka_run_group_tests(halves, set_up, tear_down)
			: cmocka_run_group_tests(tests, set_up, tear_down);
}
