/*
 * oracle.c - the definition of attention, written for eyes.
 *
 * Half of what tests compute is here and in program_oracle.c. What their time goes into is compiled
 * once more for processors that convert fp16, and sums over a row are taken in parts that lie side
 * by side in a vector.
 */
#include "oracle.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int oracle_kv_init(struct oracle_kv *kv, const struct work_shape *shape, uint32_t n_pages)
{
	size_t n = (size_t)n_pages * shape->page_tokens * shape->n_kv_heads * shape->head_dim;

	*kv = (struct oracle_kv){.shape = shape, .n_pages = n_pages};
	kv->k = malloc(n * sizeof(float));
	kv->v = malloc(n * sizeof(float));
	if (!kv->k || !kv->v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		kv->k[i] = kv->v[i] = NAN;
	return 0;
}

void oracle_kv_done(struct oracle_kv *kv)
{
	free(kv->k);
	free(kv->v);
	*kv = (struct oracle_kv){0};
}

size_t oracle_kv_row(const struct oracle_kv *kv, uint32_t page, uint32_t row)
{
	return ((size_t)page * kv->shape->page_tokens + row) * kv->shape->n_kv_heads *
	       kv->shape->head_dim;
}

#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define ORACLE_WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ORACLE_WIDE
#endif

#define PARTS 8u

ORACLE_WIDE double oracle_dot(const float *a, const float *b, size_t n)
{
	double parts[PARTS] = {0}, sum = 0;
	size_t i = 0;

	for (; i + PARTS <= n; i += PARTS)
		for (size_t j = 0; j < PARTS; j++)
			parts[j] += (double)a[i + j] * (double)b[i + j];
	for (; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	for (size_t j = 0; j < PARTS; j++)
		sum += parts[j];
	return sum;
}

#define ROWS 4u /* whose values of w are widened once for all of them */
#define LANES 4u

/* As vectors: the compiler keeps no array of sums in registers by itself. */
typedef float narrow __attribute__((vector_size(LANES * sizeof(float))));
typedef double wide __attribute__((vector_size(LANES * sizeof(double))));

static inline __attribute__((always_inline)) void multiply_rows(const struct oracle_product *p,
								uint32_t row, uint32_t o,
								uint32_t n_rows)
{
	const double *x = p->x + (size_t)row * p->n_in;
	const float *w = p->w + (size_t)o * p->n_in;
	double *y = p->y + row * p->y_stride + o;
	wide parts[ROWS] = {{0}}, of_x, widened;
	uint32_t i = 0;
	narrow of_w;

	for (; i + LANES <= p->n_in; i += LANES) {
		memcpy(&of_w, w + i, sizeof(of_w));
		widened = __builtin_convertvector(of_w, wide);
		for (uint32_t r = 0; r < n_rows; r++) {
			memcpy(&of_x, x + (size_t)r * p->n_in + i, sizeof(of_x));
			parts[r] += of_x * widened;
		}
	}
	for (; i < p->n_in; i++)
		for (uint32_t r = 0; r < n_rows; r++)
			parts[r][0] += x[(size_t)r * p->n_in + i] * (double)w[i];
	for (uint32_t r = 0; r < n_rows; r++)
		y[r * p->y_stride] += parts[r][0] + parts[r][1] + parts[r][2] + parts[r][3];
}

ORACLE_WIDE void oracle_multiply(const struct oracle_product *p)
{
	uint32_t row = 0;

	for (; row + ROWS <= p->n_rows; row += ROWS)
		for (uint32_t o = 0; o < p->n_out; o++)
			multiply_rows(p, row, o, ROWS);
	for (; row < p->n_rows; row++)
		for (uint32_t o = 0; o < p->n_out; o++)
			multiply_rows(p, row, o, 1);
}

static bool in_draft_path(const struct work_query *query, uint32_t token, uint32_t draft)
{
	while (token != WORK_NONE && token != draft)
		token = query->parents[token];
	return token == draft;
}

static bool sees(const struct work_tree *tree, const struct work_query *query, uint32_t token,
		 uint32_t node, uint32_t pos)
{
	const struct work_node *own = &tree->nodes[query->node];
	uint32_t draft_pos = own->pos + own->n_tokens - query->n_rows - query->n_before;

	if (query->lows && pos < query->lows[token])
		return false;
	if (query->parents && node == query->node && pos >= draft_pos)
		return in_draft_path(query, query->n_before + token, pos - draft_pos);
	return pos <= query->pos + token;
}

struct sums {
	const struct oracle_kv *kv;
	const float *q; /* of one head */
	uint32_t head; /* KV head */
	double max, sum;
	double *o;
};

static void add_key(struct sums *s, uint32_t page, uint32_t row)
{
	uint32_t dim = s->kv->shape->head_dim;
	size_t at = oracle_kv_row(s->kv, page, row) + (size_t)s->head * dim;
	double score = oracle_dot(s->q, s->kv->k + at, dim) * s->kv->shape->scale, old, weight;

	if (s->kv->cap > 0)
		score = s->kv->cap * tanh(score / s->kv->cap);
	old = score > s->max ? exp(s->max - score) : 1;
	s->max = score > s->max ? score : s->max;
	weight = score == -INFINITY ? 0 : exp(score - s->max);
	s->sum = s->sum * old + weight;
	for (uint32_t d = 0; d < dim; d++)
		s->o[d] = s->o[d] * old + weight * s->kv->v[at + d];
}

static void add_sink(struct sums *s, double sink)
{
	double max = fmax(s->max, sink), old = exp(s->max - max);

	s->sum = s->sum * old + exp(sink - max);
	for (uint32_t d = 0; d < s->kv->shape->head_dim; d++)
		s->o[d] *= old;
	s->max = max;
}

static void add_node(struct sums *s, const struct work_tree *tree, const struct work_query *query,
		     uint32_t token, uint32_t node)
{
	const struct work_node *n = &tree->nodes[node];
	uint32_t pos = n->pos;

	for (uint32_t i = 0; i < n->n_slices; i++) {
		const struct work_slice *slice = &tree->slices[n->slice + i];

		for (uint32_t j = 0; j < slice->count; j++, pos++) {
			if (sees(tree, query, token, node, pos))
				add_key(s, slice->page, slice->first + j);
		}
	}
}

void oracle_row(const struct oracle_kv *kv, const struct work_tree *tree, uint32_t query,
		uint32_t token, const float *q, double *ret_o, double *ret_lse)
{
	const struct work_query *at = &tree->queries[query];
	uint32_t dim = kv->shape->head_dim;

	for (uint32_t head = 0; head < kv->shape->n_q_heads; head++) {
		struct sums s = {
			.kv = kv,
			.q = q + (size_t)head * dim,
			.head = head / (kv->shape->n_q_heads / kv->shape->n_kv_heads),
			.max = -INFINITY,
			.o = ret_o + (size_t)head * dim,
		};

		memset(s.o, 0, dim * sizeof(*s.o));
		for (uint32_t node = at->node; node != WORK_NONE; node = tree->nodes[node].parent)
			add_node(&s, tree, at, token, node);
		if (kv->sinks)
			add_sink(&s, kv->sinks[head]);
		for (uint32_t d = 0; d < dim && s.sum > 0; d++)
			s.o[d] /= s.sum;
		ret_lse[head] = s.max + log(s.sum);
	}
}

static uint16_t encode_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

ORACLE_WIDE void oracle_encode(enum work_dtype dtype, void *to, const float *from, size_t n)
{
	if (dtype == WORK_FP32)
		memcpy(to, from, n * sizeof(float));
	for (size_t i = 0; i < n && dtype == WORK_FP16; i++)
		((_Float16 *)to)[i] = (_Float16)from[i];
	for (size_t i = 0; i < n && dtype == WORK_BF16; i++)
		((uint16_t *)to)[i] = encode_bf16(from[i]);
}

ORACLE_WIDE void oracle_decode(enum work_dtype dtype, float *to, const void *from, size_t n)
{
	if (dtype == WORK_FP32)
		memcpy(to, from, n * sizeof(float));
	for (size_t i = 0; i < n && dtype == WORK_FP16; i++)
		to[i] = (float)((const _Float16 *)from)[i];
	for (size_t i = 0; i < n && dtype == WORK_BF16; i++) {
		uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;

		memcpy(&to[i], &bits, sizeof(bits));
	}
}

static uint64_t next(struct oracle_random *random)
{
	random->state ^= random->state >> 12;
	random->state ^= random->state << 25;
	random->state ^= random->state >> 27;
	return random->state * UINT64_C(2685821657736338717);
}

uint32_t oracle_below(struct oracle_random *random, uint32_t n)
{
	return (uint32_t)((next(random) >> 32) * n >> 32);
}

float oracle_normal(struct oracle_random *random)
{
	uint64_t bits = next(random), more = next(random);
	double sum = 0;

	/* the sum of 12 uniform values of 10 bits, of variance 1/12 each */
	for (int i = 0; i < 6; i++)
		sum += (double)(bits >> 10 * i & 1023) + (double)(more >> 10 * i & 1023);
	return (float)(sum / 1024 - 6 + 6.0 / 1024);
}

struct oracle_random oracle_seed(const char *name)
{
	const char *env = getenv("COPPICE_SEED");
	struct timespec now;
	uint64_t seed;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = env ? strtoull(env, NULL, 0)
		   : (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec;
	printf("%s: COPPICE_SEED=%llu\n", name, (unsigned long long)seed);
	fflush(stdout);
	return (struct oracle_random){(seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1};
}
