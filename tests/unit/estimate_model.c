/* estimate_model.c - see estimate_model.h: sums in the order of the definition, nothing shared. */
#include "estimate_model.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct estimate {
	const struct estimate_shape *shape;
	const struct estimate_input *input;
	uint32_t n_rows, n_columns; /* of squares */
	uint32_t n_q_blocks, n_k_blocks;
	double *scores; /* owned, [n_columns] */
};

static const float *query_at(const struct estimate *e, uint32_t token, uint32_t head)
{
	const struct estimate_shape *s = e->shape;

	return e->input->q + ((size_t)token * s->n_q_heads + head) * s->head_dim;
}

static const float *key_at(const struct estimate *e, const float *keys, uint32_t token,
			   uint32_t head)
{
	const struct estimate_shape *s = e->shape;

	return keys + ((size_t)token * s->n_kv_heads + head) * s->head_dim;
}

#define DOT_SUMS 8u /* side by side, so that vectors can have them */

static double dot(const float *a, const float *b, uint32_t n)
{
	double sums[DOT_SUMS] = {0}, sum = 0;
	uint32_t i = 0;

	for (; i + DOT_SUMS <= n; i += DOT_SUMS)
		for (uint32_t j = 0; j < DOT_SUMS; j++)
			sums[j] += (double)a[i + j] * (double)b[i + j];
	for (; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	for (uint32_t j = 0; j < DOT_SUMS; j++)
		sum += sums[j];
	return sum;
}

/* Sum over the antidiagonal of square (row, column). */
static double antidiagonal(const struct estimate *e, uint32_t row, uint32_t column, uint32_t head,
			   uint32_t kv_head)
{
	uint32_t stride = e->shape->stride;
	double sum = 0;

	for (uint32_t i = 0; i < stride; i++) {
		uint32_t query = row * stride + stride - 1 - i, key = column * stride + i;
		if (query < e->input->n_q && key < e->input->n_k)
			sum += dot(query_at(e, query, head), key_at(e, e->input->k, key, kv_head),
				   e->shape->head_dim);
	}
	return sum;
}

/* Sum over the row's queries of their products with the square's mean key. */
static double with_mean(const struct estimate *e, uint32_t row, uint32_t column, uint32_t head,
			uint32_t kv_head)
{
	uint32_t stride = e->shape->stride;
	double sum = 0;

	for (uint32_t i = 0; i < stride; i++) {
		uint32_t query = row * stride + i;
		if (query < e->input->n_q)
			sum += dot(query_at(e, query, head),
				   key_at(e, e->input->means, column, kv_head), e->shape->head_dim);
	}
	return sum;
}

/* Squares of the row that are seen. */
static uint32_t n_seen(const struct estimate *e, uint32_t row)
{
	uint32_t stride = e->shape->stride;
	uint32_t n = e->input->q_pos / stride + row + 1;

	return n < e->n_columns ? n : e->n_columns;
}

/* Softmax over the seen squares of one row and head, added to blocks. */
static void add_row(const struct estimate *e, uint32_t row, uint32_t head, double *ret_blocks)
{
	const struct estimate_shape *s = e->shape;
	uint32_t kv_head = head / (s->n_q_heads / s->n_kv_heads), n = n_seen(e, row);
	double max = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		double score = e->input->k ? antidiagonal(e, row, i, head, kv_head)
					   : with_mean(e, row, i, head, kv_head);
		e->scores[i] = score * s->scale / s->stride;
		max = e->scores[i] > max ? e->scores[i] : max;
	}
	for (uint32_t i = 0; i < n; i++) {
		e->scores[i] = exp(e->scores[i] - max);
		sum += e->scores[i];
	}
	for (uint32_t i = 0; i < n; i++)
		ret_blocks[i / (s->block_tokens / s->stride)] += e->scores[i] / sum;
}

static bool input_ok(const struct estimate_shape *s, const struct estimate_input *in)
{
	return s->n_kv_heads > 0 && s->n_q_heads > 0 && s->n_q_heads % s->n_kv_heads == 0 &&
	       s->head_dim > 0 && s->stride > 0 && s->block_tokens > 0 &&
	       s->block_tokens % s->stride == 0 && in->q_pos % s->stride == 0 && in->n_q > 0 &&
	       in->n_k > 0 && (in->k || in->means);
}

int estimate_blocks(const struct estimate_shape *shape, const struct estimate_input *input,
		    double *ret_mass)
{
	struct estimate e = {.shape = shape, .input = input};

	if (!input_ok(shape, input))
		return -EINVAL;
	e.n_rows = estimate_n_blocks(input->n_q, shape->stride);
	e.n_columns = estimate_n_blocks(input->n_k, shape->stride);
	e.n_q_blocks = estimate_n_blocks(input->n_q, shape->block_tokens);
	e.n_k_blocks = estimate_n_blocks(input->n_k, shape->block_tokens);
	e.scores = malloc(e.n_columns * sizeof(*e.scores));
	if (!e.scores)
		return -ENOMEM;
	size_t n = (size_t)shape->n_kv_heads * e.n_q_blocks * e.n_k_blocks;
	memset(ret_mass, 0, n * sizeof(*ret_mass));
	for (uint32_t head = 0; head < shape->n_q_heads; head++) {
		uint32_t kv_head = head / (shape->n_q_heads / shape->n_kv_heads);
		for (uint32_t row = 0; row < e.n_rows; row++) {
			size_t block = (size_t)kv_head * e.n_q_blocks +
				       row / (shape->block_tokens / shape->stride);
			add_row(&e, row, head, ret_mass + block * e.n_k_blocks);
		}
	}
	free(e.scores);
	return 0;
}

void estimate_sum(const double *mass, uint32_t n_heads, uint32_t n_rows, uint32_t n_columns,
		  uint32_t ratio, double *ret_mass)
{
	size_t rows = estimate_n_blocks(n_rows, ratio),
	       columns = estimate_n_blocks(n_columns, ratio);

	memset(ret_mass, 0, n_heads * rows * columns * sizeof(*ret_mass));
	for (size_t head = 0; head < n_heads; head++)
		for (size_t row = 0; row < n_rows; row++)
			for (size_t column = 0; column < n_columns; column++)
				ret_mass[(head * rows + row / ratio) * columns + column / ratio] +=
					mass[(head * n_rows + row) * n_columns + column];
}

void estimate_means(const struct estimate_shape *shape, const float *k, uint32_t n_k,
		    float *ret_means)
{
	size_t n_values = (size_t)shape->n_kv_heads * shape->head_dim;
	uint32_t n = estimate_n_blocks(n_k, shape->stride);

	for (uint32_t square = 0; square < n; square++)
		for (size_t value = 0; value < n_values; value++) {
			double sum = 0;
			for (uint32_t i = 0; i < shape->stride; i++) {
				size_t token = (size_t)square * shape->stride + i;
				sum += token < n_k ? (double)k[token * n_values + value] : 0;
			}
			ret_means[square * n_values + value] = (float)(sum / shape->stride);
		}
}
