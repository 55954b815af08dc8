/*
 * model_config_test.c - each family's config.json makes the program that it should; what is not
 * computed is refused by key and value; and no file, however hostile, does more than that.
 */
#include "client/model/coppice_hf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIZES \
	"\"vocab_size\": 256, \"num_hidden_layers\": 2, \"hidden_size\": 128, " \
	"\"intermediate_size\": 192, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
	"\"max_position_embeddings\": 512"
#define LLAMA "\"model_type\": \"llama\", " SIZES
#define OF(type) "\"model_type\": \"" type "\", " SIZES

static char why[COPPICE_HF_WHY_BYTES];

static int parse(const char *text, uint32_t max_positions, struct coppice_hf_program **ret)
{
	const struct coppice_hf_options options = {.max_positions = max_positions};
	memset(why, 0, sizeof(why));
	return coppice_hf_parse(text, strlen(text), &options, ret, why);
}

static struct coppice_hf_program *expect_good_within(const char *text, uint32_t max_positions)
{
	struct coppice_hf_program *program;
	if (parse(text, max_positions, &program) < 0)
		fail_msg("%s", why);
	return program;
}

static struct coppice_hf_program *expect_good(const char *text)
{
	return expect_good_within(text, 0);
}

/* The sentence has all of the words, which end with NULL. */
static void expect_refused_with(int error, const char *text, const char *const *words)
{
	struct coppice_hf_program *program = NULL;
	assert_int_equal(parse(text, 0, &program), error);
	assert_null(program);
	assert_non_null(strstr(why, "config.json: "));
	for (; *words; words++)
		if (!strstr(why, *words))
			fail_msg("'%s' does not say '%s'", why, *words);
}

#define expect_refused(error, text, ...) \
	expect_refused_with(error, text, (const char *const[]){__VA_ARGS__, NULL})

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
	struct coppice_hf_program *program = expect_good(text);
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
		expect_good("{" LLAMA ", \"attention_bias\": true, \"mlp_bias\": false}");
	assert_int_equal(program->info.n_slots, 9 + 4);
	coppice_hf_free(program);
}

static void layers_without_rope_are_a_kind_of_their_own(void **state)
{
	(void)state;
	struct coppice_hf_program *program =
		expect_good("{" OF("smollm3") ", \"no_rope_layer_interval\": 2, \"layer_types\": "
					      "[\"full_attention\", \"full_attention\"]}");
	assert_int_equal(program->info.n_kinds, 2);
	expect_kind(program, 0, LLAMA_OPS(""));
	expect_kind(program, 1, LLAMA_OPS(" unturned"));
	assert_int_equal(program->info.kind_of[0], 0);
	assert_int_equal(program->info.kind_of[1], 1);
	coppice_hf_free(program);
	program = expect_good("{" OF("smollm3") ", \"no_rope_layers\": [0, 1]}");
	expect_kind(program, program->info.kind_of[0], LLAMA_OPS(" unturned"));
	expect_kind(program, program->info.kind_of[1], LLAMA_OPS(""));
	coppice_hf_free(program);
}

static void what_is_left_out_is_as_transformers_has_it(void **state)
{
	(void)state;
	struct coppice_hf_program *program =
		expect_good("{\"model_type\": \"qwen3\", \"vocab_size\": 300, "
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
	program = expect_good("{" LLAMA ", \"num_key_value_heads_\": null, \"dtype\": \"float16\","
			      " \"head_dim\": 48, \"rms_norm_eps\": 1e-5}");
	assert_int_equal(program->info.head_dim, 48);
	assert_int_equal(program->info.dtype, COPPICE_FP16);
	assert_true(program->info.eps == 1e-5f);
	coppice_hf_free(program);
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
	struct coppice_hf_program *program = expect_good("{" LLAMA "}");
	struct weights weights = {.n_found = 0};
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), 0);
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
		expect_good("{" LLAMA ", \"tie_word_embeddings\": true}");
	struct weights weights = {.missing = {"lm_head.weight"}};
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), 0);
	assert_int_equal(program->info.head, program->info.embed);
	weights.missing[0] = "model.embed_tokens.weight";
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), 0);
	assert_int_equal(program->info.head, program->info.embed);
	coppice_hf_free(program);
	program = expect_good("{" LLAMA "}");
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), -ENOENT);
	assert_non_null(strstr(why, "model.embed_tokens.weight"));
	coppice_hf_free(program);
}

