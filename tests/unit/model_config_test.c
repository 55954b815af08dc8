/*
 * model_config_test.c - each family's config.json makes the program that it should: operations,
 * names of tensors, and frequencies, which are those of transformers.
 */
#include "family_fixture.h"
#include "hf_fixture.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- programs as text ----------------------------------------------------------------------- */

struct lines {
	char text[4096];
	size_t n;
};

static void __attribute__((format(printf, 2, 3))) add(struct lines *to, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	to->n += vsnprintf(to->text + to->n, sizeof(to->text) - to->n, format, args);
	va_end(args);
	assert_true(to->n < sizeof(to->text));
}

static void add_slot(struct lines *to, const struct coppice_hf_program *program, uint32_t slot)
{
	if (slot == COPPICE_NO_SLOT)
		return;
	assert_true(slot < program->info.n_slots);
	add(to, " %s", program->tensors[slot] + strlen("model.layers.0."));
}

static void add_op(struct lines *to, const struct coppice_hf_program *program,
		   const struct coppice_op *op)
{
	static const char *const kinds[] = {"", "norm", "linear", "attend"};
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {
		{COPPICE_OP_ADD, "add"},
		{COPPICE_OP_GATED, "gated"},
		{COPPICE_OP_HEAD_NORM, "head_norm"},
		{COPPICE_OP_WIDE_NORM, "wide_norm"},
		{COPPICE_OP_UNTURNED, "unturned"},
	};
	add(to, "%c=%s(%c", "XABC"[op->out], kinds[op->kind], "XABC"[op->in]);
	for (size_t i = 0; i < 5; i++)
		if (op->flags & flags[i].flag)
			add(to, " %s", flags[i].name);
	for (uint32_t i = 0; i < op->n_w; i++) {
		add_slot(to, program, op->w[i]);
		add_slot(to, program, op->bias[i]);
	}
	add(to, ")\n");
}

static void expect_kind(const struct coppice_hf_program *program, uint32_t kind, const char *text)
{
	const struct coppice_program_info *info = &program->info;
	struct lines lines = {"", 0};
	assert_true(kind < info->n_kinds);
	for (uint32_t i = 0; i < info->kinds[kind].n_ops; i++)
		add_op(&lines, program, &info->ops[info->kinds[kind].first_op + i]);
	assert_string_equal(lines.text, text);
}

#define LLAMA_OPS(attend) \
	"A=norm(X input_layernorm.weight)\n" \
	"B=linear(A self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight)\n" \
	"A=attend(B" attend ")\n" \
	"X=linear(A add self_attn.o_proj.weight)\n" \
	"A=norm(X post_attention_layernorm.weight)\n" \
	"B=linear(A gated mlp.gate_proj.weight mlp.up_proj.weight)\n" \
	"X=linear(B add mlp.down_proj.weight)\n"

static void expect_ops(const char *text, const char *ops)
{
	struct coppice_hf_program *program = hf_expect_good(text);
	assert_int_equal(program->info.n_kinds, 1);
	expect_kind(program, 0, ops);
	coppice_hf_free(program);
}

static void each_family_has_its_operations(void **state)
{
	(void)state;
	expect_ops("{" LLAMA "}", LLAMA_OPS(""));
	expect_ops("{" OF("mistral") ", \"sliding_window\": null}", LLAMA_OPS(""));
	expect_ops("{" OF("qwen3") "}",
		   LLAMA_OPS(" head_norm self_attn.q_norm.weight self_attn.k_norm.weight"));
	expect_ops("{" OF("qwen2") "}",
		   "A=norm(X input_layernorm.weight)\n"
		   "B=linear(A self_attn.q_proj.weight self_attn.q_proj.bias "
		   "self_attn.k_proj.weight self_attn.k_proj.bias "
		   "self_attn.v_proj.weight self_attn.v_proj.bias)\n"
		   "A=attend(B)\n"
		   "X=linear(A add self_attn.o_proj.weight)\n"
		   "A=norm(X post_attention_layernorm.weight)\n"
		   "B=linear(A gated mlp.gate_proj.weight mlp.up_proj.weight)\n"
		   "X=linear(B add mlp.down_proj.weight)\n");
	expect_ops("{" OF("phi3") "}", "A=norm(X input_layernorm.weight)\n"
				       "B=linear(A self_attn.qkv_proj.weight)\n"
				       "A=attend(B)\n"
				       "X=linear(A add self_attn.o_proj.weight)\n"
				       "A=norm(X post_attention_layernorm.weight)\n"
				       "B=linear(A gated mlp.gate_up_proj.weight)\n"
				       "X=linear(B add mlp.down_proj.weight)\n");
	expect_ops("{" OF("olmo2") "}",
		   "A=linear(X self_attn.q_proj.weight self_attn.k_proj.weight "
		   "self_attn.v_proj.weight)\n"
		   "B=attend(A wide_norm self_attn.q_norm.weight self_attn.k_norm.weight)\n"
		   "A=linear(B self_attn.o_proj.weight)\n"
		   "X=norm(A add post_attention_layernorm.weight)\n"
		   "A=linear(X gated mlp.gate_proj.weight mlp.up_proj.weight)\n"
		   "B=linear(A mlp.down_proj.weight)\n"
		   "X=norm(B add post_feedforward_layernorm.weight)\n");
	expect_ops("{" OF("smollm3") ", \"no_rope_layers\": [1, 1]}", LLAMA_OPS(""));
}

