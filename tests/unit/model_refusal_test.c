/*
 * model_refusal_test.c - what of a config.json is not computed is refused by key and value; what
 * changes nothing is taken; and no file, however hostile, does more than that.
 */
#include "hf_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- refusals ------------------------------------------------------------------------------- */

static void what_is_not_computed_is_refused_by_key_and_value(void **state)
{
	(void)state;
	static const struct {
		const char *type, *key, *value, *help;
	} cases[] = {
		{"llama", "num_experts", "8", "dense model"},
		{"qwen3", "num_experts_per_tok", "2", "dense model"},
		{"llama", "quantization_config", "{\"bits\": 4}", "bf16"},
		{"mistral", "sliding_window", "256", "max_positions"},
		{"llama", "sliding_window", "4096", "max_positions"},
		{"llama", "use_sliding_window", "true", "max_positions"},
		{"phi3", "sliding_window", "511", "max_positions"},
		{"qwen2", "layer_types", "[\"linear_attention\", \"full_attention\"]", "layer 0"},
		{"qwen2", "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer 1"},
		{"llama", "final_logit_softcapping", "30.0", "soft caps"},
		{"llama", "attn_logit_softcapping", "50.0", "soft caps"},
		{"llama", "embedding_multiplier", "12.0", "multiplies"},
		{"llama", "residual_multiplier", "0.22", "multiplies"},
		{"llama", "attention_multiplier", "0.015625", "multiplies"},
		{"llama", "logits_scaling", "16.0", "multiplies"},
		{"llama", "text_config", "{}", "text model"},
		{"llama", "hidden_act", "\"relu\"", "silu"},
		{"llama", "head_dim", "272", "multiples of 16 up to 256"},
		{"llama", "head_dim", "40", "multiples of 16"},
		{"llama", "dtype", "\"float8_e4m3fn\"", "convert"},
		{"mistral", "attention_bias", "true", "no such thing"},
		{"llama", "no_rope_layers", "[1, 0]", "no such thing"},
		{"llama", "partial_rotary_factor", "0.5", "all dims"},
		{"qwen2", "clip_qkv", "8", "no such thing"},
		{"llama", "use_mrope", "true", "RoPE"},
		{"llama", "some_new_trick", "true", "take it out"},
		{"llama", "some_new_trick", "false", "take it out"},
	};
	char text[1024], told[128];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "{\"model_type\": \"%s\", " SIZES ", \"%s\": %s}",
			 cases[i].type, cases[i].key, cases[i].value);
		snprintf(told, sizeof(told), "config.json: %s is %s: ", cases[i].key,
			 cases[i].value);
		hf_expect_refused(-ENOTSUP, text, told, cases[i].help);
	}
	hf_expect_refused(-ENOTSUP, "{\"model_type\": \"gpt2\"}", "model_type is \"gpt2\"", "olmo2",
			  "step a layer");
}

/* Text is never a value that means that something is not used. */
static void every_key_that_would_change_the_computation_is_refused(void **state)
{
	(void)state;
	static const char *const keys[] = {
		"quantization_config",
		"compression_config",
		"num_experts",
		"num_local_experts",
		"n_routed_experts",
		"n_shared_experts",
		"num_experts_per_tok",
		"moe_intermediate_size",
		"shared_expert_intermediate_size",
		"decoder_sparse_step",
		"mlp_only_layers",
		"sliding_window_pattern",
		"attention_chunk_size",
		"logit_scale",
		"scale_emb",
		"scale_depth",
		"dim_model_base",
		"query_pre_attn_scalar",
		"vision_config",
		"audio_config",
		"rope_interleaved",
		"rope_local_base_freq",
		"clip_qkv",
		"qk_layernorm",
		"use_qk_norm",
		"lm_head_bias",
		"alibi",
		"full_attn_mod",
		"interpolate_factor",
		"per_layer_config",
		"pruned_heads",
		"num_nextn_predict_layers",
		"is_encoder_decoder",
		"add_cross_attention",
		"cross_attention_hidden_size",
		"use_bidirectional_attention",
	};
	char text[512];
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		snprintf(text, sizeof(text), "{" LLAMA ", \"%s\": \"on\"}", keys[i]);
		hf_expect_refused(-ENOTSUP, text, keys[i], " is \"on\": ");
		assert_null(strstr(hf_why, "not known"));
	}
	hf_expect_refused(-ENOTSUP, "{" LLAMA ", \"pruned_heads\": {\"0\": [1]}}", "pruned_heads");
	hf_expect_refused(-ENOTSUP, "{" LLAMA ", \"_token_id\": 1}", "not known");
}

