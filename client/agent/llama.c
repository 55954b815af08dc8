/*
 * llama.c - the forward pass: layer by layer, all rows of a batch at once.
 *
 * Q, K and V of a row lie behind each other in `wide` until they have been turned by position; then
 * they go to the attention's memory in its dtype. The rows of a product are computed each as if
 * they were alone (kernels/rows/rows.h), so a batch is as good as its rows one by one.
 */
#include "llama.h"
#include "dtype.h"
#include "kernels/rows/rope.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t q_width(const struct llama_config *c)
{
	return (size_t)c->n_q_heads * c->head_dim;
}

static size_t kv_width(const struct llama_config *c)
{
	return (size_t)c->n_kv_heads * c->head_dim;
}

/* Room for a row of Q, K and V, of gate and up, or of O. */
static size_t wide_width(const struct llama_config *c)
{
	size_t qkv = q_width(c) + 2 * kv_width(c), mlp = 2 * (size_t)c->intermediate;
	return max_u64(qkv, mlp);
}

uint64_t llama_kv_bytes_per_token(const struct llama *model, enum coppice_dtype dtype)
{
	return 2 * kv_width(&model->config) * model->config.n_layers * dtype_bytes(dtype);
}

static uint64_t matrix_bytes(const struct rows_matrix *m)
{
	return (uint64_t)m->n_out * m->n_in * work_dtype_bytes(m->dtype);
}

uint64_t llama_pass_bytes(const struct llama *model)
{
	uint64_t bytes = matrix_bytes(&model->head);
	for (uint32_t i = 0; i < model->config.n_layers; i++) {
		const struct llama_layer *l = &model->layers[i];
		const struct rows_matrix *all[] = {&l->q,    &l->k,  &l->v,   &l->o,
						   &l->gate, &l->up, &l->down};
		for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++)
			bytes += matrix_bytes(all[k]);
	}
	return bytes;
}

int llama_pass_init(struct llama_pass *pass, const struct llama *model, struct attention *attention,
		    struct fault *fault)
{
	const struct llama_config *c = &model->config;
	const size_t rows = attention->max_rows;
	*pass = (struct llama_pass){
		.model = model,
		.attention = attention,
		.x = calloc(rows * c->hidden, sizeof(float)),
		.h = calloc(rows * c->hidden, sizeof(float)),
		.wide = calloc(rows * wide_width(c), sizeof(float)),
		.rotations = calloc(rows * c->head_dim, sizeof(float)),
	};
	if (pass->x && pass->h && pass->wide && pass->rotations)
		return 0;
	llama_pass_done(pass);
	return fault_set(fault, -ENOMEM, "out of memory for %zu rows", rows);
}

void llama_pass_done(struct llama_pass *pass)
{
	free(pass->x);
	free(pass->h);
	free(pass->wide);
	free(pass->rotations);
	*pass = (struct llama_pass){0};
}

/* Rows of a matrix, stride elements apart. */
struct rows {
	float *at;
	size_t stride;
};

/* out = in w'. */
static void product(const struct llama_pass *pass, struct rows in, const struct rows_matrix *w,
		    struct rows out, uint32_t n_rows)
{
	pass->model->ops->matmul(&(struct rows_product){.x = in.at,
							.x_stride = in.stride,
							.w = w,
							.y = out.at,
							.y_stride = out.stride,
							.n_rows = n_rows});
}

/* x += in w'. */
static void product_into_x(struct llama_pass *pass, struct rows in, const struct rows_matrix *w,
			   uint32_t n_rows)
{
	const uint32_t hidden = pass->model->config.hidden;
	pass->model->ops->matmul(&(struct rows_product){.x = in.at,
							.x_stride = in.stride,
							.w = w,
							.y = pass->x,
							.y_stride = hidden,
							.n_rows = n_rows,
							.add = true});
}

static void embed(struct llama_pass *pass, const struct llama_batch *batch)
{
	const struct rows_matrix *w = &pass->model->embed;
	const size_t row_bytes = w->n_in * work_dtype_bytes(w->dtype);
	for (uint32_t i = 0; i < batch->n_rows; i++) {
		assert(batch->ids[i] < w->n_out);
		pass->model->ops->widen(pass->x + i * (size_t)w->n_in,
					(const char *)w->data + batch->ids[i] * row_bytes, w->dtype,
					w->n_in);
	}
}

static void rotations_set(struct llama_pass *pass, const struct llama_batch *batch)
{
	const struct llama *model = pass->model;
	const uint32_t dim = model->config.head_dim;
	const struct rope_angles angles = {model->inv_freq, dim, 1};
	for (uint32_t i = 0; i < batch->n_rows; i++)
		rope_set(&angles, batch->positions[i], pass->rotations + (size_t)i * dim);
}