static void a_tensor_that_is_missing_is_named(void **state)
{
	(void)state;
	struct coppice_hf_program *program = expect_good("{" LLAMA "}");
	struct weights weights = {.missing = {"model.layers.1.mlp.up_proj.weight"}};
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), -ENOENT);
	assert_non_null(strstr(why, "tensor model.layers.1.mlp.up_proj.weight is not in"));
	weights.error = -EIO;
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), -EIO);
	weights.missing[0] = "lm_head.weight";
	assert_int_equal(coppice_hf_bind(program, find, &weights, why), -EIO);
	assert_non_null(strstr(why, "lm_head.weight"));
	coppice_hf_free(program);
}

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
		expect_refused(-ENOTSUP, text, told, cases[i].help);
	}
	expect_refused(-ENOTSUP, "{\"model_type\": \"gpt2\"}", "model_type is \"gpt2\"", "olmo2",
		       "step a layer");
}

static void what_changes_nothing_is_taken(void **state)
{
	(void)state;
	coppice_hf_free(expect_good(
		"{" LLAMA ", \"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1, "
		"\"eos_token_id\": [2, 3], \"pretraining_tp\": 1, \"use_cache\": true, "
		"\"initializer_range\": 0.02, \"temperature\": 0.6, \"attention_dropout\": 0.1, "
		"\"rope_interleaved\": false, \"is_llama_config\": true, \"num_experts\": 0, "
		"\"transformers.js_config\": {\"kv_cache_dtype\": {}}, \"some_new_trick\": null, "
		"\"mlp_only_layers\": [], \"pruned_heads\": {}, \"logits_scaling\": 1.0, "
		"\"quantization_config\": null, \"transformers_version\": \"4.57.1\"}"));
	coppice_hf_free(expect_good(
		"{" OF("qwen2") ", \"use_sliding_window\": false, \"sliding_window\": 64, "
				"\"max_window_layers\": 1, \"use_mrope\": false}"));
	coppice_hf_free(
		expect_good("{" OF("phi3") ", \"sliding_window\": 512, \"attention_bias\": false, "
					   "\"lm_head_bias\": false, \"full_attn_mod\": 1, "
					   "\"interpolate_factor\": 1, \"auto_map\": {}}"));
}

