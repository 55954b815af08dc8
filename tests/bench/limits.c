/*
 * limits.c - the card's curve, of the fastest of three bare kernels at each size, and what lies
 * between its points.
 */
#include "limits.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"

#include <math.h>
#include <stdio.h>

#define POOL_BYTES (UINT64_C(64) << 20) /* at least, so that it is no L2's size */
#define FLUSH_BYTES (UINT64_C(256) << 20)
#define MIB 1048576.0

/* Each is the fastest at some size. */
static const struct cuda_stream_tiles ways[] = {
	{.tile_bytes = 16384, .ring_bytes = 128 << 10, .blocks = 1},
	{.tile_bytes = 32768, .ring_bytes = 192 << 10, .blocks = 1},
	{.tile_bytes = 16384, .ring_bytes = 96 << 10, .blocks = 2},
};

/* Of which each tile is read once; a larger one would be read slower, as more of it is open at a
 * time. */
static uint64_t pool_of(uint64_t bytes)
{
	uint64_t pool = POOL_BYTES;

	while (pool < bytes)
		pool *= 2;
	return pool;
}

static double median_us(cuda_stream stream, const struct cuda_stream_tiles *way, uint64_t bytes)
{
	float us[BENCH_REPS_MAX];
	double sorted[BENCH_REPS_MAX];
	struct cuda_stream_tiles tiles = *way;
	uint32_t n = bench_reps(21);

	tiles.pool_bytes = pool_of(bytes);
	if (stream(&tiles, FLUSH_BYTES, bytes, n, us) != 0)
		return INFINITY;
	for (uint32_t i = 0; i < n; i++)
		sorted[i] = us[i];
	return bench_median(sorted, n);
}

static double best_us(cuda_stream stream, uint64_t bytes)
{
	double best = INFINITY;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		best = fmin(best, median_us(stream, &ways[i], bytes));
	return best;
}

int limits_init(struct limits *l, cuda_stream stream, double tflops)
{
	static const uint32_t mib[LIMITS_POINTS] = {0, 8, 32, 128, 512, 1024, 2048, 4096};

	l->tflops = tflops;
	for (uint32_t i = 0; i < LIMITS_POINTS; i++) {
		uint64_t bytes = (uint64_t)mib[i] << 20;
		char name[32];

		l->bytes[i] = mib[i] * MIB;
		l->us[i] = best_us(stream, bytes);
		if (!isfinite(l->us[i]))
			return -1;
		snprintf(name, sizeof(name), "stream_%u_MiB", mib[i]);
		bench_print("attention", i ? name : "empty_graph", "time", l->us[i], "us");
		if (i)
			bench_print("attention", name, "rate", l->bytes[i] / l->us[i] * 1e-6,
				    "TB/s");
	}
	return 0;
}

double limits_us(const struct limits *l, double bytes, double flops)
{
	uint32_t i = 1;

	while (i < LIMITS_POINTS - 1 && l->bytes[i] < bytes)
		i++;
	/* straight lines between the points, the last one's slope beyond */
	double slope = (l->us[i] - l->us[i - 1]) / (l->bytes[i] - l->bytes[i - 1]);

	return fmax(l->us[i - 1] + slope * (bytes - l->bytes[i - 1]),
		    l->us[0] + flops / l->tflops * 1e-6);
}
#endif
