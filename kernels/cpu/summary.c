/* summary.c - see summary.h. */
#include "summary.h"

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
	uint64_t n = (n_tokens + BACKEND_SUMMARY_TOKENS - 1) / BACKEND_SUMMARY_TOKENS;
	size_t group_bytes = (size_t)s->shape.n_layers * s->shape.n_kv_heads * s->shape.head_dim *
			     work_dtype_bytes(s->shape.dtype);
	char *means;

	if (n <= s->n_groups)
		return 0;
	n += n / 2;
	means = realloc(s->means, n * group_bytes);
	if (!means)
		return -ENOMEM;
	memset(means + s->n_groups * group_bytes, 0, (n - s->n_groups) * group_bytes);
	s->means = means;
	s->n_groups = (uint32_t)n;
	return 0;
}

/* Rows [first, first + n) of a block, which are of one group. */
static void take_mean(struct backend_summary *s, const struct pool_pages *pages,
		      const struct vec *vec, const char *block, uint32_t first, uint32_t n,
		      void *ret)
{
	enum work_dtype dtype = s->shape.dtype;
	_Alignas(64) char key[DIM_MAX * 4];
	_Alignas(64) float sum[DIM_MAX] = {0}, one[DIM_MAX];

	for (uint32_t i = 0; i < n; i++) {
		pool_key(pages, &s->shape, block, first + i, key);
		vec->widen[dtype](one, key, s->shape.head_dim, 1);
		for (uint32_t d = 0; d < s->shape.head_dim; d++)
			sum[d] += one[d];
	}
	vec->narrow[dtype](ret, sum, s->shape.head_dim, 1 / (float)n);
}

static bool fits(const struct backend_summary *s, const struct pool_pages *pages,
		 const struct backend_span *span, uint64_t *ret_end)
{
	*ret_end = span->pos;
	for (uint32_t i = 0; i < span->n_slices; i++) {
		if (span->slices[i].page >= pages->n_pages ||
		    span->slices[i].first + span->slices[i].count > span->shape->page_tokens)
			return false;
		*ret_end += span->slices[i].count;
	}
	return span->layer < span->shape->n_layers && span->to_layer < s->shape.n_layers &&
	       *ret_end <= UINT32_MAX;
}

int summary_add(struct backend_summary *s, const struct pool_pages *pages, const struct vec *vec,
		const struct backend_span *span)
{
	uint32_t pos = span->pos;
	uint64_t end;

	if (!fits(s, pages, span, &end))
		return -EINVAL;
	if (reserve(s, end) != 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < span->n_slices; i++) {
		const struct work_slice *slice = &span->slices[i];
		for (uint32_t at = 0, n; at < slice->count; at += n, pos += n) {
			n = BACKEND_SUMMARY_TOKENS - pos % BACKEND_SUMMARY_TOKENS;
			n = n < slice->count - at ? n : slice->count - at;
			for (uint32_t head = 0; head < s->shape.n_kv_heads; head++)
				take_mean(s, pages, vec,
					  pool_block(pages, slice->page, span->layer, head),
					  slice->first + at, n,
					  summary_at(s, pos / BACKEND_SUMMARY_TOKENS,
						     span->to_layer, head));
		}
	}
	return 0;
}
