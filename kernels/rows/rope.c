/*
 * rope.c - angles are computed in double, as an fp32 angle at position 8,192 is off by up to
 * 2.4e-4; the rest is fp32, and compiled for the machine's base line alone, so that K has the same
 * bits wherever it was computed.
 */
#include "rope.h"

#include <math.h>

void rope_set(const struct rope_angles *angles, uint32_t position, float *ret)
{
	const uint32_t half = angles->n_turned / 2;

	for (uint32_t i = 0; i < half; i++) {
		const double angle = position * angles->inv_freq[i];

		ret[i] = (float)cos(angle) * angles->factor;
		ret[half + i] = (float)sin(angle) * angles->factor;
	}
}

void rope_turn_heads(float *heads, uint32_t n_heads, uint32_t head_dim, const float *rotations,
		     uint32_t n_turned)
{
	const uint32_t half = n_turned / 2;
	const float *sines = rotations + half;

	for (uint32_t h = 0; h < n_heads; h++, heads += head_dim)
		for (uint32_t i = 0; i < half; i++) {
			const float a = heads[i], b = heads[i + half];

			heads[i] = a * rotations[i] - b * sines[i];
			heads[i + half] = b * rotations[i] + a * sines[i];
		}
}
