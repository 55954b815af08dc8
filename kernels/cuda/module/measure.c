/*
 * measure.c - times of attention, replayed from a graph; see measure.h. What is captured is
 * launched as batches launch it (layer.h). Replays change nothing but outputs: tokens that come
 * with a batch are appended to where they are already.
 */
#include "measure.h"
#include "kernels/thread.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct measure {
	cudaGraph_t graph;
	cudaGraphExec_t replay;
	cudaEvent_t begin, end;
	void *flush;
};

static void measure_done(struct measure *m)
{
	if (m->replay)
		cudaGraphExecDestroy(m->replay);
	if (m->graph)
		cudaGraphDestroy(m->graph);
	if (m->begin)
		cudaEventDestroy(m->begin);
	if (m->end)
		cudaEventDestroy(m->end);
	cudaFree(m->flush);
}

static int measure_capture(struct batch *b, struct measure *m, bool whole)
{
	const struct layer layer = {.inbound = whole ? &b->last_in : NULL, .attend = &b->last};
	device_stream stream = b->queue.stream;
	int r;

	if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
		return -EIO;
	r = layer_launch(&layer, queue_to(&b->queue));
	if (cudaStreamEndCapture(stream, &m->graph) != cudaSuccess || r ||
	    cudaGraphInstantiate(&m->replay, m->graph, 0) != cudaSuccess)
		return -EIO;
	return 0;
}

static int measure_once(struct batch *b, struct measure *m, uint64_t flush_bytes, int fill,
			float *ret_us)
{
	float ms;

	if ((flush_bytes &&
	     cudaMemsetAsync(m->flush, fill, flush_bytes, b->queue.stream) != cudaSuccess) ||
	    cudaEventRecord(m->begin, b->queue.stream) != cudaSuccess ||
	    cudaGraphLaunch(m->replay, b->queue.stream) != cudaSuccess ||
	    cudaEventRecord(m->end, b->queue.stream) != cudaSuccess ||
	    cudaEventSynchronize(m->end) != cudaSuccess ||
	    cudaEventElapsedTime(&ms, m->begin, m->end) != cudaSuccess)
		return -EIO;
	*ret_us = ms * 1000;
	return 0;
}

