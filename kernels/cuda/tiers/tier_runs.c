/*
 * tier_runs.c - copies as the device is told of them; see tier_runs.h. A run that stays short is
 * taken apart again: what goes in one call with others costs nothing of its own. What the driver
 * turns out not to have is not asked for twice.
 */
#include "tier_runs.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

#define MANY 16u /* from here on a call of its own */
#define ENGINE_BYTES (48u << 10) /* from here on the engines are as fast as blocks */
#define LARGE_BYTES (1u << 20) /* from here on they are where each copy is a call */
#define STRIDE_MOST (UINT64_C(1) << 30)

/* ---- runs ----------------------------------------------------------------------------------- */

static bool stride_is_fine(uint64_t stride, uint64_t bytes)
{
	return stride >= bytes && stride <= STRIDE_MOST;
}

/* Does the run go on with it? */
static bool run_takes(struct tier_run *r, uint64_t from, uint64_t to, uint64_t bytes)
{
	if (bytes != r->bytes)
		return false;
	if (r->n > 1)
		return from == r->from + r->n * r->from_stride && to == r->to + r->n * r->to_stride;
	if (!stride_is_fine(from - r->from, bytes) || !stride_is_fine(to - r->to, bytes))
		return false;
	r->from_stride = from - r->from;
	r->to_stride = to - r->to;
	return true;
}

/* Any two are at equal distances: the second may as well be the first of the next run. */
static void run_part(struct tier_run *two, struct tier_run *ret)
{
	*ret = (struct tier_run){.from = two->from + two->from_stride,
				 .to = two->to + two->to_stride,
				 .bytes = two->bytes,
				 .n = 1};
	two->n = 1;
}

bool tier_runs_add(struct tier_runs *runs, uint64_t from, uint64_t to, uint64_t bytes)
{
	struct tier_run *last = runs->n > 0 ? &runs->runs[runs->n - 1] : NULL;

	if (last && run_takes(last, from, to, bytes)) {
		last->n++;
		return true;
	}
	if (runs->n == TIER_RUNS)
		return false;
	if (last && last->n == 2) {
		run_part(last, last + 1);
		runs->n++;
		return tier_runs_add(runs, from, to, bytes);
	}
	runs->runs[runs->n++] = (struct tier_run){.from = from, .to = to, .bytes = bytes, .n = 1};
	return true;
}

/* ---- launches ------------------------------------------------------------------------------- */

/* Copies that are no run of many, until they are put on the stream. */
struct some {
	struct device_tier copies;
	struct tier_means *means;
	cudaStream_t stream;
	bool blocks;
};

static cudaError_t put_each(const struct device_tier *c, cudaStream_t stream)
{
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < c->n && r == cudaSuccess; i++)
		r = cudaMemcpyAsync((void *)(uintptr_t)c->to[i],
				    (const void *)(uintptr_t)c->from[i], c->bytes,
				    cudaMemcpyDefault, stream);
	return r;
}

static cudaError_t put_together(const struct device_tier *c, cudaStream_t stream)
{
#if CUDART_VERSION >= 13000
	struct cudaMemcpyAttributes like = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream,
					    .flags = cudaMemcpyFlagPreferOverlapWithCompute};
	const void *from[TIER_COPIES];
	void *to[TIER_COPIES];
	size_t bytes[TIER_COPIES], first = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		from[i] = (const void *)(uintptr_t)c->from[i];
		to[i] = (void *)(uintptr_t)c->to[i];
		bytes[i] = c->bytes;
	}
	return cudaMemcpyBatchAsync(to, from, bytes, c->n, &like, &first, 1, stream);
#else
	(void)c;
	(void)stream;
	return cudaErrorNotSupported;
#endif
}

static cudaError_t put_by_blocks(struct some *s)
{
	s->blocks = true;
	return device_tier(&s->copies, (device_stream)(void *)s->stream);
}

static cudaError_t put(struct some *s)
{
	const struct device_tier *c = &s->copies;
	bool small = s->means->bulk && c->bytes < ENGINE_BYTES;
	cudaError_t r;

	if (c->n == 0)
		return cudaSuccess;
	if (c->n == 1 && !small)
		return put_each(c, s->stream);
	if (s->means->together && !small) {
		r = put_together(c, s->stream);
		if (r == cudaSuccess ||
		    (r != cudaErrorNotSupported && r != cudaErrorCallRequiresNewerDriver &&
		     r != cudaErrorInsufficientDriver))
			return r;
		cudaGetLastError();
		s->means->together = false;
	}
	return s->means->bulk && c->bytes < LARGE_BYTES ? put_by_blocks(s) : put_each(c, s->stream);
}

static cudaError_t some_add(struct some *s, const struct tier_run *run)
{
	struct device_tier *c = &s->copies;
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < run->n && r == cudaSuccess; i++) {
		if (c->n == TIER_COPIES || c->bytes != run->bytes) {
			r = put(s);
			c->n = 0;
		}
		c->bytes = run->bytes;
		c->from[c->n] = run->from + i * run->from_stride;
		c->to[c->n++] = run->to + i * run->to_stride;
	}
	return r;
}

static cudaError_t put_run(const struct tier_run *run, uint64_t most_bytes, cudaStream_t stream)
{
	uint64_t most = most_bytes / run->bytes;
	uint32_t each = most == 0 ? 1 : most > run->n ? run->n : (uint32_t)most;
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < run->n && r == cudaSuccess; i += each)
		r = cudaMemcpy2DAsync((void *)(uintptr_t)(run->to + i * run->to_stride),
				      run->to_stride,
				      (const void *)(uintptr_t)(run->from + i * run->from_stride),
				      run->from_stride, run->bytes, min_u32(run->n - i, each),
				      cudaMemcpyDefault, stream);
	return r;
}

int tier_runs_launch(struct tier_runs *runs, struct tier_means *means, device_stream stream,
		     bool *ret_blocks)
{
	struct some some = {.means = means, .stream = (cudaStream_t)(void *)stream};
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < runs->n && r == cudaSuccess; i++)
		r = runs->runs[i].n >= MANY ? put_run(&runs->runs[i], means->run_bytes, some.stream)
					    : some_add(&some, &runs->runs[i]);
	if (r == cudaSuccess)
		r = put(&some);
	runs->n = 0;
	*ret_blocks = some.blocks;
	return r;
}
