/*
 * model_config.c - config.json, key by key.
 *
 * The family comes first, as it says which keys have a meaning and what stands for those that are
 * left out. Sizes must be there.
 */
#include "model_config.h"

#include "keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int read_family(const struct reading *in, struct model_config *c)
{
	const char *name;
	char why[192];
	int r = reading_text(in, "model_type", NULL, &name);
	if (r < 0)
		return r;
	c->family = family_find(name);
	if (c->family)
		return 0;
	snprintf(why, sizeof(why),
		 "known are %s; of others, compute the layers in the app, with a step a layer",
		 family_names());
	return reading_refuse(in, -ENOTSUP, "model_type", why);
}

static int read_sizes(const struct reading *in, struct model_config *c)
{
	const struct {
		const char *key;
		uint32_t *value, max;
	} fields[] = {
		{"vocab_size", &c->n_vocab, 1 << 22},
		{"num_hidden_layers", &c->n_layers, MODEL_LAYERS_MAX},
		{"hidden_size", &c->hidden, 1 << 18},
		{"intermediate_size", &c->intermediate, 1 << 20},
		{"num_attention_heads", &c->n_q_heads, 1 << 12},
		{"max_position_embeddings", &c->max_positions, 1 << 28},
	};
	int r = 0;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && r == 0; i++)
		r = reading_count(in, fields[i].key, 0, fields[i].max, fields[i].value);
	return r;
}

static int read_kv_heads(const struct reading *in, struct model_config *c)
{
	const bool is_null = json_is_null(json_object_get(in->object, "num_key_value_heads"));
	const uint32_t usual = c->family->n_kv_heads;
	char why[96];
	int r = reading_count(in, "num_key_value_heads", usual && !is_null ? usual : c->n_q_heads,
			      c->n_q_heads, &c->n_kv_heads);
	if (r < 0 || c->n_q_heads % c->n_kv_heads == 0)
		return r;
	snprintf(why, sizeof(why), "%u query heads over %u key-value heads do not go up",
		 c->n_q_heads, c->n_kv_heads);
	return reading_refuse(in, -EINVAL, "num_key_value_heads", why);
}

static int read_head_dim(const struct reading *in, struct model_config *c)
{
	const bool is_null = json_is_null(json_object_get(in->object, "head_dim"));
	uint32_t usual = is_null ? 0 : c->family->head_dim;
	char why[128];
	if (!usual && c->hidden % c->n_q_heads == 0)
		usual = c->hidden / c->n_q_heads;
	int r = reading_count(in, "head_dim", usual, 1 << 12, &c->head_dim);
	if (r < 0 || (c->head_dim % 16 == 0 && c->head_dim <= 2 * ROPE_HALF_MAX))
		return r;
	snprintf(why, sizeof(why),
		 "heads of %u dims are not computed, only multiples of 16 up to %u", c->head_dim,
		 2 * ROPE_HALF_MAX);
	return reading_refuse(in, -ENOTSUP, "head_dim", why);
}

static int read_act(const struct reading *in, struct model_config *c)
{
	static const struct {
		const char *name;
		enum coppice_act act;
	} acts[] = {
		{"silu", COPPICE_ACT_SILU},
		{"swish", COPPICE_ACT_SILU},
		{"gelu", COPPICE_ACT_GELU},
		{"gelu_new", COPPICE_ACT_GELU_TANH},
		{"gelu_pytorch_tanh", COPPICE_ACT_GELU_TANH},
	};
	const char *name;
	int r = reading_text(in, "hidden_act", "silu", &name);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		if (!strcmp(acts[i].name, name)) {
			c->act = acts[i].act;
			return 0;
		}
	return reading_refuse(in, -ENOTSUP, "hidden_act",
			      "only silu, gelu and gelu_pytorch_tanh are computed");
}

static int read_dtype(const struct reading *in, struct model_config *c)
{
	static const char *const names[] = {
		[COPPICE_FP32] = "float32",
		[COPPICE_FP16] = "float16",
		[COPPICE_BF16] = "bfloat16",
	};
	const char *key = reading_find(in, "dtype") ? "dtype" : "torch_dtype", *name;
	int r = reading_text(in, key, "float32", &name);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name)) {
			c->dtype = i;
			return 0;
		}
	return reading_refuse(in, -ENOTSUP, key,
			      "weights are read as float32, float16 or bfloat16; convert them");
}

static int read_biases(const struct reading *in, struct model_config *c)
{
	const struct family *family = c->family;
	bool attention, out;
	int r = reading_flag(in, "attention_bias", family->attention_bias, &attention);
	if (r == 0)
		r = reading_flag(in, "attention_out_bias", false, &out);
	if (r == 0)
		r = reading_flag(in, "mlp_bias", false, &c->mlp_bias);
	if (r < 0)
		return r;
	c->qkv_bias = attention || (family->traits & FAMILY_QKV_BIAS);
	c->o_bias = family->bit == FAMILY_SEED_OSS ? out : attention;
	return 0;
}

/* The window that some layers attend within: 0 is none. */
static int read_window(const struct reading *in, const struct model_config *c, uint32_t *ret)
{
	const json_t *value = json_object_get(in->object, "sliding_window");
	bool used;
	int r = reading_flag(in, "use_sliding_window", c->family->traits & FAMILY_WINDOWED, &used);
	*ret = 0;
	if (r < 0 || !used || json_is_null(value) || (!value && !c->family->window))
		return r;
	return reading_count(in, "sliding_window", c->family->window, UINT32_MAX, ret);
}

