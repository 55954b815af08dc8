/*
 * forward_self.c - a pass of llama_forward for the parts of a run, rows behind each other.
 *
 * Of each part the last row's logits are kept, in order of parts.
 */
#include "forward_self.h"

#include "llama_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct forward_self *self_of(struct forward *base)
{
	return (struct forward_self *)base;
}

/* Row by row what llama_forward takes; returns how many rows there are. */
static uint32_t lay_out(struct forward_self *self, const struct forward_part *parts,
			uint32_t n_parts)
{
	uint32_t row = 0;
	for (uint32_t i = 0; i < n_parts; i++) {
		const struct forward_part *p = &parts[i];
		memcpy(self->ids + row, p->ids, p->n_rows * sizeof(*p->ids));
		for (uint32_t k = 0; k < p->n_rows; k++)
			self->positions[row + k] = p->position + k;
		row += p->n_rows;
		self->wanted[i] = row - 1;
		self->parts[i] = (struct attention_part){.seq = p->seq, .n_rows = p->n_rows};
	}
	return row;
}

static int run(struct forward *base, const struct forward_part *parts, uint32_t n_parts,
	       bool wanted, struct fault *fault)
{
	struct forward_self *self = self_of(base);
	int r = 0;
	for (uint32_t i = 0; r == 0 && i < n_parts; i++)
		r = daemon_seq_extend(base->daemon, parts[i].seq, parts[i].ids, parts[i].n_rows,
				      fault);
	if (r < 0)
		return r;
	const struct llama_batch batch = {
		.n_rows = lay_out(self, parts, n_parts),
		.ids = self->ids,
		.positions = self->positions,
		.parts = self->parts,
		.n_parts = n_parts,
		.wanted = self->wanted,
		.n_wanted = wanted ? n_parts : 0,
	};
	self->weights_read += llama_pass_bytes(&self->model);
	return llama_forward(&self->pass, &batch, self->logits, fault);
}

static struct sampler_scores scores(const struct forward *base, uint32_t part)
{
	const struct forward_self *self = (const struct forward_self *)base;
	return (struct sampler_scores){
		.logits = self->logits + (size_t)part * self->model.config.n_vocab,
	};
}

static int weights_read(struct forward *base, uint64_t *ret, struct fault *fault)
{
	(void)fault;
	*ret = self_of(base)->weights_read;
	return 0;
}

int forward_self_load(struct forward_self *ret, const char *model_dir, struct fault *fault)
{
	*ret = (struct forward_self){0};
	return llama_load(model_dir, &ret->model, fault);
}

static int make_buffers(struct forward_self *self, struct fault *fault)
{
	const struct forward_limits *l = &self->limits;
	self->ids = calloc(l->n_rows, sizeof(*self->ids));
	self->positions = calloc(l->n_rows, sizeof(*self->positions));
	self->wanted = calloc(l->n_parts, sizeof(*self->wanted));
	self->parts = calloc(l->n_parts, sizeof(*self->parts));
	self->logits =
		calloc((size_t)l->n_parts * self->model.config.n_vocab, sizeof(*self->logits));
	if (!self->ids || !self->positions || !self->wanted || !self->parts || !self->logits)
		return fault_set(fault, -ENOMEM, "out of memory");
	return llama_pass_init(&self->pass, &self->model, &self->attention.base, fault);
}

static void describe(struct forward_self *self)
{
	const struct llama *model = &self->model;
	const enum coppice_dtype dtype = self->attention.base.dtype;
	self->base = (struct forward){
		.layers = "self",
		.isa = model->ops->isa,
		.daemon = &self->attention.daemon,
		.kv_dtype = dtype,
		.kv_bytes_per_token = llama_kv_bytes_per_token(model, dtype),
		.weights_bytes = weights_bytes(&model->weights),
		.holds_weights = true,
		.run = run,
		.scores = scores,
		.weights_read = weights_read,
	};
}

int forward_self_open(struct forward_self *self, const struct daemon_options *options,
		      const struct forward_limits *limits, struct fault *fault)
{
	const struct llama_config *c = &self->model.config;
	struct daemon_options all = *options;
	all.model.n_layers = c->n_layers;
	all.model.n_q_heads = c->n_q_heads;
	all.model.n_kv_heads = c->n_kv_heads;
	all.model.head_dim = c->head_dim;
	all.model.weights_hash = self->model.hash;
	all.max_rows = limits->n_rows;
	self->limits = *limits;
	int r = daemon_attention_open(&self->attention, &all, fault);
	if (r < 0)
		return r;
	describe(self);
	return make_buffers(self, fault);
}

void forward_self_done(struct forward_self *self)
{
	llama_pass_done(&self->pass);
	daemon_attention_close(&self->attention);
	llama_done(&self->model);
	free(self->ids);
	free(self->positions);
	free(self->wanted);
	free(self->parts);
	free(self->logits);
	*self = (struct forward_self){0};
}
