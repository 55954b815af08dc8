/*
 * device_client.c - a client's connection, its tokens on a stream, and what they must come to.
 *
 * Inputs are copied into the arena by the stream, and O out of it: with a device arena by the copy
 * engine, with a host arena by a function that the stream calls.
 */
#include "device_client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BOUND 1e-3 /* of fp16: 5e-4 from the arithmetic, as much from the inputs' rounding of P */

void fail(const char *file, int line, const char *condition, const char *why, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: %s: ", file, line, condition);
	va_start(args, why);
	vfprintf(stderr, why, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

static const struct coppice_model_info model = {
	.name = "device",
	.n_layers = LAYERS,
	.n_q_heads = Q_HEADS,
	.n_kv_heads = KV_HEADS,
	.head_dim = DIM,
	.dtype = COPPICE_FP16,
};

/* ---- numbers -------------------------------------------------------------------------------- */

static void draw_row(struct place *place, uint32_t layer, uint32_t row, uint32_t pos)
{
	struct numbers of;

	numbers_draw(layer, pos, &of);
	memcpy(&place->q[row * Q_ROW], of.q, sizeof(of.q));
	memcpy(&place->k[row * KV_ROW], of.k, sizeof(of.k));
	memcpy(&place->v[row * KV_ROW], of.v, sizeof(of.v));
}

void check_row(const struct place *place, uint32_t layer, uint32_t row, uint32_t pos)
{
	_Float16 q[Q_ROW], o[Q_ROW];
	double error;

	memcpy(q, &place->q[row * Q_ROW], sizeof(q));
	memcpy(o, &place->o[row * Q_ROW], sizeof(o));
	error = numbers_error(layer, pos, q, o);
	CHECK(error <= BOUND, "layer %u, token %u: error %g", layer, pos, error);
}

/* ---- a client ------------------------------------------------------------------------------- */

void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

void gpu_start(struct stem *s)
{
	const char *why = gpu_open(&s->gpu);
	void *host;

	CHECK(!why, "%s", why);
	CHECK(s->gpu.stream_new(&s->stream, 1) == 0);
	CHECK(s->gpu.host_alloc(&host, LAYERS * sizeof(struct place), 0) == 0);
	s->host = host;
}

void gpu_end(struct stem *s)
{
	CHECK(s->gpu.stream_free(s->stream) == 0);
	CHECK(s->gpu.host_free(s->host) == 0);
}

void client_start(struct stem *s, const char *socket, enum coppice_memory memory)
{
	uint32_t first = 1;

	CHECK(coppice_connect(&s->c, socket) == 0, "%s", coppice_explain(NULL));
	CHECK(coppice_model_open(s->c, &model, &s->model) == 0, "%s", coppice_explain(s->c));
	CHECK(coppice_arena_new(s->c, memory, ARENA_BYTES, &s->arena) == 0, "%s",
	      coppice_explain(s->c));
	CHECK(coppice_arena_bytes(s->arena) == ARENA_BYTES);
	CHECK(coppice_lane_new(s->c, &s->lane) == 0, "%s", coppice_explain(s->c));
	/* A salt of its own: what others computed is not matched. */
	CHECK(coppice_seq_open(s->lane, s->model, &first, 1, (uint64_t)getpid(), &s->seq, NULL) ==
		      0,
	      "%s", coppice_explain(s->c));
	s->memory = memory;
	s->there = coppice_arena_base(s->arena);
	CHECK(LAYERS * sizeof(struct place) <= ARENA_BYTES);
}

void client_end(struct stem *s)
{
	coppice_seq_close(s->seq);
	coppice_lane_free(s->lane);
	coppice_arena_free(s->arena);
	coppice_close(s->c);
}

struct coppice_step_seq part_of(const struct stem *s, uint32_t layer, uint32_t n)
{
	struct place *place = &s->there[layer];

	return (struct coppice_step_seq){.seq = s->seq,
					 .n_new = n,
					 .q = place->q,
					 .k = place->k,
					 .v = place->v,
					 .o = place->o};
}

void extend(struct stem *s, uint32_t n)
{
	uint32_t ids[PREFILL];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = 1 + s->n_tokens + i;
	CHECK(coppice_seq_extend(s->seq, ids, n, NULL) == 0, "%s", coppice_explain(s->c));
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		for (uint32_t i = 0; i < n; i++)
			draw_row(&s->host[layer], layer, i, s->n_tokens + i);
		memset(s->host[layer].o, 0xff, sizeof(s->host[layer].o));
	}
}

static void run_copy(void *arg)
{
	const struct copy *copy = arg;

	memcpy(copy->to, copy->from, copy->bytes);
}

static void put_copy(struct stem *s, uint32_t layer, int which, struct copy copy)
{
	s->copies[layer][which] = copy;
	if (s->memory == COPPICE_DEVICE)
		CHECK(s->gpu.copy((uintptr_t)copy.to, (uintptr_t)copy.from, copy.bytes,
				  s->stream) == 0);
	else
		CHECK(s->gpu.call(s->stream, run_copy, &s->copies[layer][which]) == 0);
}

void put_inputs(struct stem *s, uint32_t layer)
{
	put_copy(s, layer, 0,
		 (struct copy){&s->there[layer], &s->host[layer], offsetof(struct place, o)});
}

void put_outputs(struct stem *s, uint32_t layer)
{
	put_copy(s, layer, 1,
		 (struct copy){s->host[layer].o, s->there[layer].o, sizeof(s->host[layer].o)});
}

static void be_slow(void *arg)
{
	(void)arg;
	pause_us(2000);
}

void queue_tokens(struct stem *s, uint32_t n, bool slow, uint64_t *ret_tickets)
{
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		struct coppice_step_seq part = part_of(s, layer, n);
		struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};

		if (slow)
			CHECK(s->gpu.call(s->stream, be_slow, NULL) == 0);
		put_inputs(s, layer);
		CHECK(coppice_step_on_stream(s->lane, &step, s->stream, &ret_tickets[layer]) == 0,
		      "%s", coppice_explain(s->c));
		CHECK(coppice_wait_on_stream(s->lane, ret_tickets[layer], s->stream) == 0, "%s",
		      coppice_explain(s->c));
		put_outputs(s, layer);
	}
}

void check_ticket(struct stem *s, uint64_t ticket)
{
	struct coppice_result result;

	CHECK(coppice_wait(s->lane, ticket, PATIENCE_NS) == 0, "%s", coppice_explain(s->c));
	CHECK(coppice_poll(s->lane, ticket, &result) == 0 && result.status == 0, "%s",
	      coppice_explain(s->c));
}

void decode(struct stem *s, uint32_t n, bool slow)
{
	uint64_t tickets[LAYERS];

	extend(s, n);
	queue_tokens(s, n, slow, tickets);
	CHECK(s->gpu.stream_await(s->stream) == 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		check_ticket(s, tickets[layer]);
		for (uint32_t i = 0; i < n; i++)
			check_row(&s->host[layer], layer, i, s->n_tokens + i);
	}
	s->n_tokens += n;
}

/* ---- the test and its clients ---- */

void say_go(void)
{
	CHECK(write(STDOUT_FILENO, "go\n", 3) == 3);
}

void await_go(void)
{
	char byte;

	(void)!read(STDIN_FILENO, &byte, 1);
}

void vanish(void)
{
	_exit(0);
}

void hold_gate(void *arg)
{
	const _Atomic int *open = arg;

	while (!*open)
		pause_us(500);
}