static void biases_are_where_the_config_says(void **state)
{
	(void)state;
	expect_ops("{" OF("seed_oss") ", \"attention_out_bias\": true, \"mlp_bias\": true}",
		   "A=norm(X input_layernorm.weight)\n"
		   "B=linear(A self_attn.q_proj.weight self_attn.q_proj.bias "
		   "self_attn.k_proj.weight self_attn.k_proj.bias "
		   "self_attn.v_proj.weight self_attn.v_proj.bias)\n"
		   "A=attend(B)\n"
		   "X=linear(A add self_attn.o_proj.weight self_attn.o_proj.bias)\n"
		   "A=norm(X post_attention_layernorm.weight)\n"
		   "B=linear(A gated mlp.gate_proj.weight mlp.gate_proj.bias "
		   "mlp.up_proj.weight mlp.up_proj.bias)\n"
		   "X=linear(B add mlp.down_proj.weight mlp.down_proj.bias)\n");
	expect_ops("{" OF("seed_oss") ", \"attention_bias\": false}", LLAMA_OPS(""));
	struct coppice_hf_program *program =
		hf_expect_good("{" LLAMA ", \"attention_bias\": true, \"mlp_bias\": false}");
	assert_int_equal(program->info.n_slots, 9 + 4);
	coppice_hf_free(program);
}

static void layers_without_rope_are_a_kind_of_their_own(void **state)
{
	(void)state;
	struct coppice_hf_program *program = hf_expect_good(
		"{" OF("smollm3") ", \"no_rope_layer_interval\": 2, \"layer_types\": "
				  "[\"full_attention\", \"full_attention\"]}");
	assert_int_equal(program->info.n_kinds, 2);
	expect_kind(program, 0, LLAMA_OPS(""));
	expect_kind(program, 1, LLAMA_OPS(" unturned"));
	assert_int_equal(program->info.kind_of[0], 0);
	assert_int_equal(program->info.kind_of[1], 1);
	coppice_hf_free(program);
	program = hf_expect_good("{" OF("smollm3") ", \"no_rope_layers\": [0, 1]}");
	expect_kind(program, program->info.kind_of[0], LLAMA_OPS(" unturned"));
	expect_kind(program, program->info.kind_of[1], LLAMA_OPS(""));
	coppice_hf_free(program);
}

static void what_is_left_out_is_as_transformers_has_it(void **state)
{
	(void)state;
	struct coppice_hf_program *program =
		hf_expect_good("{\"model_type\": \"qwen3\", \"vocab_size\": 300, "
			       "\"num_hidden_layers\": 1, \"hidden_size\": 64, "
			       "\"intermediate_size\": 80, \"num_attention_heads\": 32, "
			       "\"max_position_embeddings\": 100, \"torch_dtype\": \"bfloat16\"}");
	const struct coppice_program_info *info = &program->info;
	assert_int_equal(info->head_dim, 128);
	assert_int_equal(info->n_kv_heads, 32);
	assert_int_equal(info->dtype, COPPICE_BF16);
	assert_int_equal(info->max_positions, 100);
	assert_int_equal(info->n_turned, 128);
	assert_true(info->eps == 1e-6f);
	assert_true(info->inv_freq[0] == 1);
	coppice_hf_free(program);
	program =
		hf_expect_good("{" LLAMA ", \"num_key_value_heads_\": null, \"dtype\": \"float16\","
			       " \"head_dim\": 48, \"rms_norm_eps\": 1e-5}");
	assert_int_equal(program->info.head_dim, 48);
	assert_int_equal(program->info.dtype, COPPICE_FP16);
	assert_true(program->info.eps == 1e-5f);
	coppice_hf_free(program);
	program = hf_expect_good("{\"model_type\": \"qwen2\", \"vocab_size\": 300, "
				 "\"num_hidden_layers\": 1, \"hidden_size\": 1024, "
				 "\"intermediate_size\": 80, \"num_attention_heads\": 64, "
				 "\"num_key_value_heads\": null, \"head_dim\": 256, "
				 "\"max_position_embeddings\": 100}");
	assert_int_equal(program->info.n_kv_heads, 64);
	assert_int_equal(program->info.head_dim, 256);
	coppice_hf_free(program);
}

