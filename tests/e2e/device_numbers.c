/*
 * device_numbers.c - a client's numbers: what a token's Q, K and V are, and in double precision
 * what O they must come to.
 *
 * A number depends on its layer, token and place alone. K and V are kept as fp16 has them, in a
 * type that a CPU computes with. No sanitizer looks on here, so nothing that others share is
 * touched: who calls copies it in and out.
 */
#include "device_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Mapped: a sanitizer that looks for leaks reads all globals of a program at its end, and most
 * roles of device_test draw few numbers or none. */
static struct {
	float k[LAYERS][TOKENS_MAX][KV_ROW], v[LAYERS][TOKENS_MAX][KV_ROW];
} * all;

__attribute__((constructor)) static void map_all(void)
{
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		abort();
}

static _Float16 draw(uint32_t layer, uint32_t pos, char what, uint32_t i)
{
	uint64_t x = ((uint64_t)layer << 40) + ((uint64_t)pos << 20) + ((uint64_t)what << 52) + i;

	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return (_Float16)((double)(x >> 40) / (1 << 23) - 1.0);
}

void numbers_draw(uint32_t layer, uint32_t pos, struct numbers *ret)
{
	for (uint32_t i = 0; i < Q_ROW; i++)
		ret->q[i] = draw(layer, pos, 'q', i);
	for (uint32_t i = 0; i < KV_ROW; i++) {
		ret->k[i] = draw(layer, pos, 'k', i);
		ret->v[i] = draw(layer, pos, 'v', i);
		all->k[layer][pos][i] = (float)ret->k[i];
		all->v[layer][pos][i] = (float)ret->v[i];
	}
}

static void attend(uint32_t layer, uint32_t pos, uint32_t head, const _Float16 *q, double *o)
{
	uint32_t kv = head / (Q_HEADS / KV_HEADS) * DIM;
	double wide_q[DIM], weights[TOKENS_MAX], most = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < DIM; i++)
		wide_q[i] = (double)q[i];
	for (uint32_t j = 0; j <= pos; j++) {
		double score = 0;

		for (uint32_t i = 0; i < DIM; i++)
			score += wide_q[i] * (double)all->k[layer][j][kv + i];
		weights[j] = score / sqrt(DIM);
		most = fmax(most, weights[j]);
	}
	memset(o, 0, DIM * sizeof(*o));
	for (uint32_t j = 0; j <= pos; j++) {
		double weight = exp(weights[j] - most);

		sum += weight;
		for (uint32_t i = 0; i < DIM; i++)
			o[i] += weight * (double)all->v[layer][j][kv + i];
	}
	for (uint32_t i = 0; i < DIM; i++)
		o[i] /= sum;
}

double numbers_error(uint32_t layer, uint32_t pos, const _Float16 *q, const _Float16 *o)
{
	double wrong = 0, right = 0;

	for (uint32_t head = 0; head < Q_HEADS; head++) {
		double want[DIM];

		attend(layer, pos, head, &q[head * DIM], want);
		for (uint32_t i = 0; i < DIM; i++) {
			double d = (double)o[head * DIM + i] - want[i];

			wrong += d * d;
			right += want[i] * want[i];
		}
	}
	return sqrt(wrong / right);
}
