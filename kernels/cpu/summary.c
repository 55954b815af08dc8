/*
 * summary.c - mean keys of paths; see summary.h. Means that nobody has added are 0, and stay so
 * where a summary grows. Sums are in float, whatever the type of the keys.
 */
#include "summary.h"
#include "kernels/slices.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIM_MAX 256u

int summary_new(const struct work_shape *shape, struct backend_summary **ret)
{
	struct backend_summary *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->shape = *shape;
	*ret = s;
	return 0;
}

void summary_free(struct backend_summary *s)
{
	if (!s)
		return;
	free(s->means);
	free(s);
}

static int reserve(struct backend_summary *s, uint64_t n_tokens)
{
	uint64_t n = ceil_div_u64(n_tokens, BACKEND_SUMMARY_TOKENS);
	size_t mean_bytes = (size_t)s->shape.n_layers * s->shape.n_kv_heads * s->shape.head_dim *
			    work_dtype_bytes(s->shape.dtype);
	char *means;

	if (n <= s->n_means)
		return 0;
	n += n / 2;
	means = realloc(s->means, n * mean_bytes);
	if (!means)
		return -ENOMEM;
	memset(means + s->n_means * mean_bytes, 0, (n - s->n_means) * mean_bytes);
	s->means = means;
	s->n_means = (uint32_t)n;
	return 0;
}

/* Keys on their way from a span's pages to its summary. */
struct adding {
	struct backend_summary *s;
	const struct pool_pages *pages;
	const struct vec *vec;
	const struct backend_span *span;
};

/* The part's rows of a head block. */
static void take_mean(const struct adding *a, const struct slices_part *part, uint32_t head)
{
	const struct work_shape *shape = &a->s->shape;
	const char *block = pool_block(a->pages, part->page, a->span->layer, head);
	_Alignas(64) char key[DIM_MAX * 4];
	_Alignas(64) float sum[DIM_MAX] = {0}, one[DIM_MAX];

	for (uint32_t i = 0; i < part->n; i++) {
		pool_key(a->pages, shape, block, part->row + i, key);
		a->vec->widen[shape->dtype](one, key, shape->head_dim, 1);
		for (uint32_t d = 0; d < shape->head_dim; d++)
			sum[d] += one[d];
	}
	a->vec->narrow[shape->dtype](summary_at(a->s, part->index, a->span->to_layer, head), sum,
				     shape->head_dim, 1 / (float)part->n);
}

int summary_add(struct backend_summary *s, const struct pool_pages *pages, const struct vec *vec,
		const struct backend_span *span)
{
	const struct adding adding = {s, pages, vec, span};
	struct slices_walk walk = {.span = span};
	struct slices_part part;
	uint64_t end;

	if (!slices_fit_span(span, pages->n_pages, s->shape.n_layers, &end))
		return -EINVAL;
	if (reserve(s, end) != 0)
		return -ENOMEM;
	while (slices_next(&walk, &part)) {
		for (uint32_t head = 0; head < s->shape.n_kv_heads; head++)
			take_mean(&adding, &part, head);
	}
	return 0;
}