static void a_file_is_as_good_as_its_text(void **state)
{
	(void)state;
	char path[] = "/tmp/coppice-config-XXXXXX";
	struct coppice_hf_program *program;
	const int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_true(write(fd, "{" LLAMA "}", strlen("{" LLAMA "}")) > 0);
	close(fd);
	assert_int_equal(coppice_hf_read(path, NULL, &program, hf_why), 0);
	assert_int_equal(program->info.max_positions, 512);
	expect_kind(program, 0, LLAMA_OPS(""));
	coppice_hf_free(program);
	unlink(path);
}

/* ---- binding -------------------------------------------------------------------------------- */

struct weights {
	const char *missing[2]; /* names, or NULL */
	int error; /* of those; 0: -ENOENT */
	uint32_t n_found;
};

static int find(void *context, const char *name, uint32_t *ret_tensor)
{
	struct weights *weights = context;
	for (int i = 0; i < 2; i++)
		if (weights->missing[i] && !strcmp(weights->missing[i], name))
			return weights->error ? weights->error : -ENOENT;
	*ret_tensor = 100 + weights->n_found++;
	return 0;
}

static void every_tensor_is_bound_to_its_number(void **state)
{
	(void)state;
	struct coppice_hf_program *program = hf_expect_good("{" LLAMA "}");
	struct weights weights = {.n_found = 0};
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), 0);
	assert_int_equal(weights.n_found, 3 + 2 * 9);
	assert_int_equal(program->info.head, 100);
	assert_int_equal(program->info.embed, 101);
	assert_int_equal(program->info.final_norm, 102);
	for (uint32_t i = 0; i < 2 * 9; i++)
		assert_int_equal(program->info.tensors[i], 103 + i);
	assert_string_equal(program->tensors[9], "model.layers.1.input_layernorm.weight");
	coppice_hf_free(program);
}

static void a_head_that_is_not_there_is_the_embedding(void **state)
{
	(void)state;
	struct coppice_hf_program *program =
		hf_expect_good("{" LLAMA ", \"tie_word_embeddings\": true}");
	struct weights weights = {.missing = {"lm_head.weight"}};
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), 0);
	assert_int_equal(program->info.head, program->info.embed);
	weights.missing[0] = "model.embed_tokens.weight";
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), 0);
	assert_int_equal(program->info.head, program->info.embed);
	coppice_hf_free(program);
	program = hf_expect_good("{" OF("smollm3") "}");
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), 0);
	coppice_hf_free(program);
	program = hf_expect_good("{" LLAMA "}");
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), -ENOENT);
	assert_non_null(strstr(hf_why, "model.embed_tokens.weight"));
	coppice_hf_free(program);
}

static void a_tensor_that_is_missing_is_named(void **state)
{
	(void)state;
	struct coppice_hf_program *program = hf_expect_good("{" LLAMA "}");
	struct weights weights = {.missing = {"model.layers.1.mlp.up_proj.weight"}};
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), -ENOENT);
	assert_non_null(strstr(hf_why, "tensor model.layers.1.mlp.up_proj.weight is not in"));
	weights.error = -EIO;
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), -EIO);
	weights.missing[0] = "lm_head.weight";
	assert_int_equal(coppice_hf_bind(program, find, &weights, hf_why), -EIO);
	assert_non_null(strstr(hf_why, "lm_head.weight"));
	coppice_hf_free(program);
}

static void max_positions_choose_between_longropes_lists(void **state)
{
	(void)state;
	const char *text = "{" OF("phi3") ", \"partial_rotary_factor\": 0.125, \"rope_scaling\": "
					  "{\"type\": \"longrope\", \"long_factor\": [2, 8], "
					  "\"short_factor\": [1, 4]}, "
					  "\"original_max_position_embeddings\": 256}";
	const struct {
		uint32_t max_positions;
		double divisor;
	} cases[] = {{0, 2}, {100000, 2}, {257, 2}, {256, 1}, {1, 1}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct coppice_hf_program *program =
			hf_expect_good_within(text, cases[i].max_positions);
		assert_int_equal(program->info.n_turned, 4);
		assert_true(program->info.inv_freq[0] == 1 / cases[i].divisor);
		/* of 512 positions over 256, however many are used */
		assert_true(program->info.rope_factor == (float)sqrt(1 + log(2) / log(256)));
		coppice_hf_free(program);
	}
}

static float rope_factor(const char *rope)
{
	char text[512];
	snprintf(text, sizeof(text), "{" OF("llama") ", \"rope_scaling\": {%s}}", rope);
	struct coppice_hf_program *program = hf_expect_good(text);
	const float factor = program->info.rope_factor;
	coppice_hf_free(program);
	return factor;
}