/* A window that no sequence outgrows is none. */
static int check_window(const struct reading *in, const struct model_config *c, uint32_t window)
{
	char why[224];
	if (!window || window >= c->max_positions)
		return 0;
	snprintf(why, sizeof(why),
		 "attention within a window of %u is not computed; limit max_positions to it, or "
		 "where the model was made without a window, write null there",
		 window);
	return reading_refuse(in, -ENOTSUP, "sliding_window", why);
}

static int check_layer_types(const struct reading *in, const struct model_config *c,
			     uint32_t window)
{
	const json_t *types = reading_find(in, "layer_types");
	char why[128];
	if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers))
		return reading_refuse(in, -EINVAL, "layer_types",
				      "it must be a list with an entry for each layer");
	for (uint32_t i = 0; types && i < c->n_layers; i++) {
		const char *type = json_string_value(json_array_get(types, i));
		if (type && (!strcmp(type, "full_attention") ||
			     (window && !strcmp(type, "sliding_attention"))))
			continue;
		snprintf(why, sizeof(why),
			 "layer %u is not of full_attention; nothing else is computed", i);
		return reading_refuse(in, -ENOTSUP, "layer_types", why);
	}
	return 0;
}

static int read_positions(const struct reading *in, uint32_t limit, struct model_config *c)
{
	const struct rope_shape shape = {
		.head_dim = c->head_dim,
		.max_positions = c->max_positions,
		.limit = limit && limit < c->max_positions ? limit : c->max_positions,
	};
	uint32_t window;
	int r = rope_read(in, c->family, &shape, &c->rope);
	c->max_positions = shape.limit;
	if (r == 0)
		r = read_window(in, c, &window);
	if (r == 0)
		r = check_window(in, c, window);
	return r < 0 ? r : check_layer_types(in, c, window);
}

static int read_unturned_list(const struct reading *in, const json_t *list, struct model_config *c)
{
	static const char key[] = "no_rope_layers";
	if (!json_is_array(list) || json_array_size(list) < c->n_layers)
		return reading_refuse(in, -EINVAL, key,
				      "it must be a list with an entry for each layer");
	for (uint32_t i = 0; i < c->n_layers; i++) {
		const json_t *turned = json_array_get(list, i);
		if (!json_is_integer(turned) || json_integer_value(turned) < 0 ||
		    json_integer_value(turned) > 1)
			return reading_refuse(in, -EINVAL, key,
					      "its entries must be 1 (with RoPE) or 0 (without)");
		c->unturned[i] = !json_integer_value(turned);
	}
	return 0;
}

static int read_unturned(const struct reading *in, struct model_config *c)
{
	const json_t *list = reading_find(in, "no_rope_layers");
	uint32_t interval;
	if (c->family->bit != FAMILY_SMOLLM3)
		return 0;
	if (list)
		return read_unturned_list(in, list, c);
	int r = reading_count(in, "no_rope_layer_interval", 4, UINT32_MAX, &interval);
	for (uint32_t i = 0; r == 0 && i < c->n_layers; i++)
		c->unturned[i] = (i + 1) % interval == 0;
	return r;
}

static int read_eps(const struct reading *in, struct model_config *c)
{
	double eps;
	int r = reading_number(in, "rms_norm_eps", c->family->eps, &eps);
	if (r == 0 && (eps < 1e-30 || eps > 1))
		r = reading_refuse(in, -EINVAL, "rms_norm_eps", "it must be from 1e-30 to 1");
	if (r == 0)
		c->norm_eps = eps;
	return r;
}

static int read_rest(const struct reading *in, struct model_config *c)
{
	int r = read_act(in, c);
	if (r == 0)
		r = read_dtype(in, c);
	if (r == 0)
		r = read_biases(in, c);
	if (r == 0)
		r = read_eps(in, c);
	if (r == 0)
		r = reading_flag(in, "tie_word_embeddings", c->family->tied, &c->tied);
	return r == 0 ? read_unturned(in, c) : r;
}

static int read_all(const struct reading *in, uint32_t limit, struct model_config *c)
{
	int r = read_family(in, c);
	if (r == 0)
		r = keys_check(in, c->family);
	if (r == 0)
		r = read_sizes(in, c);
	if (r == 0)
		r = read_kv_heads(in, c);
	if (r == 0)
		r = read_head_dim(in, c);
	if (r == 0)
		r = read_positions(in, limit, c);
	return r == 0 ? read_rest(in, c) : r;
}

int model_config_parse(const struct model_text *text, uint32_t max_positions,
		       struct model_config *ret, struct fault *fault)
{
	json_error_t error;
	json_t *root = json_loadb(text->bytes, text->n_bytes, JSON_REJECT_DUPLICATES, &error);
	struct model_config config = {.n_vocab = 0};
	if (!root)
		return fault_set(fault, -EINVAL, "%s: is not JSON: %s (line %d)", text->path,
				 error.text, error.line);
	const struct reading in = {.path = text->path,
				   .within = "",
				   .object = root,
				   .fault = fault};
	int r = json_is_object(root)
			? read_all(&in, max_positions, &config)
			: fault_set(fault, -EINVAL, "%s: is not a JSON object", text->path);
	json_decref(root);
	if (r == 0)
		*ret = config;
	return r;
}
