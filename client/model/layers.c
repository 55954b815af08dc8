/*
 * layers.c - a layer is attention and a feed-forward part, each with a norm before or behind it.
 *
 *      before    A = norm(X)  B = A qkv'  A = attention(B)  X += A o'
 *                A = norm(X)  B = act(A gate') * (A up')    X += B down'
 *      behind    A = X qkv'   B = attention(A)  A = B o'    X += norm(A)
 *                A = act(X gate') * (X up')     B = A down' X += norm(B)
 *
 * Layers that differ in RoPE alone are two kinds with the same slots.
 */
#include "layers.h"

#include <string.h>

static uint32_t slot(struct layers *layers, const char *name)
{
	uint32_t i = 0;
	while (i < layers->n_slots && strcmp(layers->slots[i], name))
		i++;
	layers->slots[i] = name;
	if (i == layers->n_slots)
		layers->n_slots++;
	return i;
}

static struct coppice_op *add_op(struct layers *layers, enum coppice_op_kind kind,
				 enum coppice_register in, enum coppice_register out)
{
	struct coppice_op *op = &layers->ops[layers->n_ops++];
	*op = (struct coppice_op){
		.kind = kind,
		.in = in,
		.out = out,
		.w = {COPPICE_NO_SLOT, COPPICE_NO_SLOT, COPPICE_NO_SLOT},
		.bias = {COPPICE_NO_SLOT, COPPICE_NO_SLOT, COPPICE_NO_SLOT},
	};
	if (out == COPPICE_X)
		op->flags = COPPICE_OP_ADD;
	layers->kinds[layers->n_kinds - 1].n_ops++;
	return op;
}

static void add_weight(struct layers *layers, struct coppice_op *op, const char *weight,
		       const char *bias)
{
	op->w[op->n_w] = slot(layers, weight);
	if (bias)
		op->bias[op->n_w] = slot(layers, bias);
	op->n_w++;
}

static void add_norm(struct layers *layers, const struct model_config *c, enum coppice_register in,
		     enum coppice_register out, const char *weight)
{
	struct coppice_op *op = add_op(layers, COPPICE_NORM, in, out);
	op->eps = c->norm_eps;
	add_weight(layers, op, weight, NULL);
}

static void add_qkv(struct layers *layers, const struct model_config *c, enum coppice_register in,
		    enum coppice_register out)
{
	struct coppice_op *op = add_op(layers, COPPICE_LINEAR, in, out);
	const bool bias = c->qkv_bias;
	if (c->family->traits & FAMILY_FUSED) {
		add_weight(layers, op, "self_attn.qkv_proj.weight", NULL);
		return;
	}
	add_weight(layers, op, "self_attn.q_proj.weight", bias ? "self_attn.q_proj.bias" : NULL);
	add_weight(layers, op, "self_attn.k_proj.weight", bias ? "self_attn.k_proj.bias" : NULL);
	add_weight(layers, op, "self_attn.v_proj.weight", bias ? "self_attn.v_proj.bias" : NULL);
}

static void add_attend(struct layers *layers, const struct model_config *c,
		       enum coppice_register in, enum coppice_register out)
{
	struct coppice_op *op = add_op(layers, COPPICE_ATTEND, in, out);
	if (c->family->traits & FAMILY_HEAD_NORMS)
		op->flags |= COPPICE_OP_HEAD_NORM;
	if (c->family->traits & FAMILY_WIDE_NORMS)
		op->flags |= COPPICE_OP_WIDE_NORM;
	if (!op->flags)
		return;
	op->eps = c->norm_eps;
	add_weight(layers, op, "self_attn.q_norm.weight", NULL);
	add_weight(layers, op, "self_attn.k_norm.weight", NULL);
}

static void add_o(struct layers *layers, const struct model_config *c, enum coppice_register in,
		  enum coppice_register out)
{
	add_weight(layers, add_op(layers, COPPICE_LINEAR, in, out), "self_attn.o_proj.weight",
		   c->o_bias ? "self_attn.o_proj.bias" : NULL);
}

static void add_gate(struct layers *layers, const struct model_config *c, enum coppice_register in,
		     enum coppice_register out)
{
	struct coppice_op *op = add_op(layers, COPPICE_LINEAR, in, out);
	op->flags |= COPPICE_OP_GATED;
	op->act = c->act;
	if (c->family->traits & FAMILY_FUSED) {
		add_weight(layers, op, "mlp.gate_up_proj.weight", NULL);
		return;
	}
	add_weight(layers, op, "mlp.gate_proj.weight", c->mlp_bias ? "mlp.gate_proj.bias" : NULL);
	add_weight(layers, op, "mlp.up_proj.weight", c->mlp_bias ? "mlp.up_proj.bias" : NULL);
}

static void add_down(struct layers *layers, const struct model_config *c, enum coppice_register in,
		     enum coppice_register out)
{
	add_weight(layers, add_op(layers, COPPICE_LINEAR, in, out), "mlp.down_proj.weight",
		   c->mlp_bias ? "mlp.down_proj.bias" : NULL);
}

static void add_norms_before(struct layers *layers, const struct model_config *c)
{
	add_norm(layers, c, COPPICE_X, COPPICE_A, "input_layernorm.weight");
	add_qkv(layers, c, COPPICE_A, COPPICE_B);
	add_attend(layers, c, COPPICE_B, COPPICE_A);
	add_o(layers, c, COPPICE_A, COPPICE_X);
	add_norm(layers, c, COPPICE_X, COPPICE_A, "post_attention_layernorm.weight");
	add_gate(layers, c, COPPICE_A, COPPICE_B);
	add_down(layers, c, COPPICE_B, COPPICE_X);
}

static void add_norms_behind(struct layers *layers, const struct model_config *c)
{
	add_qkv(layers, c, COPPICE_X, COPPICE_A);
	add_attend(layers, c, COPPICE_A, COPPICE_B);
	add_o(layers, c, COPPICE_B, COPPICE_A);
	add_norm(layers, c, COPPICE_A, COPPICE_X, "post_attention_layernorm.weight");
	add_gate(layers, c, COPPICE_X, COPPICE_A);
	add_down(layers, c, COPPICE_A, COPPICE_B);
	add_norm(layers, c, COPPICE_B, COPPICE_X, "post_feedforward_layernorm.weight");
}

static void leave_unturned(struct layers *layers, const struct coppice_layer_kind *kind)
{
	for (uint32_t i = 0; i < kind->n_ops; i++)
		if (layers->ops[kind->first_op + i].kind == COPPICE_ATTEND)
			layers->ops[kind->first_op + i].flags |= COPPICE_OP_UNTURNED;
}

/* The kind's number; it is made where no layer had it before. */
static uint8_t kind_for(struct layers *layers, const struct model_config *c, bool unturned)
{
	for (uint32_t i = 0; i < layers->n_kinds; i++) {
		const bool is_unturned = c->unturned[0] ? i == 0 : i == 1;
		if (is_unturned == unturned)
			return i;
	}
	struct coppice_layer_kind *kind = &layers->kinds[layers->n_kinds++];
	kind->first_op = layers->n_ops;
	if (c->family->traits & FAMILY_POST_NORMS)
		add_norms_behind(layers, c);
	else
		add_norms_before(layers, c);
	if (unturned)
		leave_unturned(layers, kind);
	return layers->n_kinds - 1;
}

void layers_make(const struct model_config *config, struct layers *ret)
{
	*ret = (struct layers){.n_ops = 0};
	for (uint32_t i = 0; i < config->n_layers; i++)
		ret->kind_of[i] = kind_for(ret, config, config->unturned[i]);
}
