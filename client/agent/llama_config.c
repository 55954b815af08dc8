/*
 * llama_config.c - config.json is read by client/model; what it may say is less here.
 *
 * Keys that only other families or other ways of RoPE have are refused by their names, as those
 * that nobody knows are by client/model.
 */
#include "llama_config.h"

#include "client/model/file.h"
#include "client/model/model_config.h"

#include <errno.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static int refuse(const char *path, const char *what, struct fault *fault)
{
	return fault_set(fault, -ENOTSUP, "%s: %s is not supported", path, what);
}

/* What the family's own configuration allows and the forward pass does not compute. */
static int check(const char *path, const struct model_config *c, struct fault *fault)
{
	if (c->family->bit != FAMILY_LLAMA)
		return fault_set(fault, -ENOTSUP,
				 "%s: model_type \"%s\" is not supported, only \"llama\"", path,
				 c->family->name);
	if (c->act != COPPICE_ACT_SILU)
		return refuse(path, "hidden_act \"gelu\"", fault);
	if (c->qkv_bias)
		return refuse(path, "attention_bias", fault);
	if (c->mlp_bias)
		return refuse(path, "mlp_bias", fault);
	if (c->rope.kind != ROPE_DEFAULT && c->rope.kind != ROPE_LLAMA3)
		return fault_set(
			fault, -ENOTSUP,
			"%s: rope_type \"%s\" is not supported, only \"default\" and \"llama3\"",
			path, rope_kind_name(c->rope.kind));
	return 0;
}

static void take(const struct model_config *c, struct llama_config *ret)
{
	ret->n_vocab = c->n_vocab;
	ret->n_layers = c->n_layers;
	ret->hidden = c->hidden;
	ret->intermediate = c->intermediate;
	ret->n_q_heads = c->n_q_heads;
	ret->n_kv_heads = c->n_kv_heads;
	ret->head_dim = c->head_dim;
	ret->max_positions = c->max_positions;
	ret->rope = c->rope;
	ret->norm_eps = c->norm_eps;
	ret->tied = c->tied;
}

int llama_config_read(const char *path, struct llama_config *ret, struct fault *fault)
{
	struct model_config config;
	char *text = NULL; /* owned */
	size_t bytes;
	int r = file_read(path, &text, &bytes, fault);
	if (r == 0)
		r = model_config_parse(&(struct model_text){path, text, bytes}, 0, &config, fault);
	if (r == 0)
		r = check(path, &config, fault);
	if (r == 0) {
		take(&config, ret);
		ret->hash = XXH3_64bits(text, bytes);
	}
	free(text);
	return r;
}
