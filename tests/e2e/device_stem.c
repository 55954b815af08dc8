/*
 * device_stem.c - what the client processes of device_test.c do, a function a role; device_memory.c
 * has the roles that are about memory.
 *
 * A role computes with what it finds and checks every row against double precision. It waits where
 * the test has to do something first, and ends with 0 only if all was right.
 */
#include "device_stem.h"

#include "device_client.h"
#include "device_memory.h"
#include "client/lib/lane/lane.h"
#include "client/lib/stream/stream.h"
#include "proto/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- roles: steps --------------------------------------------------------------------------- */

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

/* Where the library has kernels a stream waits for a word of the lane's on the device, which the
 * daemon's writes. */
static void check_near_word(const struct stem *s)
{
	const struct lane_streams *streams = s->lane->streams;

	CHECK(streams && (streams->near.address != 0) == (streams->kernels.module != NULL));
}

/* device | host: a prefill and some tokens on a stream, each layer long before its inputs are
 * there. */
static int role_decode(const char *socket, char **args)
{
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, memory_of(args[0]));
	decode(&s, PREFILL, true);
	for (uint32_t i = 0; i < 20; i++)
		decode(&s, 1, i < 4);
	check_near_word(&s);
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

/* Of a token's layer: on the stream behind what puts its inputs there; append: K and V alone. */
static void capture_layer(struct stem *s, struct coppice_capture *capture, uint32_t layer,
			  bool append)
{
	struct coppice_step_seq part = part_of(s, layer, 1);
	struct coppice_step step = {.layer = layer,
				    .seqs = &part,
				    .n_seqs = 1,
				    .append_only = append};

	if (append)
		part.q = part.o = NULL;
	put_inputs(s, layer);
	CHECK(coppice_step_on_stream(s->lane, &step, s->stream, NULL) == -EINVAL);
	CHECK(coppice_capture_step(capture, &step, s->stream) == 0, "%s", coppice_explain(s->c));
	CHECK(coppice_capture_wait(capture, s->stream) == 0, "%s", coppice_explain(s->c));
	if (!append)
		put_outputs(s, layer);
}

static void capture(struct stem *s, bool append, struct coppice_capture **ret, void **ret_graph,
		    void **ret_replay)
{
	CHECK(coppice_capture_new(s->lane, s->stream, ret) == 0, "%s", coppice_explain(s->c));
	CHECK(s->gpu.capture_begin(s->stream, 1) == 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		capture_layer(s, *ret, layer, append);
	CHECK(s->gpu.capture_end(s->stream, ret_graph) == 0);
	CHECK(s->gpu.graph_make(ret_replay, *ret_graph, 0) == 0);
}

static void check_statuses(struct stem *s, uint64_t last)
{
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		check_ticket(s, last - layer);
}

/* One token for each launch of the graph; every 10th is computed again. */
static void replay_token(struct stem *s, struct coppice_capture *capture, void *replay)
{
	uint64_t last, begin_ns;

	extend(s, 1);
	CHECK(coppice_capture_submit(capture, NULL, &last) == 0, "%s", coppice_explain(s->c));
	begin_ns = clock_now_ns();
	CHECK(s->gpu.graph_launch(replay, s->stream) == 0);
	CHECK(s->gpu.stream_await(s->stream) == 0);
	s->layer_ns[s->n_tokens] = (clock_now_ns() - begin_ns) / LAYERS;
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
	capture(&s, false, &captured, &graph, &replay);
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

/* What was put into the arena stays there: no O is written where none was given a place. */
static void replay_append(struct stem *s, struct coppice_capture *capture, void *replay)
{
	uint64_t last;

	extend(s, 1);
	CHECK(coppice_capture_submit(capture, NULL, &last) == 0, "%s", coppice_explain(s->c));
	CHECK(s->gpu.graph_launch(replay, s->stream) == 0);
	CHECK(s->gpu.stream_await(s->stream) == 0);
	check_statuses(s, last);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		CHECK(memcmp(&s->there[layer], &s->host[layer], offsetof(struct place, o)) == 0,
		      "layer %u, token %u", layer, s->n_tokens);
	s->n_tokens++;
}

/* Tokens that a graph appends alone, and others that attend to them; over a host arena, which can
 * be looked at. */
static int role_append(const char *socket, char **args)
{
	struct coppice_capture *captured;
	struct stem s = {0};
	void *graph, *replay;

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_HOST);
	capture(&s, true, &captured, &graph, &replay);
	for (uint32_t i = 0; i < 5; i++) {
		replay_append(&s, captured, replay);
		replay_append(&s, captured, replay);
		decode(&s, 1, false);
	}
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

/* ---- roles: ends ---------------------------------------------------------------------------- */

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

/*
 * A stream waits for a step whose inputs another stream has not written, when the daemon dies:
 * alone, the library is not called before the stream has gone on; else it is.
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

/* The CPU waits, not a stream; nobody calls in between. */
static int role_sleeper(const char *socket, char **args)
{
	struct stem s = {0};
	_Atomic int gate = 0;
	uint64_t ticket, begin_ns;

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_HOST);
	extend(&s, 1);
	CHECK(s.gpu.call(s.stream, hold_gate, (void *)&gate) == 0);

	struct coppice_step_seq part = part_of(&s, 0, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};

	CHECK(coppice_step_on_stream(s.lane, &step, s.stream, &ticket) == 0, "%s",
	      coppice_explain(s.c));
	say_go();
	begin_ns = clock_now_ns();
	CHECK(coppice_wait(s.lane, ticket, PATIENCE_NS) == -ECONNRESET, "%s", coppice_explain(s.c));
	CHECK(clock_now_ns() - begin_ns < PATIENCE_NS / 2);
	CHECK(coppice_seq_extend(s.seq, &(uint32_t){1}, 1, NULL) == -ECONNRESET);
	gate = 1;
	CHECK(s.gpu.stream_await(s.stream) == 0);
	client_end(&s);
	gpu_end(&s);
	return 0;
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

/* ---- main ----------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int n_args;
	int (*run)(const char *socket, char **args);
} roles[] = {
	{"probe", 0, role_probe},	{"decode", 1, role_decode},
	{"plain", 0, role_plain},	{"graph", 2, role_graph},
	{"busy", 0, role_busy},		{"waiter", 1, role_waiter},
	{"sleeper", 0, role_sleeper},	{"hold", 2, role_hold},
	{"thief", 0, role_thief},	{"liar", 1, role_liar},
	{"keeper", 1, role_keeper},	{"tidy", 0, role_tidy},
	{"fault", 0, role_fault},	{"refused", 1, role_refused},
	{"mistakes", 0, role_mistakes}, {"append", 0, role_append},
	{"view", 0, role_view},		{"cancelled", 1, role_cancelled},
	{"weights", 0, role_weights},
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