static void a_window_that_no_sequence_outgrows_is_none(void **state)
{
	(void)state;
	const char *text = "{" OF("mistral") ", \"sliding_window\": 256}";
	struct coppice_hf_program *program = expect_good_within(text, 256);
	assert_int_equal(program->info.max_positions, 256);
	coppice_hf_free(program);
	assert_int_equal(parse(text, 257, &program), -ENOTSUP);
	/* transformers gives a Mistral one of 4096 where config.json has none. */
	text = "{\"model_type\": \"mistral\", \"vocab_size\": 256, \"num_hidden_layers\": 1, "
	       "\"hidden_size\": 128, \"intermediate_size\": 192, \"num_attention_heads\": 8, "
	       "\"max_position_embeddings\": 8192}";
	expect_refused(-ENOTSUP, text, "sliding_window is missing", "window of 4096", "null");
	coppice_hf_free(expect_good_within(text, 4096));
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
		expect_refused(-EINVAL, text, cases[i].told);
	}
	expect_refused(-EINVAL, "{\"model_type\": 3}", "model_type is 3");
	expect_refused(-EINVAL, "{\"vocab_size\": 256}", "model_type is missing");
	expect_refused(-EINVAL, "{\"model_type\": \"phi3\"}", "vocab_size is missing");
	expect_refused(-EINVAL, "{" OF("smollm3") ", \"no_rope_layers\": [1]}", "no_rope_layers");
	expect_refused(-EINVAL, "{" OF("smollm3") ", \"no_rope_layers\": [1, 2]}", "1 (with RoPE)");
	expect_refused(-EINVAL, "{" OF("smollm3") ", \"no_rope_layer_interval\": 0}",
		       "no_rope_layer_interval is 0");
	expect_refused(
		-EINVAL,
		"{\"model_type\": \"llama\", \"vocab_size\": 9, \"num_hidden_layers\": 1, "
		"\"hidden_size\": 128, \"intermediate_size\": 9, \"num_attention_heads\": 4, "
		"\"num_key_value_heads\": 3, \"max_position_embeddings\": 9}",
		"num_key_value_heads is 3", "4 query heads");
	expect_refused(-EINVAL, "{\"model_type\": \"llama\", \"vocab_size\": 5000000}",
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
		expect_refused(cases[i].error, text, cases[i].told[0], cases[i].told[1]);
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
	expect_refused(-EINVAL, "", "not JSON");
	expect_refused(-EINVAL, "[]", "not a JSON object");
	expect_refused(-EINVAL, "7", "not JSON");
	expect_refused(-EINVAL, "{\n\"vocab_size\": ", "line 2");
	expect_refused(-EINVAL, "{" LLAMA ", \"head_dim\": 32, \"head_dim\": 64}", "duplicate");
	expect_refused(-EINVAL, "{" LLAMA ", \"head_dim\": 99999999999999999999}", "too big");
	expect_refused(-EINVAL, "{" LLAMA ", \"rope_theta\": 1e999}", "overflow");
	expect_refused(-EINVAL, "{" LLAMA ", \"rope_theta\": NaN}", "not JSON");
	expect_refused(-EINVAL, "{\"\\u0000\": 1}", "not JSON");
	char *deep = repeat("[", 100000, "{\"head_dim\": ", "");
	expect_refused(-EINVAL, deep, "depth");
	free(deep);
	char *wide = repeat("9, ", 100000, "{" LLAMA ", \"layer_types\": [", "9]}");
	expect_refused(-EINVAL, wide, "layer_types is [9, 9,", "...: it must be");
	free(wide);
	char *name = repeat("\\u001b", 1000, "{\"model_type\": \"", "\"}");
	expect_refused(-ENOTSUP, name, "model_type is \"\\u001B");
	assert_null(strchr(why, '\033'));
	free(name);
	char *key = repeat("k", 5000, "{" LLAMA ", \"", "\": 1}");
	expect_refused(-ENOTSUP, key, "kkkk");
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
	coppice_hf_free(expect_good(text));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(coppice_hf_parse(text, i, NULL, &program, why), -EINVAL);
		for (const char *c = "0-{]\"e\xff"; *c; c++) {
			memcpy(copy, text, n + 1);
			copy[i] = *c;
			if (coppice_hf_parse(copy, n, NULL, &program, why) == 0)
				coppice_hf_free(program);
			else
				assert_true(strlen(why) > 0);
		}
	}
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
	(void)state;
	struct coppice_hf_program *program;
	assert_int_equal(coppice_hf_read("/nowhere/config.json", NULL, &program, why), -ENOENT);
	assert_non_null(strstr(why, "/nowhere/config.json"));
	const struct coppice_hf_options later = {.size = sizeof(later) + 8};
	assert_int_equal(coppice_hf_parse("{}", 2, &later, &program, why), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_family_has_its_operations),
		cmocka_unit_test(biases_are_where_the_config_says),
		cmocka_unit_test(layers_without_rope_are_a_kind_of_their_own),
		cmocka_unit_test(what_is_left_out_is_as_transformers_has_it),
		cmocka_unit_test(every_tensor_is_bound_to_its_number),
		cmocka_unit_test(a_head_that_is_not_there_is_the_embedding),
		cmocka_unit_test(a_tensor_that_is_missing_is_named),
		cmocka_unit_test(what_is_not_computed_is_refused_by_key_and_value),
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
