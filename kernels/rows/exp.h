/*
 * exp.h - exp in fp32 that compilers make vectors of.
 */
#ifndef COPPICE_ROWS_EXP_H
#define COPPICE_ROWS_EXP_H

#include "lanes.h"

/* exp(x) to about 2 units in the last place: 2^k times the Taylor series of exp on [-ln 2 / 2, ln 2
 * / 2] (its first omitted term is under 6e-9). x is cut to where 2^k is a normal number;
 * what is none counts as the least. */
ALWAYS_INLINE float exp_series(float x)
{
	x = x > -87.0f ? x : -87.0f;
	x = x < 88.0f ? x : 88.0f;
	const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
	const float k = (x * 1.44269504f + rounder) - rounder;
	const float r = (x - k * 0.693145752f) - k * 1.42860677e-6f;
	float s = 1.0f / 5040;
	s = s * r + 1.0f / 720;
	s = s * r + 1.0f / 120;
	s = s * r + 1.0f / 24;
	s = s * r + 1.0f / 6;
	s = s * r + 0.5f;
	s = s * r + 1.0f;
	s = s * r + 1.0f;
	const uint32_t bits = (uint32_t)((int32_t)k + 127) << 23;
	float power;
	memcpy(&power, &bits, sizeof(power));
	return s * power;
}

#endif