/* 512 positions are the original ones where nothing is said of them. */
static void what_multiplies_cosines_is_derived_or_given(void **state)
{
	(void)state;
	const float usual = 0.1 * log(4) + 1;
	assert_true(rope_factor("\"type\": \"yarn\", \"factor\": 4") == usual);
	assert_true(rope_factor("\"type\": \"yarn\", \"original_max_position_embeddings\": 128") ==
		    usual);
	assert_true(rope_factor("\"type\": \"yarn\", \"factor\": 4, \"mscale\": 2") == usual);
	assert_true(rope_factor("\"type\": \"yarn\", \"factor\": 4, \"mscale\": 2, "
				"\"mscale_all_dim\": 1") ==
		    (float)((0.2 * log(4) + 1) / (0.1 * log(4) + 1)));
	assert_true(rope_factor("\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.5") ==
		    1.5f);
	assert_true(rope_factor("\"type\": \"yarn\", \"factor\": 0.5") == 1);
	assert_true(rope_factor("\"type\": \"linear\", \"factor\": 4") == 1);
	assert_true(rope_factor("\"type\": \"longrope\", \"factor\": 0.5, \"short_factor\": "
				"[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]") == 1);
}

static void an_object_without_entries_is_none(void **state)
{
	(void)state;
	struct coppice_hf_program *program =
		hf_expect_good("{" LLAMA ", \"rope_scaling\": {}, \"rope_parameters\": "
			       "{\"rope_type\": \"linear\", \"factor\": 8, \"rope_theta\": 100}}");
	assert_true(program->info.inv_freq[0] == 1.0 / 8);
	coppice_hf_free(program);
}

/* - what transformers made of the same files ---------------------------------------------- */

struct bound {
	const struct family_model *model;
	uint32_t *n_found; /* [n_tensors] */
};

static int find_once(void *context, const char *name, uint32_t *ret_tensor)
{
	const struct bound *bound = context;
	for (uint32_t i = 0; i < bound->model->n_tensors; i++)
		if (!strcmp(bound->model->tensors[i].name, name)) {
			bound->n_found[i]++;
			*ret_tensor = i;
			return 0;
		}
	return -ENOENT;
}

static void check_tensors(const struct family_model *model, struct coppice_hf_program *program)
{
	struct bound bound = {model, calloc(model->n_tensors, sizeof(uint32_t))};
	assert_non_null(bound.n_found);
	if (coppice_hf_bind(program, find_once, &bound, hf_why) < 0)
		fail_msg("%s: %s", model->name, hf_why);
	for (uint32_t i = 0; i < model->n_tensors; i++)
		if (bound.n_found[i] != 1)
			fail_msg("%s: %s is used %u times", model->name, model->tensors[i].name,
				 bound.n_found[i]);
	free(bound.n_found);
}

/* transformers raises to powers in fp32: the exponent's last bit is worth the logarithm of theta,
 * at most 17, times 2^-24, and as much is added where frequencies are blended. */
static void check_rope(const struct family_model *model, const struct coppice_program_info *info)
{
	assert_int_equal(info->n_turned, 2 * model->n_inv_freq);
	for (uint32_t i = 0; i < model->n_inv_freq; i++) {
		const double off = fabs(info->inv_freq[i] / model->inv_freq[i] - 1);
		if (!(off < 4e-6))
			fail_msg("%s: inv_freq[%u] is %.9g, not %.9g", model->name, i,
				 info->inv_freq[i], model->inv_freq[i]);
	}
	assert_true(fabs(info->rope_factor - model->rope_factor) < 1e-6);
}

static void tensors_and_frequencies_are_those_of_transformers(void **state)
{
	(void)state;
	struct families families;
	families_init(&families);
	assert_int_equal(families.n, 64);
	for (uint32_t i = 0; i < families.n; i++) {
		const struct family_model *model = &families.models[i];
		struct coppice_hf_program *program =
			hf_expect_good_within(model->config, model->max_positions);
		check_tensors(model, program);
		check_rope(model, &program->info);
		coppice_hf_free(program);
	}
	families_done(&families);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_family_has_its_operations),
		cmocka_unit_test(biases_are_where_the_config_says),
		cmocka_unit_test(layers_without_rope_are_a_kind_of_their_own),
		cmocka_unit_test(what_is_left_out_is_as_transformers_has_it),
		cmocka_unit_test(max_positions_choose_between_longropes_lists),
		cmocka_unit_test(what_multiplies_cosines_is_derived_or_given),
		cmocka_unit_test(an_object_without_entries_is_none),
		cmocka_unit_test(a_file_is_as_good_as_its_text),
		cmocka_unit_test(every_tensor_is_bound_to_its_number),
		cmocka_unit_test(a_head_that_is_not_there_is_the_embedding),
		cmocka_unit_test(a_tensor_that_is_missing_is_named),
		cmocka_unit_test(tensors_and_frequencies_are_those_of_transformers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
