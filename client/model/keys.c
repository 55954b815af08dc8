/*
 * keys.c - a key is read, idle, or off.
 *
 * Read keys have a meaning in some families; idle ones never change logits; the others would, and
 * may only be there with the value that means they are not used. What is in no table is refused, as
 * a computation that is almost right is worse than none.
 */
#include "keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALL UINT32_MAX
#define WINDOWS (FAMILY_MISTRAL | FAMILY_QWEN2 | FAMILY_QWEN3 | FAMILY_PHI3 | FAMILY_SMOLLM3)
#define BIASED (FAMILY_LLAMA | FAMILY_QWEN3 | FAMILY_OLMO2 | FAMILY_SEED_OSS | FAMILY_SMOLLM3)

#define HELP_MOE \
	"a mixture of experts is not computed by programs; use a dense model, or compute its " \
	"layers in the app, with a step a layer"
#define HELP_QUANTIZED \
	"quantised weights are not read; use the checkpoint in bf16, fp16 or fp32 that it was " \
	"made from"
#define HELP_WINDOW \
	"attention within a window is not computed; limit max_positions to the window, or " \
	"compute the layers in the app"
#define HELP_CAP "soft caps are not computed; compute the layers in the app, with a step a layer"
#define HELP_FACTOR \
	"it multiplies what this model type does not; compute the layers in the app, with a step " \
	"a layer"
#define HELP_PARTS \
	"a model of several parts is not read; give the config.json and the tensors of its text " \
	"model alone"
#define HELP_ORDER \
	"this way of RoPE is not computed; compute the layers in the app, with a step a layer"
#define HELP_TYPE "this model type has no such thing; set it off, or take it out of config.json"

struct key {
	const char *name;
	uint32_t families; /* bits of those that read it */
	const char *off; /* JSON that is as good as its absence; NULL: null alone */
	const char *help; /* where it is neither read nor off */
};

static const struct key keys[] = {
	{"model_type", ALL},
	{"vocab_size", ALL},
	{"num_hidden_layers", ALL},
	{"hidden_size", ALL},
	{"intermediate_size", ALL},
	{"num_attention_heads", ALL},
	{"num_key_value_heads", ALL},
	{"head_dim", ALL},
	{"max_position_embeddings", ALL},
	{"original_max_position_embeddings", ALL},
	{"hidden_act", ALL},
	{"rms_norm_eps", ALL},
	{"tie_word_embeddings", ALL},
	{"dtype", ALL},
	{"torch_dtype", ALL},
	{"rope_theta", ALL},
	{"rope_scaling", ALL},
	{"rope_parameters", ALL},
	{"partial_rotary_factor", ALL},
	{"layer_types", ALL},
	{"attention_bias", BIASED, "false", HELP_TYPE},
	{"attention_out_bias", FAMILY_SEED_OSS, "false", HELP_TYPE},
	{"mlp_bias", FAMILY_LLAMA | FAMILY_SEED_OSS | FAMILY_SMOLLM3, "false", HELP_TYPE},
	{"sliding_window", WINDOWS, NULL, HELP_WINDOW},
	{"use_sliding_window", FAMILY_QWEN2 | FAMILY_QWEN3 | FAMILY_SMOLLM3, "false", HELP_WINDOW},
	{"no_rope_layers", FAMILY_SMOLLM3, "[]", HELP_TYPE},
	{"no_rope_layer_interval", FAMILY_SMOLLM3, NULL, HELP_TYPE},

	{"quantization_config", 0, NULL, HELP_QUANTIZED},
	{"compression_config", 0, NULL, HELP_QUANTIZED},
	{"num_experts", 0, "0", HELP_MOE},
	{"num_local_experts", 0, "0", HELP_MOE},
	{"n_routed_experts", 0, "0", HELP_MOE},
	{"n_shared_experts", 0, "0", HELP_MOE},
	{"num_experts_per_tok", 0, "0", HELP_MOE},
	{"moe_intermediate_size", 0, NULL, HELP_MOE},
	{"shared_expert_intermediate_size", 0, "0", HELP_MOE},
	{"decoder_sparse_step", 0, NULL, HELP_MOE},
	{"mlp_only_layers", 0, "[]", HELP_MOE},
	{"attn_logit_softcapping", 0, NULL, HELP_CAP},
	{"final_logit_softcapping", 0, NULL, HELP_CAP},
	{"sliding_window_pattern", 0, NULL, HELP_WINDOW},
	{"attention_chunk_size", 0, NULL, HELP_WINDOW},
	{"embedding_multiplier", 0, "1", HELP_FACTOR},
	{"residual_multiplier", 0, "1", HELP_FACTOR},
	{"attention_multiplier", 0, NULL, HELP_FACTOR},
	{"logits_scaling", 0, "1", HELP_FACTOR},
	{"logit_scale", 0, "1", HELP_FACTOR},
	{"scale_emb", 0, "1", HELP_FACTOR},
	{"scale_depth", 0, NULL, HELP_FACTOR},
	{"dim_model_base", 0, NULL, HELP_FACTOR},
	{"query_pre_attn_scalar", 0, NULL, HELP_FACTOR},
	{"text_config", 0, NULL, HELP_PARTS},
	{"vision_config", 0, NULL, HELP_PARTS},
	{"audio_config", 0, NULL, HELP_PARTS},
	{"rope_interleaved", 0, "false", HELP_ORDER},
	{"use_mrope", 0, "false", HELP_ORDER},
	{"rope_local_base_freq", 0, NULL, HELP_ORDER},
	{"clip_qkv", 0, NULL, HELP_TYPE},
	{"qk_layernorm", 0, "false", HELP_TYPE},
	{"use_qk_norm", 0, "false", HELP_TYPE},
	{"lm_head_bias", 0, "false", HELP_TYPE},
	{"alibi", 0, "false", HELP_TYPE},
	{"full_attn_mod", 0, "1", HELP_TYPE},
	{"interpolate_factor", 0, "1", HELP_TYPE},
	{"per_layer_config", 0, NULL, HELP_TYPE},
	{"pruned_heads", 0, "{}", HELP_TYPE},
	{"num_nextn_predict_layers", 0, "0", HELP_TYPE},
	{"is_encoder_decoder", 0, "false", HELP_TYPE},
	{"add_cross_attention", 0, "false", HELP_TYPE},
	{"cross_attention_hidden_size", 0, NULL, HELP_TYPE},
	{"use_bidirectional_attention", 0, "false", HELP_TYPE},
};

