/*
 * fake_stream.h - the device of the CUDA backend's batches, played: a stream of graphs that go one
 * after the other, of which one that stands waits for its call, and time that passes as the test
 * says. Whoever waits for the stream while a launch stands on it has failed. In place of the CUDA
 * runtime, the kernels, and what other devices and chosen blocks need.
 */
#ifndef COPPICE_TESTS_FAKE_STREAM_H
#define COPPICE_TESTS_FAKE_STREAM_H

#include "kernels/cuda/attend/layer.h"

#define FAKE_GRAPHS 64u
#define FAKE_BATCHES 8192u

/* What is launched together. */
struct fake_graph {
	bool apart; /* one launch of what goes together otherwise */
	bool stands, attends, finishes;
	bool left; /* stands no more, and will say so */
	struct device_stand stand;
	struct device_inbound in;
	struct device_attend attend;
	struct device_finish finish;
};

/* What a batch has done; n 0: nothing. */
struct fake_deed {
	uint32_t n;
	uint64_t k; /* of its first new token */
	const char *pool;
};

extern struct fake_stream {
	struct fake_graph graphs[FAKE_GRAPHS]; /* [first, end) are under way */
	uint32_t first, end;
	struct fake_graph recorded;
	struct fake_deed deeds[FAKE_BATCHES]; /* by id */
	uint32_t n_stood, n_called;
	uint32_t n_pinned; /* times that memory was asked for */
	uint32_t n_streams, n_memories; /* that are there */
	uint64_t now_ns;
} fake;

/* Before each test. */
void fake_reset(void);
/* Behind each: nothing of the device is left. 0. */
int fake_done(void);
/* As far as it goes. */
void fake_runs(void);
/* The same; a launch that stands then has waited long enough, which nobody knows yet. */
void fake_is_impatient(void);

#endif
