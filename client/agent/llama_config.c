/*
 * llama_config.c - config.json, key by key.
 *
 * Sizes must be there. Of other keys that are missing, each has the value that transformers gives
 * it. What is there and would change the computation in a way that is not implemented is refused by
 * its name.
 */
#include "llama_config.h"

#include "file.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct reading {
	const char *path;
	const json_t *root;
	struct fault *fault;
};

/* A whole number from 1 to max at key; absent (or null): fallback, and an error where that is 0. */
static int read_count(const struct reading *in, const char *key, uint32_t fallback, uint32_t max,
		      uint32_t *ret)
{
	const json_t *value = json_object_get(in->root, key);
	if ((!value || json_is_null(value)) && fallback) {
		*ret = fallback;
		return 0;
	}
	if (!value)
		return fault_set(in->fault, -EINVAL, "%s: %s is missing", in->path, key);
	if (!json_is_integer(value) || json_integer_value(value) < 1 ||
	    json_integer_value(value) > max)
		return fault_set(in->fault, -EINVAL, "%s: %s must be a whole number from 1 to %u",
				 in->path, key, max);
	*ret = json_integer_value(value);
	return 0;
}

/* A number > 0 at key of object; absent: fallback, and an error where that is 0. */
static int read_number(const struct reading *in, const json_t *object, const char *key,
		       double fallback, double *ret)
{
	const json_t *value = json_object_get(object, key);
	if (!value && fallback > 0) {
		*ret = fallback;
		return 0;
	}
	if (!json_is_number(value) || !(json_number_value(value) > 0))
		return fault_set(in->fault, -EINVAL, "%s: %s must be a number above 0", in->path,
				 key);
	*ret = json_number_value(value);
	return 0;
}

static int refuse_true(const struct reading *in, const char *key)
{
	if (json_is_true(json_object_get(in->root, key)))
		return fault_set(in->fault, -ENOTSUP, "%s: %s is not supported", in->path, key);
	return 0;
}

static int refuse_other(const struct reading *in, const json_t *object, const char *key,
			const char *expected)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);
	if (!value || (text && !strcmp(text, expected)))
		return 0;
	return fault_set(in->fault, -ENOTSUP, "%s: %s \"%s\" is not supported, only \"%s\"",
			 in->path, key, text ? text : "(not a string)", expected);
}

static int read_dimensions(const struct reading *in, struct llama_config *c)
{
	const struct {
		const char *key;
		uint32_t *value, max;
	} fields[] = {
		{"vocab_size", &c->n_vocab, 1 << 22},
		{"num_hidden_layers", &c->n_layers, 1 << 12},
		{"hidden_size", &c->hidden, 1 << 18},
		{"intermediate_size", &c->intermediate, 1 << 20},
		{"num_attention_heads", &c->n_q_heads, 1 << 12},
		{"max_position_embeddings", &c->max_positions, 1 << 28},
	};
	int r = 0;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && r == 0; i++)
		r = read_count(in, fields[i].key, 0, fields[i].max, fields[i].value);
	if (r == 0)
		r = read_count(in, "num_key_value_heads", c->n_q_heads, c->n_q_heads,
			       &c->n_kv_heads);
	if (r < 0)
		return r;
	r = read_count(in, "head_dim", c->hidden / c->n_q_heads, 1 << 12, &c->head_dim);
	if (r == 0 && (c->head_dim % 2 || c->n_q_heads % c->n_kv_heads))
		r = fault_set(in->fault, -EINVAL,
			      "%s: %u query heads over %u key-value heads of %u do not go up",
			      in->path, c->n_q_heads, c->n_kv_heads, c->head_dim);
	return r;
}

