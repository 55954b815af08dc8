/*
 * decode_layers.h - processes that compute their layers themselves, beside programs: what they wait
 * for attention of a layer.
 */
#ifndef COPPICE_BENCH_DECODE_LAYERS_H
#define COPPICE_BENCH_DECODE_LAYERS_H

#include "decode_client.h"

#define DECODE_LAYER_US 2500.0 /* that it is to take at most */

struct decode_layers {
	uint32_t n; /* layers */
	double p50_us, p99_us, p999_us, most_us;
	double late_part; /* of them that were waited for longer than DECODE_LAYER_US */
};

/* Starts them, o->n_layered, waits until each has had o->n_tokens, three quarters of which count,
 * and ends them. */
void decode_layers_run(const struct decode_options *o, struct decode_layers *ret);
void decode_layers_print(const struct decode_layers *l, const char *name, const char *which);

#endif