int measure_attention(struct batch *b, bool whole, uint64_t flush_bytes, uint32_t n, float *ret_us)
{
	struct measure m = {0};
	int r = -EIO;

	if (b->n_last != 1)
		return -EINVAL;
	if (cudaEventCreate(&m.begin) == cudaSuccess && cudaEventCreate(&m.end) == cudaSuccess &&
	    (!flush_bytes || cudaMalloc(&m.flush, flush_bytes) == cudaSuccess))
		r = measure_capture(b, &m, whole);
	for (uint32_t i = 0; i < n && !r; i++)
		r = measure_once(b, &m, flush_bytes, (int)i, &ret_us[i]);
	measure_done(&m);
	return r;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Once before it is captured, as kernels are loaded where they are first launched. */
static int capture_products(struct batch *b, struct measure *m, struct backend_program *program,
			    uint32_t n_rows)
{
	int r = program_run_products(b, program, n_rows, false);

	if (!r)
		r = queue_await(&b->queue);
	if (r || cudaStreamBeginCapture(b->queue.stream, cudaStreamCaptureModeThreadLocal) !=
			 cudaSuccess)
		return -EIO;
	r = program_run_products(b, program, n_rows, false);
	if (cudaStreamEndCapture(b->queue.stream, &m->graph) != cudaSuccess || r ||
	    cudaGraphInstantiate(&m->replay, m->graph, 0) != cudaSuccess)
		return -EIO;
	return 0;
}

int measure_products(struct batch *b, struct backend_program *program, uint32_t n_rows, uint32_t n,
		     float *ret_us)
{
	struct measure m = {0};
	int r = -EIO;

	if (cudaEventCreate(&m.begin) == cudaSuccess && cudaEventCreate(&m.end) == cudaSuccess)
		r = capture_products(b, &m, program, n_rows);
	for (uint32_t i = 0; i < n && !r; i++)
		r = measure_once(b, &m, 0, 0, &ret_us[i]);
	measure_done(&m);
	return r;
}

/* ---- clocks --------------------------------------------------------------------------------- */

#ifdef COPPICE_CLOCKS
static int launch_with(struct batch *b, struct device_clocks *clocks, void *flush,
		       uint64_t flush_bytes)
{
	device_stream stream = b->queue.stream;
	struct device_attend attend = b->last;
	const struct layer layer = {.attend = &attend};
	int r;

	attend.clocks = clocks;
	if (cudaMemsetAsync(clocks, 0, sizeof(*clocks), stream) != cudaSuccess ||
	    (flush_bytes && cudaMemsetAsync(flush, 1, flush_bytes, stream) != cudaSuccess))
		return -EIO;
	r = queue_expect(&b->queue, layer_launch(&layer, queue_to(&b->queue)));
	return r ? r : queue_await(&b->queue);
}

static void turn_back(uint64_t *marks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		marks[i] = marks[i] ? ~marks[i] : 0;
}

int measure_clocks(struct batch *b, uint64_t flush_bytes, struct device_clocks *ret)
{
	struct device_clocks *clocks = NULL;
	void *flush = NULL;
	int r = -EIO;

	if (b->n_last != 1)
		return -EINVAL;
	if (cudaMalloc((void **)&clocks, sizeof(*clocks)) == cudaSuccess &&
	    (!flush_bytes || cudaMalloc(&flush, flush_bytes) == cudaSuccess))
		r = launch_with(b, clocks, flush, flush_bytes);
	if (!r && cudaMemcpy(ret, clocks, sizeof(*ret), cudaMemcpyDeviceToHost) != cudaSuccess)
		r = -EIO;
	if (!r) {
		turn_back(ret->blocks[0], CLOCK_BLOCKS * CLOCK_MARKS);
		turn_back(ret->merges[0], CLOCK_BLOCKS * CLOCK_MARKS);
	}
	cudaFree(clocks);
	cudaFree(flush);
	return r;
}
#else
int measure_clocks(struct batch *b, uint64_t flush_bytes, struct device_clocks *ret)
{
	(void)b;
	(void)flush_bytes;
	(void)ret;
	return -ENOTSUP;
}
#endif

/* ---- devices of a group --------------------------------------------------------------------- */

/* What all devices' threads share. */
struct layers {
	const struct measure_members *members;
	const struct cuda_measure_layers *how;
	uint32_t n;
	struct cuda_measure_stamp *stamps; /* [n][members->n][depth]; NULL: not wanted */
	pthread_barrier_t begin;
};

struct layers_thread {
	struct layers *all;
	uint32_t index;
	float *us; /* owned, [n] */
	int result;
	pthread_t thread;
};

/* Layer after layer, those of the model in turn. */
static int capture_layers(struct batch *b, const struct cuda_measure_layers *how, struct measure *m)
{
	struct device_attend attend = b->last;
	uint64_t layer_bytes = attend.shape.head_bytes * attend.shape.n_kv_heads;
	int r = 0;

	if (cudaStreamBeginCapture(b->queue.stream, cudaStreamCaptureModeThreadLocal) !=
	    cudaSuccess)
		return -EIO;
	attend.pool -= how->layer * layer_bytes;
	for (uint32_t i = 0; i < how->depth; i++) {
		struct device_attend one = attend;

		one.pool += i % how->n_layers * layer_bytes;
		if (how->attend)
			r |= layer_launch(&(struct layer){.attend = &one}, queue_to(&b->queue));
		if (how->exchange && b->last_exchange.n_rows)
			r |= device_exchange(&b->last_exchange, b->queue.stream);
	}
	if (cudaStreamEndCapture(b->queue.stream, &m->graph) != cudaSuccess || r ||
	    cudaGraphInstantiate(&m->replay, m->graph, 0) != cudaSuccess ||
	    cudaGraphUpload(m->replay, b->queue.stream) != cudaSuccess ||
	    cudaStreamSynchronize(b->queue.stream) != cudaSuccess)
		return -EIO;
	return 0;
}

/* Of the last depth launches. */
static int read_stamps(struct layers *all, uint32_t device, uint32_t i)
{
	const struct peer_state *at = peer_state_of(all->members->batches[device]->peer);
	uint32_t depth = all->how->depth;
	struct peer_state state;

	if (!all->stamps || !all->how->exchange || !at)
		return 0;
	if (cudaMemcpy(&state, at, sizeof(state), cudaMemcpyDeviceToHost) != cudaSuccess)
		return -EIO;
	for (uint32_t layer = 0; layer < depth; layer++) {
		const struct peer_stamp *from =
			&state.stamps[(state.epoch - depth + 1 + layer) % PEER_STAMPS];

		all->stamps[((size_t)i * all->members->n + device) * depth + layer] =
			(struct cuda_measure_stamp){from->begin_ns, from->end_ns};
	}
	return 0;
}

static void *run_layers(void *arg)
{
	struct layers_thread *t = arg;
	struct layers *all = t->all;
	struct batch *b = all->members->batches[t->index];
	struct measure m = {0};
	int r = -EIO;

	cudaSetDevice(all->members->devices[t->index]);
	if (cudaEventCreate(&m.begin) == cudaSuccess && cudaEventCreate(&m.end) == cudaSuccess)
		r = capture_layers(b, all->how, &m);
	for (uint32_t i = 0; i < all->n; i++) {
		pthread_barrier_wait(&all->begin);
		r = r ? r : measure_once(b, &m, 0, 0, &t->us[i]);
		r = r ? r : read_stamps(all, t->index, i);
	}
	measure_done(&m);
	t->result = r;
	return NULL;
}

static int start_threads(struct layers *all, struct layers_thread *threads)
{
	for (uint32_t i = 0; i < all->members->n; i++) {
		threads[i] = (struct layers_thread){.all = all, .index = i};
		threads[i].us = calloc(all->n, sizeof(float));
		if (!threads[i].us)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < all->members->n; i++) {
		/* those that were started wait for all: there is no way back */
		if (thread_start("layers", run_layers, &threads[i], &threads[i].thread) != 0)
			abort();
	}
	return 0;
}

int measure_group(const struct measure_members *members, const struct cuda_measure_layers *how,
		  uint32_t n, float *ret_us, struct cuda_measure_stamp *ret_stamps)
{
	struct layers all = {.members = members, .how = how, .n = n, .stamps = ret_stamps};
	struct layers_thread threads[PEERS_MAX] = {0};
	int r;

	for (uint32_t i = 0; i < members->n; i++) {
		if (members->batches[i]->n_last != 1 || how->depth > CUDA_MEASURE_DEPTH)
			return -EINVAL;
	}
	pthread_barrier_init(&all.begin, NULL, members->n);
	r = start_threads(&all, threads);
	for (uint32_t i = 0; i < members->n; i++) {
		if (threads[i].thread)
			pthread_join(threads[i].thread, NULL);
		r = r ? r : threads[i].result;
		for (uint32_t k = 0; k < n && !r; k++)
			ret_us[k * members->n + i] = threads[i].us[k] / (float)how->depth;
		free(threads[i].us);
	}
	pthread_barrier_destroy(&all.begin);
	return r;
}
