/*
 * rope.h - heads turned by position (RoPE): element i goes with element i + n_turned / 2, and what
 * is behind n_turned stays as it is. The same bits on every instruction set. Used by backends and
 * by coppice-agent, as rows.h is.
 */
#ifndef COPPICE_ROWS_ROPE_H
#define COPPICE_ROWS_ROPE_H

#include <stdint.h>

struct rope_angles {
	const double *inv_freq; /* [n_turned / 2], radians a position */
	uint32_t n_turned;
	float factor; /* of both cosine and sine */
};

/* Of one position: [n_turned / 2] cosines, then as many sines. */
void rope_set(const struct rope_angles *angles, uint32_t position, float *ret);
/* Turns n_heads heads of head_dim in place, by what rope_set made. */
void rope_turn_heads(float *heads, uint32_t n_heads, uint32_t head_dim, const float *rotations,
		     uint32_t n_turned);

#endif