static void norm_rows(struct llama_pass *pass, const float *weight, uint32_t n_rows)
{
	const struct llama_config *c = &pass->model->config;
	for (size_t i = 0; i < n_rows; i++)
		pass->model->ops->rmsnorm(pass->h + i * c->hidden, pass->x + i * c->hidden, weight,
					  c->hidden, c->norm_eps);
}

/* One row of fused Q, K, V to where the attention wants it. */
static void hand_over(struct llama_pass *pass, size_t row, float *qkv)
{
	const struct llama_config *c = &pass->model->config;
	const struct rows_ops *ops = pass->model->ops;
	struct attention *a = pass->attention;
	const enum work_dtype dtype = dtype_of_rows(a->dtype);
	const size_t q = q_width(c), kv = kv_width(c), bytes = work_dtype_bytes(dtype);
	const float *cosines = pass->rotations + row * c->head_dim;
	rope_turn_heads(qkv, c->n_q_heads + c->n_kv_heads, c->head_dim, cosines, c->head_dim);
	ops->narrow((char *)a->q + row * q * bytes, dtype, qkv, q);
	ops->narrow((char *)a->k + row * kv * bytes, dtype, qkv + q, kv);
	ops->narrow((char *)a->v + row * kv * bytes, dtype, qkv + q + kv, kv);
}

static int attend(struct llama_pass *pass, uint32_t layer, const struct llama_batch *batch,
		  struct fault *fault)
{
	const struct llama_config *c = &pass->model->config;
	const struct llama_layer *w = &pass->model->layers[layer];
	struct attention *a = pass->attention;
	const size_t q = q_width(c), kv = kv_width(c), stride = q + 2 * kv;
	const struct rows h = {pass->h, c->hidden};
	float *wide = pass->wide;
	norm_rows(pass, w->attn_norm, batch->n_rows);
	product(pass, h, &w->q, (struct rows){wide, stride}, batch->n_rows);
	product(pass, h, &w->k, (struct rows){wide + q, stride}, batch->n_rows);
	product(pass, h, &w->v, (struct rows){wide + q + kv, stride}, batch->n_rows);
	for (size_t i = 0; i < batch->n_rows; i++)
		hand_over(pass, i, wide + i * stride);
	int r = a->run(a, layer, batch->parts, batch->n_parts, fault);
	if (r < 0)
		return r;
	pass->model->ops->widen(wide, a->o, dtype_of_rows(a->dtype), batch->n_rows * q);
	product_into_x(pass, (struct rows){wide, q}, &w->o, batch->n_rows);
	return 0;
}

static void feed_forward(struct llama_pass *pass, uint32_t layer, uint32_t n_rows)
{
	const struct llama_config *c = &pass->model->config;
	const struct llama_layer *w = &pass->model->layers[layer];
	const size_t stride = 2 * (size_t)c->intermediate;
	const struct rows h = {pass->h, c->hidden}, gate = {pass->wide, stride};
	const struct rows up = {pass->wide + c->intermediate, stride};
	norm_rows(pass, w->mlp_norm, n_rows);
	product(pass, h, &w->gate, gate, n_rows);
	product(pass, h, &w->up, up, n_rows);
	for (size_t i = 0; i < n_rows; i++)
		pass->model->ops->gate(ROWS_SILU, gate.at + i * stride, up.at + i * stride,
				       c->intermediate);
	product_into_x(pass, gate, &w->down, n_rows);
}

static void head(struct llama_pass *pass, const struct llama_batch *batch, float *logits)
{
	const struct llama_config *c = &pass->model->config;
	for (size_t i = 0; i < batch->n_wanted; i++)
		pass->model->ops->rmsnorm(pass->h + i * c->hidden,
					  pass->x + (size_t)batch->wanted[i] * c->hidden,
					  pass->model->norm, c->hidden, c->norm_eps);
	product(pass, (struct rows){pass->h, c->hidden}, &pass->model->head,
		(struct rows){logits, c->n_vocab}, batch->n_wanted);
}

int llama_forward(struct llama_pass *pass, const struct llama_batch *batch, float *logits,
		  struct fault *fault)
{
	assert(batch->n_rows && batch->n_rows <= pass->attention->max_rows);
	embed(pass, batch);
	rotations_set(pass, batch);
	for (uint32_t layer = 0; layer < pass->model->config.n_layers; layer++) {
		int r = attend(pass, layer, batch, fault);
		if (r < 0)
			return r;
		feed_forward(pass, layer, batch->n_rows);
	}
	head(pass, batch, logits);
	return 0;
}
