/*
 * llama_load.c - tensors by the names that Hugging Face uses, each of the shape that config.json
 * makes it.
 *
 * Matrices stay in the mapped files, in their own dtype; the norms' weights are copied to fp32. A
 * model whose embedding is tied has no output matrix of its own.
 */
#include "llama_load.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Norm weights are small and used as fp32: copied. */
static int load_vector(struct llama *model, const char *name, float **ret, struct fault *fault)
{
	struct rows_matrix from;
	const uint32_t n = model->config.hidden;
	int r = weights_matrix(&model->weights, name, (struct weights_shape){0, n}, &from, fault);
	if (r < 0)
		return r;
	*ret = calloc(n, sizeof(float));
	if (!*ret)
		return fault_set(fault, -ENOMEM, "out of memory");
	model->ops->widen(*ret, from.data, from.dtype, n);
	return 0;
}

static int load_matrices(struct llama *model, uint32_t index, struct fault *fault)
{
	const struct llama_config *c = &model->config;
	struct llama_layer *layer = &model->layers[index];
	const uint64_t q = (uint64_t)c->n_q_heads * c->head_dim,
		       kv = (uint64_t)c->n_kv_heads * c->head_dim;
	const struct {
		const char *name;
		struct weights_shape shape;
		struct rows_matrix *matrix;
	} parts[] = {
		{"self_attn.q_proj", {q, c->hidden}, &layer->q},
		{"self_attn.k_proj", {kv, c->hidden}, &layer->k},
		{"self_attn.v_proj", {kv, c->hidden}, &layer->v},
		{"self_attn.o_proj", {c->hidden, q}, &layer->o},
		{"mlp.gate_proj", {c->intermediate, c->hidden}, &layer->gate},
		{"mlp.up_proj", {c->intermediate, c->hidden}, &layer->up},
		{"mlp.down_proj", {c->hidden, c->intermediate}, &layer->down},
	};
	char name[96];
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(name, sizeof(name), "model.layers.%u.%s.weight", index, parts[i].name);
		int r = weights_matrix(&model->weights, name, parts[i].shape, parts[i].matrix,
				       fault);
		if (r < 0)
			return r;
	}
	return 0;
}

static int load_layer(struct llama *model, uint32_t index, struct fault *fault)
{
	struct llama_layer *layer = &model->layers[index];
	char name[96];
	int r = load_matrices(model, index, fault);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "model.layers.%u.input_layernorm.weight", index);
	r = load_vector(model, name, &layer->attn_norm, fault);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "model.layers.%u.post_attention_layernorm.weight", index);
	return load_vector(model, name, &layer->mlp_norm, fault);
}

static int load_weights(struct llama *model, struct fault *fault)
{
	const struct llama_config *c = &model->config;
	const struct weights_shape shape = {c->n_vocab, c->hidden};
	int r = weights_matrix(&model->weights, "model.embed_tokens.weight", shape, &model->embed,
			       fault);
	model->head = model->embed;
	if (r == 0 && !c->tied)
		r = weights_matrix(&model->weights, "lm_head.weight", shape, &model->head, fault);
	if (r == 0)
		r = load_vector(model, "model.norm.weight", &model->norm, fault);
	for (uint32_t i = 0; r == 0 && i < c->n_layers; i++)
		r = load_layer(model, i, fault);
	return r;
}

static int set_frequencies(struct llama *model, struct fault *fault)
{
	model->inv_freq = calloc(model->config.rope.n_turned / 2, sizeof(double));
	if (!model->inv_freq)
		return fault_set(fault, -ENOMEM, "out of memory");
	rope_frequencies(&model->config.rope, model->inv_freq);
	return 0;
}

int llama_load(const char *dir, struct llama *ret, struct fault *fault)
{
	struct llama model = {.ops = rows_ops_select(NULL)};
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/config.json", dir);
	int r = llama_config_read(path, &model.config, fault);
	if (r == 0)
		r = weights_open(dir, &model.weights, fault);
	if (r < 0)
		return r;
	model.hash = weights_hash(&model.weights, model.config.hash);
	model.layers = calloc(model.config.n_layers, sizeof(*model.layers));
	r = model.layers ? load_weights(&model, fault) : fault_set(fault, -ENOMEM, "out of memory");
	if (r == 0)
		r = set_frequencies(&model, fault);
	if (r < 0)
		llama_done(&model);
	else
		*ret = model;
	return r;
}

void llama_done(struct llama *model)
{
	for (uint32_t i = 0; model->layers && i < model->config.n_layers; i++) {
		free(model->layers[i].attn_norm);
		free(model->layers[i].mlp_norm);
	}
	free(model->layers);
	free(model->norm);
	free(model->inv_freq);
	weights_close(&model->weights);
	*model = (struct llama){0};
}
