/*
 * device_stem.c - see device_stem.h.
 *
 * Q, K and V of a token are drawn from its place, so that attention over all tokens so far can be computed again, in double
 * precision. They are copied into the arena by the stream, and O out of it: with a device arena by the copy engine, with a
 * host arena by a function that the stream calls.
 */
#include "device_stem.h"

#include "client/arena.h"
#include "client/connection.h"
#include "client/coppice.h"
#include "client/lane.h"
#include "device_gpu.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LAYERS 8u
#define Q_HEADS 4u
#define KV_HEADS 2u
#define DIM 64u
#define Q_ROW (Q_HEADS * DIM)
#define KV_ROW (KV_HEADS * DIM)
#define TOKENS_MAX 1100u
#define PREFILL 40u /* rows that a place has room for */
#define ARENA_BYTES ((size_t)2 << 20)
#define BOUND 1e-3 /* of fp16: 5e-4 from the arithmetic, as much from the inputs' rounding of P */
#define PATIENCE_NS UINT64_C(30000000000)

#define CHECK(condition, ...) \
	do { \
		if (!(condition)) \
			fail(__LINE__, #condition, " " __VA_ARGS__); \
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

/* why: a format, or empty. */
__attribute__((noreturn, format(printf, 3, 4))) static void fail(int line, const char *condition,
								 const char *why, ...)
{
	va_list args;

	fprintf(stderr, "device_stem.c:%d: %s: ", line, condition);
	va_start(args, why);
	vfprintf(stderr, why, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

static struct {
	_Float16 k[LAYERS][TOKENS_MAX][KV_ROW], v[LAYERS][TOKENS_MAX][KV_ROW];
} all;

static const struct coppice_model_info model = {
	.name = "device",
	.n_layers = LAYERS,
	.n_q_heads = Q_HEADS,
	.n_kv_heads = KV_HEADS,
	.head_dim = DIM,
	.dtype = COPPICE_FP16,
};

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static _Float16 draw(uint32_t layer, uint32_t pos, char what, uint32_t i)
{
	uint64_t x = ((uint64_t)layer << 40) + ((uint64_t)pos << 20) + ((uint64_t)what << 52) + i;

	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return (_Float16)((double)(x >> 40) / (1 << 23) - 1.0);
}

static void draw_row(struct place *place, uint32_t layer, uint32_t row, uint32_t pos)
{
	for (uint32_t i = 0; i < Q_ROW; i++)
		place->q[row * Q_ROW + i] = draw(layer, pos, 'q', i);
	for (uint32_t i = 0; i < KV_ROW; i++) {
		all.k[layer][pos][i] = place->k[row * KV_ROW + i] = draw(layer, pos, 'k', i);
		all.v[layer][pos][i] = place->v[row * KV_ROW + i] = draw(layer, pos, 'v', i);
	}
}

static void attend(uint32_t layer, uint32_t pos, uint32_t head, const _Float16 *q, double *o)
{
	uint32_t kv = head / (Q_HEADS / KV_HEADS) * DIM;
	double weights[TOKENS_MAX], most = -INFINITY, sum = 0;

	for (uint32_t j = 0; j <= pos; j++) {
		double score = 0;

		for (uint32_t i = 0; i < DIM; i++)
			score += (double)q[i] * (double)all.k[layer][j][kv + i];
		weights[j] = score / sqrt(DIM);
		most = fmax(most, weights[j]);
	}
	memset(o, 0, DIM * sizeof(*o));
	for (uint32_t j = 0; j <= pos; j++) {
		double weight = exp(weights[j] - most);

		sum += weight;
		for (uint32_t i = 0; i < DIM; i++)
			o[i] += weight * (double)all.v[layer][j][kv + i];
	}
	for (uint32_t i = 0; i < DIM; i++)
		o[i] /= sum;
}

/* O of the token at pos, which is in this row. */
static void check_row(const struct place *place, uint32_t layer, uint32_t row, uint32_t pos)
{
	double wrong = 0, right = 0;

	for (uint32_t head = 0; head < Q_HEADS; head++) {
		double o[DIM];

		attend(layer, pos, head, &place->q[row * Q_ROW + head * DIM], o);
		for (uint32_t i = 0; i < DIM; i++) {
			double d = (double)place->o[row * Q_ROW + head * DIM + i] - o[i];

			wrong += d * d;
			right += o[i] * o[i];
		}
	}
	CHECK(sqrt(wrong) <= BOUND * sqrt(right), "layer %u, token %u: error %g", layer, pos,
	      sqrt(wrong / right));
}

/* ---- a client ---------------------------------------------------------------------------------------------------- */

static void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void say_go(void)
{
	CHECK(write(STDOUT_FILENO, "go\n", 3) == 3);
}

static void await_go(void)
{
	char byte;

	(void)!read(STDIN_FILENO, &byte, 1);
}

static void gpu_start(struct stem *s)
{
	const char *why = gpu_open(&s->gpu);
	void *host;

	CHECK(!why, "%s", why);
	CHECK(s->gpu.stream_new(&s->stream, 1) == 0);
	CHECK(s->gpu.host_alloc(&host, LAYERS * sizeof(struct place), 0) == 0);
	s->host = host;
}

static void gpu_end(struct stem *s)
{
	CHECK(s->gpu.stream_free(s->stream) == 0);
	CHECK(s->gpu.host_free(s->host) == 0);
}

/* Ends without a word to anybody, its memory open. */
__attribute__((noreturn)) static void vanish(void)
{
	_exit(0);
}

static void client_start(struct stem *s, const char *socket, enum coppice_memory memory)
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

static void client_end(struct stem *s)
{
	coppice_seq_close(s->seq);
	coppice_lane_free(s->lane);
	coppice_arena_free(s->arena);
	coppice_close(s->c);
}

static struct coppice_step_seq part_of(const struct stem *s, uint32_t layer, uint32_t n)
{
	struct place *place = &s->there[layer];

	return (struct coppice_step_seq){.seq = s->seq,
					 .n_new = n,
					 .q = place->q,
					 .k = place->k,
					 .v = place->v,
					 .o = place->o};
}

static void extend(struct stem *s, uint32_t n)
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

static void put_inputs(struct stem *s, uint32_t layer)
{
	put_copy(s, layer, 0,
		 (struct copy){&s->there[layer], &s->host[layer], offsetof(struct place, o)});
}

static void put_outputs(struct stem *s, uint32_t layer)
{
	put_copy(s, layer, 1,
		 (struct copy){s->host[layer].o, s->there[layer].o, sizeof(s->host[layer].o)});
}

static void be_slow(void *arg)
{
	(void)arg;
	pause_us(2000);
}

/* All layers of n tokens at once on the stream; slow: long before the inputs are there. */
static void queue_tokens(struct stem *s, uint32_t n, bool slow, uint64_t *ret_tickets)
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

static void check_ticket(struct stem *s, uint64_t ticket)
{
	struct coppice_result result;

	CHECK(coppice_poll(s->lane, ticket, &result) == 0 && result.status == 0, "%s",
	      coppice_explain(s->c));
}

static void decode(struct stem *s, uint32_t n, bool slow)
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

/* ---- roles: steps ------------------------------------------------------------------------------------------------ */

static int role_probe(const char *socket, char **args)
{
	struct gpu gpu;
	const char *why = gpu_open(&gpu);

	(void)socket;
	(void)args;
	if (!why)
		return 0;
	printf("skipped: %s\n", why);
	return STEM_SKIPPED;
}

static enum coppice_memory memory_of(const char *name)
{
	return strcmp(name, "device") == 0 ? COPPICE_DEVICE : COPPICE_HOST;
}

/* device | host: a prefill and some tokens on a stream, each layer long before its inputs are there. */
static int role_decode(const char *socket, char **args)
{
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, memory_of(args[0]));
	decode(&s, PREFILL, true);
	for (uint32_t i = 0; i < 20; i++)
		decode(&s, 1, i < 4);
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* Host arenas and no CUDA at all. */
static int role_plain(const char *socket, char **args)
{
	struct stem s = {0};

	(void)args;
	client_start(&s, socket, COPPICE_HOST);
	s.host = s.there;
	for (uint32_t n = PREFILL, t = 0; t < 20; s.n_tokens += n, n = 1, t++) {
		extend(&s, n);
		for (uint32_t layer = 0; layer < LAYERS; layer++) {
			struct coppice_step_seq part = part_of(&s, layer, n);
			struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};
			uint64_t ticket;

			CHECK(coppice_step(s.lane, &step, &ticket) == 0, "%s",
			      coppice_explain(s.c));
			CHECK(coppice_wait(s.lane, ticket, PATIENCE_NS) == 0, "%s",
			      coppice_explain(s.c));
			for (uint32_t i = 0; i < n; i++)
				check_row(&s.there[layer], layer, i, s.n_tokens + i);
		}
	}
	client_end(&s);
	return 0;
}

static void capture(struct stem *s, struct coppice_capture **ret, void **ret_graph,
		    void **ret_replay)
{
	CHECK(coppice_capture_new(s->lane, s->stream, ret) == 0, "%s", coppice_explain(s->c));
	CHECK(s->gpu.capture_begin(s->stream, 1) == 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		struct coppice_step_seq part = part_of(s, layer, 1);
		struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};

		put_inputs(s, layer);
		CHECK(coppice_step_on_stream(s->lane, &step, s->stream, NULL) == -EINVAL);
		CHECK(coppice_capture_step(*ret, &step, s->stream) == 0, "%s",
		      coppice_explain(s->c));
		CHECK(coppice_capture_wait(*ret, s->stream) == 0, "%s", coppice_explain(s->c));
		put_outputs(s, layer);
	}
	CHECK(s->gpu.capture_end(s->stream, ret_graph) == 0);
	CHECK(s->gpu.graph_make(ret_replay, *ret_graph, 0) == 0);
}

static void check_statuses(struct stem *s, uint64_t last)
{
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		check_ticket(s, last - layer);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* One token for each launch of the graph; every 10th is computed again. */
static void replay_token(struct stem *s, struct coppice_capture *capture, void *replay)
{
	uint64_t last, begin_ns;

	extend(s, 1);
	CHECK(coppice_capture_submit(capture, NULL, &last) == 0, "%s", coppice_explain(s->c));
	begin_ns = now_ns();
	CHECK(s->gpu.graph_launch(replay, s->stream) == 0);
	CHECK(s->gpu.stream_await(s->stream) == 0);
	s->layer_ns[s->n_tokens] = (now_ns() - begin_ns) / LAYERS;
	check_statuses(s, last);
	for (uint32_t layer = 0; layer < LAYERS && s->n_tokens % 10 == 0; layer++)
		check_row(&s->host[layer], layer, 0, s->n_tokens);
	s->n_tokens++;
}

/* Launches and submissions far ahead; all of one token's values. */
static void replay_ahead(struct stem *s, struct coppice_capture *capture, void *replay)
{
	uint64_t last[20];

	for (uint32_t i = 0; i < 20; i++) {
		uint32_t id = 5;

		CHECK(coppice_seq_extend(s->seq, &id, 1, NULL) == 0, "%s", coppice_explain(s->c));
		if (i % 2)
			CHECK(s->gpu.graph_launch(replay, s->stream) == 0);
		CHECK(coppice_capture_submit(capture, &s->seq, &last[i]) == 0, "%s",
		      coppice_explain(s->c));
		if (i % 2 == 0)
			CHECK(s->gpu.graph_launch(replay, s->stream) == 0);
	}
	CHECK(s->gpu.stream_await(s->stream) == 0);
	for (uint32_t i = 0; i < 20; i++)
		check_statuses(s, last[i]);
}

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* For whoever reads the log: what a layer took, copies in and out included. */
static void say_time(struct stem *s)
{
	qsort(s->layer_ns, s->n_tokens, sizeof(*s->layer_ns), compare_ns);
	fprintf(stderr, "%u launches: a layer took %.1f us (p50), %.1f us (p99)\n", s->n_tokens,
		(double)s->layer_ns[s->n_tokens / 2] / 1000,
		(double)s->layer_ns[s->n_tokens * 99 / 100] / 1000);
}

/* device | host, launches. */
static int role_graph(const char *socket, char **args)
{
	struct coppice_capture *captured;
	struct stem s = {0};
	void *graph, *replay;
	uint32_t n = (uint32_t)atoi(args[1]);

	gpu_start(&s);
	client_start(&s, socket, memory_of(args[0]));
	capture(&s, &captured, &graph, &replay);
	while (s.n_tokens < n)
		replay_token(&s, captured, replay);
	say_time(&s);
	replay_ahead(&s, captured, replay);
	CHECK(s.gpu.replay_free(replay) == 0);
	CHECK(s.gpu.graph_free(graph) == 0);
	coppice_capture_free(captured);
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* What the library refuses before the stream hears of it. */
static int role_mistakes(const char *socket, char **args)
{
	struct stem s = {0};
	struct coppice_step_seq part;
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	struct coppice_capture *captured;
	uint64_t ticket;

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	part = part_of(&s, 0, 1);
	CHECK(coppice_wait_on_stream(s.lane, 1, s.stream) == -EINVAL);
	CHECK(coppice_capture_new(s.lane, s.stream, &captured) == 0);
	CHECK(coppice_capture_step(captured, &step, s.stream) == -EINVAL);
	CHECK(strstr(coppice_explain(s.c), "not being captured"), "%s", coppice_explain(s.c));
	CHECK(coppice_capture_submit(captured, NULL, &ticket) == -EINVAL);
	coppice_capture_free(captured);
	/* A step that the daemon refuses lets the stream go on. */
	CHECK(coppice_step_on_stream(s.lane, &step, s.stream, &ticket) == 0);
	CHECK(coppice_wait_on_stream(s.lane, ticket, s.stream) == 0);
	CHECK(s.gpu.stream_await(s.stream) == 0);
	CHECK(coppice_wait(s.lane, ticket, PATIENCE_NS) == -EINVAL);
	CHECK(strstr(coppice_explain(s.c), "no live tokens"), "%s", coppice_explain(s.c));
	decode(&s, 1, false);
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* ---- roles: ends ------------------------------------------------------------------------------------------------- */

/* Steps without end: to be killed in the middle of one. */
static int role_busy(const char *socket, char **args)
{
	struct stem s = {0};

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	decode(&s, 1, false);
	say_go();
	for (;;) {
		uint64_t tickets[LAYERS];

		CHECK(coppice_seq_extend(s.seq, &(uint32_t){7}, 1, NULL) == 0);
		queue_tokens(&s, 1, false, tickets);
		CHECK(s.gpu.stream_await(s.stream) == 0);
	}
}

/* A kernel of the client's own goes wrong. */
static int role_fault(const char *socket, char **args)
{
	struct stem s = {0};

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	decode(&s, 1, false);
	gpu_fault(&s.gpu);
	CHECK(s.gpu.stream_await(s.stream) != 0);
	vanish();
}

static void hold_gate(void *arg)
{
	const _Atomic int *open = arg;

	while (!*open)
		pause_us(500);
}

/*
 * A stream waits for a step whose inputs another stream has not written, when the daemon dies: alone, the library is not
 * called before the stream has gone on (a keeper lets it); else it is.
 */
static int role_waiter(const char *socket, char **args)
{
	bool alone = strcmp(args[0], "alone") == 0 || strcmp(args[0], "stopped") == 0;
	struct coppice_result result = {0};
	struct stem s = {0};
	_Atomic int gate = 0;
	uint64_t ticket;
	void *other;
	int r;

	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	decode(&s, 1, false);
	CHECK(s.gpu.stream_new(&other, 1) == 0);
	extend(&s, 1);
	CHECK(s.gpu.call(other, hold_gate, (void *)&gate) == 0);

	struct coppice_step_seq part = part_of(&s, 0, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};

	CHECK(coppice_step_on_stream(s.lane, &step, other, &ticket) == 0, "%s",
	      coppice_explain(s.c));
	CHECK(coppice_wait_on_stream(s.lane, ticket, s.stream) == 0, "%s", coppice_explain(s.c));
	say_go();
	if (!alone)
		await_go();
	while (!alone && coppice_poll(s.lane, ticket, &result) == -EAGAIN)
		pause_us(1000);
	CHECK(s.gpu.stream_await(s.stream) == 0);
	r = coppice_poll(s.lane, ticket, &result);
	if (r == 0 && strcmp(args[0], "failed") == 0) /* the daemon's device has, and it said so */
		CHECK(result.status == -EIO, "%s", coppice_explain(s.c));
	else if (r == 0 && strcmp(args[0], "stopped") == 0)
		CHECK(result.status == -ESHUTDOWN, "%s", coppice_explain(s.c));
	else
		CHECK(r == -ECONNRESET, "%s", coppice_explain(s.c));
	gate = 1;
	CHECK(s.gpu.stream_await(other) == 0);
	CHECK(s.gpu.stream_free(other) == 0);
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* ---- roles: memory ----------------------------------------------------------------------------------------------- */

static void fill(struct stem *s, int byte)
{
	uint8_t *bytes = malloc(ARENA_BYTES);

	memset(bytes, byte, ARENA_BYTES);
	CHECK(s->gpu.copy_now((uintptr_t)s->there, (uintptr_t)bytes, ARENA_BYTES) == 0);
	free(bytes);
}

static size_t count_bytes(struct stem *s, int byte)
{
	uint8_t *bytes = malloc(ARENA_BYTES);
	size_t n = 0;

	CHECK(s->gpu.copy_now((uintptr_t)bytes, (uintptr_t)s->there, ARENA_BYTES) == 0);
	for (size_t i = 0; i < ARENA_BYTES; i++)
		n += bytes[i] == byte;
	free(bytes);
	return n;
}

/* A byte: the arena is zero, then it is filled, and is as it was when all have had their turn. */
static int role_hold(const char *socket, char **args)
{
	int byte = atoi(args[0]);
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	CHECK(count_bytes(&s, 0) == ARENA_BYTES);
	fill(&s, byte);
	say_go();
	await_go();
	CHECK(count_bytes(&s, byte) == ARENA_BYTES);
	if (strcmp(args[1], "tidy") != 0)
		vanish();
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* Names an arena that another session has, and this one has not. */
static int role_thief(const char *socket, char **args)
{
	struct stem s = {0};

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	extend(&s, 1);
	s.arena->id = 3; /* 2 is where this connection's prompts lie */

	struct coppice_step_seq part = part_of(&s, 0, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	CHECK(coppice_step(s.lane, &step, &ticket) == 0, "%s", coppice_explain(s.c));
	CHECK(coppice_wait(s.lane, ticket, PATIENCE_NS) == -EINVAL);
	CHECK(strstr(coppice_explain(s.c), "not of this connection"), "%s", coppice_explain(s.c));
	vanish();
}

/* Says that it has closed its arena, and has not: what others have in theirs is nothing that it may see. */
static int role_liar(const char *socket, char **args)
{
	int byte = atoi(args[0]);
	Coppice__ArenaFree message = COPPICE__ARENA_FREE__INIT;
	struct call call = {.what = "liar",
			    .request = COPPICE__REQUEST__INIT,
			    .timeout_ns = PATIENCE_NS};
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	message.arena = s.arena->id;
	call.request.arena_free = &message;
	CHECK(connection_call(s.c, &call, &answer) == 0);
	say_go();
	await_go();
	CHECK(count_bytes(&s, byte) == 0, "another's arena is in view");
	vanish();
}

/* words: an arena is refused with them; a host arena serves on. */
static int role_refused(const char *socket, char **args)
{
	struct coppice_arena *arena;
	struct coppice *c;
	int r;

	CHECK(coppice_connect(&c, socket) == 0, "%s", coppice_explain(NULL));
	r = coppice_arena_new(c, COPPICE_DEVICE, 1, &arena);
	CHECK(r < 0);
	CHECK(strstr(coppice_explain(c), args[0]), "%s", coppice_explain(c));
	coppice_close(c);
	return role_plain(socket, args);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int n_args;
	int (*run)(const char *socket, char **args);
} roles[] = {
	{"probe", 0, role_probe}, {"decode", 1, role_decode},	{"plain", 0, role_plain},
	{"graph", 2, role_graph}, {"busy", 0, role_busy},	{"waiter", 1, role_waiter},
	{"hold", 2, role_hold},	  {"thief", 0, role_thief},	{"liar", 1, role_liar},
	{"fault", 0, role_fault}, {"refused", 1, role_refused}, {"mistakes", 0, role_mistakes},
};

int stem_main(const char *socket, int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
		if (strcmp(roles[i].name, argv[0]) == 0 && roles[i].n_args == argc - 1)
			return roles[i].run(socket, argv + 1);
	}
	fprintf(stderr, "no role %s\n", argv[0]);
	return 2;
}