static void what_changes_nothing_is_taken(void **state)
{
	(void)state;
	coppice_hf_free(hf_expect_good(
		"{" LLAMA ", \"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1, "
		"\"eos_token_id\": [2, 3], \"pretraining_tp\": 1, \"use_cache\": true, "
		"\"initializer_range\": 0.02, \"temperature\": 0.6, \"attention_dropout\": 0.1, "
		"\"rope_interleaved\": false, \"is_llama_config\": true, \"num_experts\": 0, "
		"\"transformers.js_config\": {\"kv_cache_dtype\": {}}, \"some_new_trick\": null, "
		"\"mlp_only_layers\": [], \"pruned_heads\": {}, \"logits_scaling\": 1.0, "
		"\"quantization_config\": null, \"transformers_version\": \"4.57.1\"}"));
	coppice_hf_free(hf_expect_good(
		"{" OF("qwen2") ", \"use_sliding_window\": false, \"sliding_window\": 64, "
				"\"max_window_layers\": 1, \"use_mrope\": false}"));
	coppice_hf_free(hf_expect_good(
		"{" OF("phi3") ", \"sliding_window\": 512, \"attention_bias\": false, "
			       "\"lm_head_bias\": false, \"full_attn_mod\": 1, "
			       "\"interpolate_factor\": 1, \"auto_map\": {}}"));
}

static void a_window_that_no_sequence_outgrows_is_none(void **state)
{
	(void)state;
	const char *text = "{" OF("mistral") ", \"sliding_window\": 256}";
	struct coppice_hf_program *program = hf_expect_good_within(text, 256);
	assert_int_equal(program->info.max_positions, 256);
	coppice_hf_free(program);
	assert_int_equal(hf_parse(text, 257, &program), -ENOTSUP);
	/* transformers gives a Mistral one of 4096 where config.json has none. */
	text = "{\"model_type\": \"mistral\", \"vocab_size\": 256, \"num_hidden_layers\": 1, "
	       "\"hidden_size\": 128, \"intermediate_size\": 192, \"num_attention_heads\": 8, "
	       "\"max_position_embeddings\": 8192}";
	hf_expect_refused(-ENOTSUP, text, "sliding_window is missing", "window of 4096", "null");
	coppice_hf_free(hf_expect_good_within(text, 4096));
}

static void values_of_wrong_type_or_size_are_told(void **state)
{
	(void)state;
	static const struct {
		const char *extra, *told;
	} cases[] = {
		{"\"head_dim\": 0", "head_dim is 0"},
		{"\"head_dim\": -64", "head_dim is -64"},
		{"\"head_dim\": 64.0", "head_dim is 64.0"},
		{"\"head_dim\": \"64\"", "head_dim is \"64\""},
		{"\"head_dim\": 9223372036854775807", "head_dim is 9223372036854775807"},
		{"\"rms_norm_eps\": \"small\"", "rms_norm_eps is \"small\""},
		{"\"rms_norm_eps\": 0", "rms_norm_eps is 0"},
		{"\"rms_norm_eps\": 1e-300", "rms_norm_eps is 1e-300"},
		{"\"rope_theta\": -1", "rope_theta is -1"},
		{"\"rope_theta\": []", "rope_theta is []"},
		{"\"attention_bias\": 1", "attention_bias is 1"},
		{"\"tie_word_embeddings\": \"yes\"", "tie_word_embeddings is \"yes\""},
		{"\"hidden_act\": 3", "hidden_act is 3"},
		{"\"dtype\": {}", "dtype is {}"},
		{"\"layer_types\": \"full_attention\"", "layer_types is"},
		{"\"layer_types\": [\"full_attention\"]", "layer_types is"},
		{"\"rope_scaling\": \"linear\"", "rope_scaling is \"linear\""},
		{"\"rope_parameters\": 7", "rope_parameters is 7"},
	};
	char text[512];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "{" LLAMA ", %s}", cases[i].extra);
		hf_expect_refused(-EINVAL, text, cases[i].told);
	}
	hf_expect_refused(-EINVAL, "{\"model_type\": 3}", "model_type is 3");
	hf_expect_refused(-EINVAL, "{\"vocab_size\": 256}", "model_type is missing");
	hf_expect_refused(-EINVAL, "{\"model_type\": \"phi3\"}", "vocab_size is missing");
	hf_expect_refused(-EINVAL, "{" OF("smollm3") ", \"no_rope_layers\": [1]}",
			  "no_rope_layers");
	hf_expect_refused(-EINVAL, "{" OF("smollm3") ", \"no_rope_layers\": [1, 2]}",
			  "1 (with RoPE)");
	hf_expect_refused(-EINVAL, "{" OF("smollm3") ", \"no_rope_layer_interval\": 0}",
			  "no_rope_layer_interval is 0");
	hf_expect_refused(
		-EINVAL,
		"{\"model_type\": \"llama\", \"vocab_size\": 9, \"num_hidden_layers\": 1, "
		"\"hidden_size\": 128, \"intermediate_size\": 9, \"num_attention_heads\": 4, "
		"\"num_key_value_heads\": 3, \"max_position_embeddings\": 9}",
		"num_key_value_heads is 3", "4 query heads");
	hf_expect_refused(-EINVAL, "{\"model_type\": \"llama\", \"vocab_size\": 5000000}",
			  "vocab_size is 5000000", "4194304");
}

