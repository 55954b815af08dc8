/*
 * llama_config_test.c - config.json in both generations' spelling; what is not supported is refused
 * by name.
 */
#include "client/agent/llama_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZES \
	"\"model_type\": \"llama\", \"vocab_size\": 256, \"num_hidden_layers\": 2, " \
	"\"hidden_size\": 128, \"intermediate_size\": 192, \"num_attention_heads\": 4, " \
	"\"max_position_embeddings\": 512"
#define LLAMA3 \
	"\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, " \
	"\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64"

static char path[] = "/tmp/coppice-config-XXXXXX";

static int read_text(const char *text, struct llama_config *ret, struct fault *fault)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	return llama_config_read(path, ret, fault);
}

static struct llama_config expect_good(const char *text)
{
	struct llama_config config;
	struct fault fault;
	if (read_text(text, &config, &fault) < 0)
		fail_msg("%s", fault.text);
	return config;
}

static void expect_refused(const char *text, const char *word)
{
	struct llama_config config;
	struct fault fault = {""};
	assert_true(read_text(text, &config, &fault) < 0);
	if (!strstr(fault.text, word))
		fail_msg("'%s' does not say '%s'", fault.text, word);
	assert_non_null(strstr(fault.text, path));
}

static void what_is_absent_has_its_default(void **state)
{
	(void)state;
	const struct llama_config c = expect_good("{" SIZES "}");
	assert_int_equal(c.head_dim, 32);
	assert_int_equal(c.n_kv_heads, 4);
	assert_true(c.rope.theta == 10000);
	assert_int_equal(c.rope.kind, ROPE_DEFAULT);
	assert_false(c.tied);
}

static void null_is_absent(void **state)
{
	(void)state;
	const struct llama_config c =
		expect_good("{" SIZES ", \"head_dim\": null, \"num_key_value_heads\": null, "
			    "\"rope_scaling\": null, \"quantization_config\": null}");
	assert_int_equal(c.head_dim, 32);
	assert_int_equal(c.n_kv_heads, 4);
}

static void generation_4_has_rope_at_the_top(void **state)
{
	(void)state;
	const struct llama_config c =
		expect_good("{" SIZES ", \"rope_theta\": 500000.0, \"torch_dtype\": \"bfloat16\", "
			    "\"head_dim\": 48, \"num_key_value_heads\": 2, "
			    "\"tie_word_embeddings\": true, \"rope_scaling\": {" LLAMA3 "}}");
	assert_true(c.rope.theta == 500000);
	assert_int_equal(c.rope.kind, ROPE_LLAMA3);
	assert_true(c.rope.factor == 8 && c.rope.original_positions == 64);
	assert_int_equal(c.head_dim, 48);
	assert_int_equal(c.n_kv_heads, 2);
	assert_true(c.tied);
}

static void generation_5_has_rope_inside_rope_parameters(void **state)
{
	(void)state;
	struct llama_config c = expect_good(
		"{" SIZES
		", \"dtype\": \"bfloat16\", \"rope_parameters\": {\"rope_theta\": 20000.0, "
		"\"rope_type\": \"default\"}}");
	assert_true(c.rope.theta == 20000);
	assert_int_equal(c.rope.kind, ROPE_DEFAULT);
	c = expect_good("{" SIZES ", \"rope_parameters\": {\"rope_theta\": 7, " LLAMA3 "}}");
	assert_true(c.rope.theta == 7);
	assert_int_equal(c.rope.kind, ROPE_LLAMA3);
}

static void unsupported_features_are_refused_by_name(void **state)
{
	(void)state;
	expect_refused("{" SIZES ", \"attention_bias\": true}", "attention_bias");
	expect_refused("{" SIZES ", \"mlp_bias\": true}", "mlp_bias");
	expect_refused("{" SIZES ", \"hidden_act\": \"gelu\"}", "gelu");
	expect_refused("{" SIZES ", \"rope_scaling\": {\"rope_type\": \"yarn\"}}", "yarn");
	expect_refused("{" SIZES ", \"rope_scaling\": {\"type\": \"linear\"}}", "linear");
	expect_refused("{" SIZES ", \"rope_parameters\": {\"rope_type\": \"dynamic\"}}", "dynamic");
	expect_refused("{" SIZES ", \"quantization_config\": {}}", "quantization_config");
	expect_refused("{" SIZES ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor");
	expect_refused("{\"model_type\": \"gpt2\"}", "gpt2");
}

static void bad_values_are_told_by_key(void **state)
{
	(void)state;
	expect_refused("{\"model_type\": \"llama\"}", "vocab_size is missing");
	expect_refused("{" SIZES ", \"head_dim\": 0}", "head_dim");
	expect_refused("{" SIZES ", \"head_dim\": 33}", "33");
	expect_refused("{" SIZES ", \"num_key_value_heads\": 3}", "3 key-value heads");
	expect_refused("{" SIZES ", \"rope_theta\": -1}", "rope_theta");
	expect_refused("{" SIZES ", \"rms_norm_eps\": \"small\"}", "rms_norm_eps");
	expect_refused("{" SIZES ", \"rope_scaling\": {\"rope_type\": \"llama3\"}}", "factor");
	expect_refused("{" SIZES ", \"rope_scaling\": {\"factor\": 2}}", "rope_type");
}

static void damaged_json_is_told_with_its_line(void **state)
{
	(void)state;
	expect_refused("{\n\"vocab_size\": ", "line 2");
	expect_refused("[]", "not a JSON object");
}

static int make_file(void **state)
{
	(void)state;
	const int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_absent_has_its_default),
		cmocka_unit_test(null_is_absent),
		cmocka_unit_test(generation_4_has_rope_at_the_top),
		cmocka_unit_test(generation_5_has_rope_inside_rope_parameters),
		cmocka_unit_test(unsupported_features_are_refused_by_name),
		cmocka_unit_test(bad_values_are_told_by_key),
		cmocka_unit_test(damaged_json_is_told_with_its_line),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
