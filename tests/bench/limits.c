/* limits.c - see limits.h. */
#include "limits.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"

#include <math.h>
#include <stdio.h>

#define POOL_BYTES (UINT64_C(8) << 30)
#define FLUSH_BYTES (UINT64_C(256) << 20)
#define MIB 1048576.0
#define REPS_MAX 1000u

static double median_us(cuda_stream stream, uint64_t bytes, uint32_t tile_bytes)
{
	float us[REPS_MAX];
	double sorted[REPS_MAX];
	uint32_t n = bench_reps(21);

	if (stream(POOL_BYTES, FLUSH_BYTES, bytes, tile_bytes, n, us) != 0)
		return INFINITY;
	for (uint32_t i = 0; i < n; i++)
		sorted[i] = us[i];
	return bench_median(sorted, n);
}

int limits_init(struct limits *l, cuda_stream stream, double tflops)
{
	static const uint32_t mib[LIMITS_POINTS] = {0, 8, 32, 128, 512, 1024, 2048, 4096};

	l->tflops = tflops;
	for (uint32_t i = 0; i < LIMITS_POINTS; i++) {
		uint64_t bytes = (uint64_t)mib[i] << 20;
		char name[32];

		l->bytes[i] = mib[i] * MIB;
		l->us[i] = fmin(median_us(stream, bytes, 8192), median_us(stream, bytes, 16384));
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