static int read_llama3(const struct reading *in, const json_t *rope, struct llama_config *c)
{
	c->rope.llama3 = true;
	int r = read_number(in, rope, "factor", 0, &c->rope.factor);
	if (r == 0)
		r = read_number(in, rope, "low_freq_factor", 0, &c->rope.low_freq_factor);
	if (r == 0)
		r = read_number(in, rope, "high_freq_factor", 0, &c->rope.high_freq_factor);
	if (r == 0)
		r = read_number(in, rope, "original_max_position_embeddings", 0,
				&c->rope.original_positions);
	if (r == 0 && c->rope.high_freq_factor <= c->rope.low_freq_factor)
		r = fault_set(in->fault, -EINVAL,
			      "%s: high_freq_factor must be above low_freq_factor", in->path);
	return r;
}

static int refuse_partial_rotation(const struct reading *in, const json_t *object)
{
	const json_t *value = json_object_get(object, "partial_rotary_factor");
	if (!value || json_is_null(value) || json_number_value(value) == 1)
		return 0;
	return fault_set(in->fault, -ENOTSUP, "%s: partial_rotary_factor is not supported",
			 in->path);
}

static int read_rope(const struct reading *in, struct llama_config *c)
{
	const json_t *inner = json_object_get(in->root, "rope_parameters");
	const json_t *rope =
		json_is_object(inner) ? inner : json_object_get(in->root, "rope_scaling");
	const json_t *home = json_object_get(inner, "rope_theta") ? inner : in->root;
	int r = read_number(in, home, "rope_theta", 10000, &c->rope_theta);
	if (r == 0)
		r = refuse_partial_rotation(in, in->root);
	if (r == 0)
		r = refuse_partial_rotation(in, inner);
	if (r < 0 || !rope || json_is_null(rope))
		return r;
	const json_t *type = json_object_get(rope, "rope_type");
	const char *name = json_string_value(type ? type : json_object_get(rope, "type"));
	if (!type && !name && rope == inner)
		return 0;
	if (!name)
		return fault_set(in->fault, -EINVAL, "%s: rope_type is missing or not a string",
				 in->path);
	if (!strcmp(name, "default"))
		return 0;
	if (!strcmp(name, "llama3"))
		return read_llama3(in, rope, c);
	return fault_set(in->fault, -ENOTSUP,
			 "%s: rope_type \"%s\" is not supported, only \"default\" and \"llama3\"",
			 in->path, name);
}

static int check_kind(const struct reading *in)
{
	const json_t *quantized = json_object_get(in->root, "quantization_config");
	if (!json_is_object(in->root))
		return fault_set(in->fault, -EINVAL, "%s: is not a JSON object", in->path);
	if (quantized && !json_is_null(quantized))
		return fault_set(in->fault, -ENOTSUP, "%s: quantization_config is not supported",
				 in->path);
	int r = refuse_other(in, in->root, "model_type", "llama");
	if (r == 0)
		r = refuse_other(in, in->root, "hidden_act", "silu");
	if (r == 0)
		r = refuse_true(in, "attention_bias");
	if (r == 0)
		r = refuse_true(in, "mlp_bias");
	return r;
}

static int read_all(const struct reading *in, struct llama_config *c)
{
	double eps;
	int r = check_kind(in);
	if (r == 0)
		r = read_dimensions(in, c);
	if (r == 0)
		r = read_rope(in, c);
	if (r == 0)
		r = read_number(in, in->root, "rms_norm_eps", 1e-6, &eps);
	if (r < 0)
		return r;
	c->norm_eps = eps;
	c->tied = json_is_true(json_object_get(in->root, "tie_word_embeddings"));
	return 0;
}

int llama_config_read(const char *path, struct llama_config *ret, struct fault *fault)
{
	char *text = NULL;
	size_t bytes;
	int r = file_read(path, &text, &bytes, fault);
	if (r < 0)
		return r;
	struct llama_config config = {.hash = XXH3_64bits(text, bytes)};
	json_error_t error;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	free(text);
	if (!root)
		return fault_set(fault, -EINVAL, "%s: is not JSON: %s (line %d)", path, error.text,
				 error.line);
	r = read_all(&(struct reading){.path = path, .root = root, .fault = fault}, &config);
	json_decref(root);
	if (r == 0)
		*ret = config;
	return r;
}
