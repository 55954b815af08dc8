/* plain_attention.c - see plain_attention.h. Sums of 16 partial ones, so that it is quick enough
 * for long prompts. */
#include "plain_attention.h"
#include "client/agent/dtype.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t n, size_t bytes)
{
	void *memory = calloc(n, bytes);
	if (!memory)
		abort();
	return memory;
}

static float dot(const float *a, const float *b, uint32_t n)
{
	float part[16] = {0}, sum = 0;
	uint32_t i = 0;
	for (; i + 16 <= n; i += 16)
		for (uint32_t j = 0; j < 16; j++)
			part[j] += a[i + j] * b[i + j];
	for (; i < n; i++)
		part[0] += a[i] * b[i];
	for (uint32_t j = 0; j < 16; j++)
		sum += part[j];
	return sum;
}

/* o = softmax(q k' / sqrt(d)) v over n tokens whose rows are stride apart. */
static void attend(float *o, const float *q, const float *k, const float *v, uint32_t n,
		   const struct llama_config *c)
{
	const uint32_t d = c->head_dim;
	const size_t stride = (size_t)c->n_kv_heads * d;
	float *scores = zeroed(n, sizeof(*scores)), largest = -INFINITY;
	double sum = 0;
	for (uint32_t t = 0; t < n; t++) {
		scores[t] = dot(q, k + t * stride, d) / sqrtf((float)d);
		largest = fmaxf(largest, scores[t]);
	}
	memset(o, 0, d * sizeof(*o));
	for (uint32_t t = 0; t < n; t++) {
		const float weight = expf(scores[t] - largest);
		sum += weight;
		for (uint32_t j = 0; j < d; j++)
			o[j] += weight * v[t * stride + j];
	}
	for (uint32_t j = 0; j < d; j++)
		o[j] = (float)(o[j] / sum);
	free(scores);
}

static void run_row(struct plain_attention *self, uint32_t layer, struct plain_seq *seq, size_t row)
{
	const struct llama_config *c = &self->model->config;
	const struct rows_ops *ops = self->model->ops;
	const struct attention *a = &self->base;
	const enum work_dtype dtype = dtype_of_rows(a->dtype);
	const size_t bytes = work_dtype_bytes(dtype), kv = (size_t)c->n_kv_heads * c->head_dim;
	const size_t q = (size_t)c->n_q_heads * c->head_dim;
	const uint32_t n = seq->n_tokens[layer]++, group = c->n_q_heads / c->n_kv_heads;
	float *k = seq->k + (size_t)layer * seq->max_tokens * kv;
	float *v = seq->v + (size_t)layer * seq->max_tokens * kv;
	assert(n < seq->max_tokens);
	ops->widen(k + n * kv, (char *)a->k + row * kv * bytes, dtype, kv);
	ops->widen(v + n * kv, (char *)a->v + row * kv * bytes, dtype, kv);
	ops->widen(self->row, (char *)a->q + row * q * bytes, dtype, q);
	for (uint32_t h = 0; h < c->n_q_heads; h++) {
		const size_t head = (size_t)(h / group) * c->head_dim;
		attend(self->row + q + h * c->head_dim, self->row + h * c->head_dim, k + head,
		       v + head, n + 1, c);
	}
	ops->narrow((char *)a->o + row * q * bytes, dtype, self->row + q, q);
}

static int run(struct attention *base, uint32_t layer, const struct attention_part *parts,
	       uint32_t n_parts, struct fault *fault)
{
	struct plain_attention *self = (struct plain_attention *)base;
	size_t row = 0;
	(void)fault;
	for (uint32_t i = 0; i < n_parts; i++)
		for (uint32_t j = 0; j < parts[i].n_rows; j++)
			run_row(self, layer, parts[i].seq, row++);
	return 0;
}

void plain_attention_init(struct plain_attention *self, const struct llama *model,
			  enum coppice_dtype dtype, uint32_t max_rows)
{
	const struct llama_config *c = &model->config;
	const size_t kv = (size_t)c->n_kv_heads * c->head_dim,
		     q = (size_t)c->n_q_heads * c->head_dim;
	*self = (struct plain_attention){
		.base = {.dtype = dtype,
			 .max_rows = max_rows,
			 .q = zeroed(max_rows * q, 4),
			 .k = zeroed(max_rows * kv, 4),
			 .v = zeroed(max_rows * kv, 4),
			 .o = zeroed(max_rows * q, 4),
			 .run = run},
		.model = model,
		.row = zeroed(2 * q, sizeof(float)),
	};
}

void plain_attention_done(struct plain_attention *self)
{
	free(self->base.q);
	free(self->base.k);
	free(self->base.v);
	free(self->base.o);
	free(self->row);
}

void plain_seq_init(struct plain_seq *seq, const struct llama *model, uint32_t max_tokens)
{
	const struct llama_config *c = &model->config;
	const size_t n = (size_t)c->n_layers * max_tokens * c->n_kv_heads * c->head_dim;
	*seq = (struct plain_seq){.k = zeroed(n, sizeof(float)),
				  .v = zeroed(n, sizeof(float)),
				  .n_tokens = zeroed(c->n_layers, sizeof(uint32_t)),
				  .max_tokens = max_tokens};
}

void plain_seq_done(struct plain_seq *seq)
{
	free(seq->k);
	free(seq->v);
	free(seq->n_tokens);
}
