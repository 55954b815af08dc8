/*
 * device_client.h - a client of device_test.c: a sequence whose numbers are drawn from their
 * places, steps on a stream, and the same attention again in double precision.
 */
#ifndef COPPICE_DEVICE_CLIENT_H
#define COPPICE_DEVICE_CLIENT_H

#include "client/coppice.h"
#include "device_gpu.h"
#include "device_numbers.h"

#define PREFILL 40u /* rows that a place has room for */
#define ARENA_BYTES ((size_t)2 << 20)
#define PATIENCE_NS UINT64_C(30000000000)

#define CHECK(condition, ...) \
	do { \
		if (!(condition)) \
			fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__); \
	} while (0)

/* Q, K, V and O of one layer, in an arena and, alike, in memory of the host. */
struct place {
	_Float16 q[PREFILL * Q_ROW], k[PREFILL * KV_ROW], v[PREFILL * KV_ROW], o[PREFILL * Q_ROW];
};

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

struct stem {
	struct gpu gpu;
	void *stream;
	struct coppice *c;
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	uint32_t model, n_tokens;
	enum coppice_memory memory;
	struct place *host, *there; /* [LAYERS], one layer's beside the next's */
	struct copy copies[LAYERS][2]; /* what functions of the stream do */
	uint64_t layer_ns[TOKENS_MAX]; /* of a launch, by token */
};

/* why: a format, or blank. Ends the process. */
void fail(const char *file, int line, const char *condition, const char *why, ...)
	__attribute__((noreturn, format(printf, 4, 5)));
void pause_us(long us);

void gpu_start(struct stem *s); /* driver, stream, memory of the host */
void gpu_end(struct stem *s);
/* A connection with an arena, a lane and a sequence that shares with nobody. */
void client_start(struct stem *s, const char *socket, enum coppice_memory memory);
void client_end(struct stem *s);

/* n tokens more, whose Q, K and V are in s->host. */
void extend(struct stem *s, uint32_t n);
struct coppice_step_seq part_of(const struct stem *s, uint32_t layer, uint32_t n);
/* The stream copies a layer's inputs into the arena; its outputs out of it. */
void put_inputs(struct stem *s, uint32_t layer);
void put_outputs(struct stem *s, uint32_t layer);
/* All layers of n tokens at once on the stream; slow: long before the inputs are there. */
void queue_tokens(struct stem *s, uint32_t n, bool slow, uint64_t *ret_tickets);
/* All of it, checked. */
void decode(struct stem *s, uint32_t n, bool slow);
/* The ticket is done and well. */
void check_ticket(struct stem *s, uint64_t ticket);
/* O of the token at pos, which is in this row. */
void check_row(const struct place *place, uint32_t layer, uint32_t row, uint32_t pos);

/* Tells the test that the client is where it wants it; waits until the test says to go on. */
void say_go(void);
void await_go(void);
/* Ends without a word to anybody, its memory open. */
void vanish(void) __attribute__((noreturn));
/* A function of a stream's: it goes on when the _Atomic int is not 0. */
void hold_gate(void *open);

#endif