static void rope_that_cannot_be_fixed_or_is_not_whole_is_refused(void **state)
{
	(void)state;
	static const struct {
		int error;
		const char *type, *extra, *told[2];
	} cases[] = {
		{-ENOTSUP,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}",
		 {"rope_scaling.type is \"dynamic\"", "\"yarn\" are fixed"}},
		{-ENOTSUP,
		 "llama",
		 "\"rope_parameters\": {\"rope_type\": \"proportional\"}",
		 {"rope_parameters.rope_type is \"proportional\"", "longrope"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"factor\": 2.0}",
		 {"rope_scaling.rope_type is missing", ""}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"linear\"}",
		 {"rope_scaling.factor is missing", "\"linear\" needs it"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}",
		 {"rope_scaling.factor is 0", ""}},
		{-ENOTSUP,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 2}",
		 {"rope_scaling.beta_fast is 2", "\"linear\""}},
		{-ENOTSUP,
		 "llama",
		 "\"rope_parameters\": {\"full_attention\": {}}",
		 {"rope_parameters.full_attention is {}", "not known"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, "
		 "\"rope_parameters\": {\"rope_type\": \"default\"}",
		 {"rope_scaling is", "keep one"}},
		{-EINVAL,
		 "phi3",
		 "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [1], "
		 "\"short_factor\": [1]}",
		 {"rope_scaling.short_factor is [1]", "list of 16"}},
		{-EINVAL,
		 "phi3",
		 "\"rope_scaling\": {\"type\": \"su\", \"original_max_position_embeddings\": 9}",
		 {"rope_scaling.original_max_position_embeddings is 9", "alike"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1, 1, 1, "
		 "1, 1, "
		 "1, 1, 1, 1, 1, 1, 1, 0]}",
		 {"rope_scaling.short_factor is [1,", "above 0"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"longrope\", \"original_max_position_embeddings\": "
		 "1, "
		 "\"long_factor\": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}",
		 {"rope_scaling.original_max_position_embeddings is 1", "2 at least"}},
		{-EINVAL,
		 "llama",
		 "\"rope_theta\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}",
		 {"json: rope_theta is 1: ", "above 1"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 4, "
		 "\"high_freq_factor\": 4}",
		 {"rope_scaling.high_freq_factor is 4", "above low_freq_factor"}},
		{-EINVAL, "phi3", "\"partial_rotary_factor\": 1.5", {"1.5", "even number"}},
		{-EINVAL, "phi3", "\"partial_rotary_factor\": 0.1", {"0.1", "even number"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": 1e9}",
		 {"too large", ""}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_slow\": 64}",
		 {"beta_fast is missing", "beta_slow"}},
		{-EINVAL,
		 "llama",
		 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 1e-308}",
		 {"too large", ""}},
	};
	char text[1024];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "{\"model_type\": \"%s\", " SIZES ", %s}",
			 cases[i].type, cases[i].extra);
		hf_expect_refused(cases[i].error, text, cases[i].told[0], cases[i].told[1]);
	}
}

/* ---- hostile files -------------------------------------------------------------------------- */

static char *repeat(const char *piece, size_t n, const char *head, const char *tail)
{
	const size_t piece_bytes = strlen(piece), head_bytes = strlen(head);
	char *text = malloc(head_bytes + n * piece_bytes + strlen(tail) + 1);
	assert_non_null(text);
	strcpy(text, head);
	for (size_t i = 0; i < n; i++)
		memcpy(text + head_bytes + i * piece_bytes, piece, piece_bytes);
	strcpy(text + head_bytes + n * piece_bytes, tail);
	return text;
}

static void damaged_or_hostile_json_is_refused(void **state)
{
	(void)state;
	hf_expect_refused(-EINVAL, "", "not JSON");
	hf_expect_refused(-EINVAL, "[]", "not a JSON object");
	hf_expect_refused(-EINVAL, "7", "not JSON");
	hf_expect_refused(-EINVAL, "{\n\"vocab_size\": ", "line 2");
	hf_expect_refused(-EINVAL, "{" LLAMA ", \"head_dim\": 32, \"head_dim\": 64}", "duplicate");
	hf_expect_refused(-EINVAL, "{" LLAMA ", \"head_dim\": 99999999999999999999}", "too big");
	hf_expect_refused(-EINVAL, "{" LLAMA ", \"rope_theta\": 1e999}", "overflow");
	hf_expect_refused(-EINVAL, "{" LLAMA ", \"rope_theta\": NaN}", "not JSON");
	hf_expect_refused(-EINVAL, "{\"\\u0000\": 1}", "not JSON");
	char *deep = repeat("[", 100000, "{\"head_dim\": ", "");
	hf_expect_refused(-EINVAL, deep, "depth");
	free(deep);
	char *wide = repeat("9, ", 100000, "{" LLAMA ", \"layer_types\": [", "9]}");
	hf_expect_refused(-EINVAL, wide, "layer_types is [9, 9,", "...: it must be");
	free(wide);
	char *name = repeat("\\u001b", 1000, "{\"model_type\": \"", "\"}");
	hf_expect_refused(-ENOTSUP, name, "model_type is \"\\u001B");
	assert_null(strchr(hf_why, '\033'));
	free(name);
	char *key = repeat("k", 5000, "{" LLAMA ", \"", "\": 1}");
	hf_expect_refused(-ENOTSUP, key, "kkkk");
	free(key);
}

/* Cut short at every byte, and with each byte changed: an answer, and no more. */
static void no_change_of_a_byte_does_harm(void **state)
{
	(void)state;
	const char *text = "{" OF("phi3") ", \"partial_rotary_factor\": 0.5, \"rope_scaling\": "
					  "{\"type\": \"longrope\", \"long_factor\": "
					  "[1, 2, 3, 4, 5, 6, 7, 8], \"short_factor\": "
					  "[1, 1, 1, 1, 1, 1, 1, 1]}}";
	const size_t n = strlen(text);
	struct coppice_hf_program *program;
	char copy[1024];
	coppice_hf_free(hf_expect_good(text));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(coppice_hf_parse(text, i, NULL, &program, hf_why), -EINVAL);
		for (const char *c = "0-{]\"e\xff"; *c; c++) {
			memcpy(copy, text, n + 1);
			copy[i] = *c;
			if (coppice_hf_parse(copy, n, NULL, &program, hf_why) == 0)
				coppice_hf_free(program);
			else
				assert_true(strlen(hf_why) > 0);
		}
	}
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
	(void)state;
	struct coppice_hf_program *program;
	assert_int_equal(coppice_hf_read("/nowhere/config.json", NULL, &program, hf_why), -ENOENT);
	assert_non_null(strstr(hf_why, "/nowhere/config.json"));
	const struct coppice_hf_options later = {.size = sizeof(later) + 8};
	assert_int_equal(coppice_hf_parse("{}", 2, &later, &program, hf_why), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_computed_is_refused_by_key_and_value),
		cmocka_unit_test(every_key_that_would_change_the_computation_is_refused),
		cmocka_unit_test(what_changes_nothing_is_taken),
		cmocka_unit_test(a_window_that_no_sequence_outgrows_is_none),
		cmocka_unit_test(values_of_wrong_type_or_size_are_told),
		cmocka_unit_test(rope_that_cannot_be_fixed_or_is_not_whole_is_refused),
		cmocka_unit_test(damaged_or_hostile_json_is_refused),
		cmocka_unit_test(no_change_of_a_byte_does_harm),
		cmocka_unit_test(a_file_that_cannot_be_read_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
