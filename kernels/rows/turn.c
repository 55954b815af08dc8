/*
 * turn.c - angles are computed in double, as an fp32 angle at position 8,192 is off by up to
 * 2.4e-4; the rest is fp32, and compiled for the machine's base line alone, so that K has the same
 * bits wherever it was computed.
 */
#include "turn.h"

#include <math.h>

void turn_set(const struct turn *turn, uint32_t position, float *ret)
{
	const uint32_t half = turn->n_turned / 2;

	for (uint32_t i = 0; i < half; i++) {
		const double angle = position * turn->inv_freq[i];

		ret[i] = (float)cos(angle) * turn->factor;
		ret[half + i] = (float)sin(angle) * turn->factor;
	}
}

void turn_heads(float *heads, uint32_t n_heads, uint32_t head_dim, const float *turns,
		uint32_t n_turned)
{
	const uint32_t half = n_turned / 2;
	const float *sines = turns + half;

	for (uint32_t h = 0; h < n_heads; h++, heads += head_dim)
		for (uint32_t i = 0; i < half; i++) {
			const float a = heads[i], b = heads[i + half];

			heads[i] = a * turns[i] - b * sines[i];
			heads[i + half] = b * turns[i] + a * sines[i];
		}
}