/* What tokenizers, samplers, training and loaders have left there. */
static const char *const idle[] = {
	"architectures",
	"attn_implementation",
	"auto_map",
	"chunk_size_feed_forward",
	"finetuning_task",
	"gradient_checkpointing",
	"id2label",
	"initializer_range",
	"is_decoder",
	"is_llama_config",
	"keys_to_ignore_at_inference",
	"label2id",
	"max_sequence_length",
	"max_window_layers",
	"model_max_length",
	"name_or_path",
	"neftune_noise_alpha",
	"num_labels",
	"output_attentions",
	"output_hidden_states",
	"output_router_logits",
	"pretraining_tp",
	"problem_type",
	"return_dict",
	"router_aux_loss_coef",
	"task_specific_params",
	"tf_legacy_loss",
	"tie_encoder_decoder",
	"tokenizer_class",
	"torchscript",
	"transformers.js_config",
	"transformers_version",
	"unsloth_fixed",
	"unsloth_version",
	"use_bfloat16",
	"use_cache",
	"_attn_implementation",
	"_attn_implementation_autoset",
	"_commit_hash",
	"_flash_attn_2_enabled",
	"_name_or_path",
	/* dropout: of training alone */
	"attention_dropout",
	"attention_probs_dropout_prob",
	"embd_pdrop",
	"hidden_dropout",
	"hidden_dropout_prob",
	"resid_pdrop",
	"residual_dropout",
	/* how to sample, of generations that kept it here */
	"bad_words_ids",
	"begin_suppress_tokens",
	"diversity_penalty",
	"do_sample",
	"early_stopping",
	"encoder_no_repeat_ngram_size",
	"exponential_decay_length_penalty",
	"length_penalty",
	"max_length",
	"max_new_tokens",
	"min_length",
	"no_repeat_ngram_size",
	"num_beam_groups",
	"num_beams",
	"num_return_sequences",
	"output_scores",
	"prefix",
	"remove_invalid_values",
	"repetition_penalty",
	"return_dict_in_generate",
	"suppress_tokens",
	"temperature",
	"top_k",
	"top_p",
	"typical_p",
};

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static bool is_idle(const char *name)
{
	static const char token_id[] = "_token_id";
	const size_t n = strlen(name), n_end = sizeof(token_id) - 1;
	if (n > n_end && !strcmp(name + n - n_end, token_id))
		return true;
	for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
		if (!strcmp(idle[i], name))
			return true;
	return false;
}

static bool is_off(const json_t *value, const char *off)
{
	if (!off)
		return false;
	if (!strcmp(off, "false"))
		return json_is_false(value);
	if (!strcmp(off, "[]"))
		return json_is_array(value) && json_array_size(value) == 0;
	if (!strcmp(off, "{}"))
		return json_is_object(value) && json_object_size(value) == 0;
	return json_is_number(value) && json_number_value(value) == strtod(off, NULL);
}

static int check_key(const struct reading *in, const struct family *family, const char *name,
		     const json_t *value)
{
	const struct key *key = find_key(name);
	if (json_is_null(value) || is_idle(name) || (key && (key->families & family->bit)))
		return 0;
	if (!key)
		return reading_refuse(in, -ENOTSUP, name,
				      "what this key means is not known here, and it could change "
				      "the computation; where it does not, take it out");
	return is_off(value, key->off) ? 0 : reading_refuse(in, -ENOTSUP, name, key->help);
}

int keys_check(const struct reading *in, const struct family *family)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)in->object, name, value)
	{
		const int r = check_key(in, family, name, value);
		if (r < 0)
			return r;
	}
	return 0;
}
