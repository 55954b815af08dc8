/* device_numbers.h - what a token's Q, K and V are, and how far O is from what they come to. */
#ifndef COPPICE_DEVICE_NUMBERS_H
#define COPPICE_DEVICE_NUMBERS_H

#include <stdint.h>

#define LAYERS 8u
#define Q_HEADS 4u
#define KV_HEADS 2u
#define DIM 64u
#define Q_ROW (Q_HEADS * DIM)
#define KV_ROW (KV_HEADS * DIM)
#define TOKENS_MAX 1100u

struct numbers {
	_Float16 q[Q_ROW], k[KV_ROW], v[KV_ROW];
};

/* A token's, which those behind it attend to from now on. */
void numbers_draw(uint32_t layer, uint32_t pos, struct numbers *ret);
/* The distance of the token's O from double precision's, as a part of that. */
double numbers_error(uint32_t layer, uint32_t pos, const _Float16 *q, const _Float16 *o);

#endif
