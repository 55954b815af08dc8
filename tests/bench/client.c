/*
 * client.c - what a client does: it opens, fills the prefix if it has to, decodes by the host or by
 * a stream, and answers its pipes.
 */
#include "client.h"

#include "app_stream.h"
#include "bench.h"

#include <err.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHUNK 256u /* of the prefix, as it is stored */
#define EXTENDED 128u /* sequences, at a time */

struct client {
	const struct client_options *o;
	struct coppice *c;
	struct coppice_lane *lane;
	struct coppice_seq **seqs; /* [o->seqs] */
	struct coppice_step_seq *parts;
	uint16_t *arena; /* q, k, v, o of every sequence's rows, one part after the other */
	struct app_stream *stream; /* NULL: host memory */
	/* device memory that the stream copies to the arena, as large as a token's parts */
	void *inputs;
	double *us; /* the times */
	uint32_t n_us;
	bool measures; /* times are taken */
	uint32_t n_tokens; /* decoded */
	uint32_t tail; /* of them in each sequence, behind the prefix */
};

static void check(int r, const struct coppice *c)
{
	if (r < 0)
		errx(1, "%s", coppice_explain(c));
}

static size_t part_elements(const struct client *cl, uint32_t n_rows)
{
	return (size_t)n_rows * cl->o->dim * 2 * (cl->o->q_heads + cl->o->kv_heads);
}

static void part_place(struct client *cl, uint32_t i, uint32_t n_rows)
{
	size_t q = (size_t)n_rows * cl->o->q_heads * cl->o->dim,
	       k = (size_t)n_rows * cl->o->kv_heads * cl->o->dim;
	uint16_t *at = cl->arena + i * part_elements(cl, n_rows);

	cl->parts[i] = (struct coppice_step_seq){.seq = cl->seqs[i],
						 .n_new = n_rows,
						 .q = at,
						 .k = at + q,
						 .v = at + q + k,
						 .o = at + q + 2 * k};
}

static uint64_t submit(struct client *cl, uint32_t layer, uint32_t n_seqs, bool append_only)
{
	struct coppice_step step = {.layer = layer,
				    .seqs = cl->parts,
				    .n_seqs = n_seqs,
				    .append_only = append_only};
	uint64_t ticket;

	check(coppice_step(cl->lane, &step, &ticket), cl->c);
	return ticket;
}

/* ---- to the end of the prefix --------------------------------------------------------------- */

/* What is not cached of the prompt, chunk by chunk, stored without attention. */
static void fill(struct client *cl, const uint32_t *prompt, uint32_t from)
{
	for (uint32_t n; from < cl->o->prefix; from += n) {
		n = cl->o->prefix - from < CHUNK ? cl->o->prefix - from : CHUNK;
		check(coppice_seq_extend(cl->seqs[0], prompt + from, n, NULL), cl->c);
		part_place(cl, 0, n);
		for (uint32_t layer = 0; layer < cl->o->layers; layer++)
			check(coppice_wait(cl->lane, submit(cl, layer, 1, true), COPPICE_FOREVER),
			      cl->c);
	}
}

/* bf16 in (-2, 2) */
static void draw(uint16_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint16_t)((random() & 0x80ff) | 0x3f00);
}

static void arena_open(struct client *cl)
{
	uint32_t n = cl->o->seqs * cl->o->rows, rows = n > CHUNK ? n : CHUNK;
	size_t n_elements = part_elements(cl, rows), bytes = n_elements * sizeof(uint16_t);
	struct coppice_arena *arena;
	uint16_t *values;

	check(coppice_arena_new(cl->c, cl->o->memory, bytes, &arena), cl->c);
	cl->arena = coppice_arena_base(arena);
	if (!cl->stream) {
		draw(cl->arena, n_elements);
		return;
	}
	values = malloc(bytes);
	if (!values)
		errx(1, "out of memory");
	draw(values, n_elements);
	cl->inputs = app_stream_alloc(cl->stream, bytes);
	app_stream_upload(cl->stream, cl->inputs, values, bytes);
	app_stream_upload(cl->stream, cl->arena, values, bytes);
	free(values);
}

static void sequence_open(struct client *cl, uint32_t model, const uint32_t *prompt, uint32_t i)
{
	struct coppice_seq *first = cl->seqs[0];
	struct coppice_match match;

	check(coppice_seq_open(cl->lane, model, prompt, cl->o->prefix, 0, &cl->seqs[i], &match),
	      cl->c);
	check(coppice_seq_wait(cl->seqs[i], COPPICE_FOREVER, &match), cl->c);
	if (i > 0)
		cl->seqs[0] = cl->seqs[i];
	fill(cl, prompt, match.cached);
	if (i > 0)
		cl->seqs[0] = first;
}

static void client_open(struct client *cl, const char *socket, uint32_t number)
{
	struct coppice_model_info info = {.name = "bench",
					  .n_layers = cl->o->layers,
					  .n_q_heads = cl->o->q_heads,
					  .n_kv_heads = cl->o->kv_heads,
					  .head_dim = cl->o->dim,
					  .dtype = COPPICE_BF16};
	uint32_t model, *prompt = calloc(cl->o->prefix, sizeof(*prompt));

	cl->seqs = calloc(cl->o->seqs, sizeof(struct coppice_seq *));
	cl->parts = calloc(cl->o->seqs, sizeof(*cl->parts));
	cl->us = calloc(client_times(cl->o), sizeof(*cl->us));
	if (!prompt || !cl->seqs || !cl->parts || !cl->us)
		errx(1, "out of memory");
	srandom(number + 1);
	if (cl->o->memory == COPPICE_DEVICE)
		cl->stream = app_stream_new();
	check(coppice_connect(&cl->c, socket), NULL);
	check(coppice_model_open(cl->c, &info, &model), cl->c);
	arena_open(cl);
	check(coppice_lane_new(cl->c, &cl->lane), cl->c);
	for (uint32_t i = 0; i < cl->o->prefix; i++)
		prompt[i] = i;
	for (uint32_t i = 0; i < cl->o->seqs; i++)
		sequence_open(cl, model, prompt, i);
	free(prompt);
}

/* ---- decoding ------------------------------------------------------------------------------- */

/* A lane has room for 256 entries. */
static void extend_all(struct client *cl, uint32_t number, uint32_t token)
{
	uint32_t ids[CLIENT_MOST_ROWS];

	for (uint32_t i = 0; i < cl->o->seqs; i++) {
		uint32_t id = 1000000 + ((number * CLIENT_MOST_SEQS + i) << 10) + token % 1024;
		uint64_t ticket;

		for (uint32_t row = 0; row < cl->o->rows; row++)
			ids[row] = id + row;
		check(coppice_seq_extend(cl->seqs[i], ids, cl->o->rows, &ticket), cl->c);
		if (i % EXTENDED == EXTENDED - 1)
			check(coppice_wait(cl->lane, ticket, COPPICE_FOREVER), cl->c);
	}
}

static void put_time(struct client *cl, double us)
{
	if (cl->measures)
		cl->us[cl->n_us++] = us;
}

/* Layer by layer: each is waited for. */
static void token_on_host(struct client *cl)
{
	for (uint32_t layer = 0; layer < cl->o->layers; layer++) {
		uint64_t start_ns = clock_now_ns();
		uint64_t ticket = submit(cl, layer, cl->o->seqs, false);

		check(coppice_wait(cl->lane, ticket, COPPICE_FOREVER), cl->c);
		put_time(cl, (double)(clock_now_ns() - start_ns) / 1e3);
	}
}

/* All layers on the stream: each begins with a copy to Q, K and V, as the app's kernels would write
 * them. */
static void token_on_stream(struct client *cl)
{
	size_t part = part_elements(cl, cl->o->rows) * sizeof(uint16_t);
	void *stream = app_stream_handle(cl->stream);
	uint64_t start_ns = clock_now_ns(), ticket = 0;
	struct coppice_result result;

	for (uint32_t layer = 0; layer < cl->o->layers; layer++) {
		struct coppice_step step = {.layer = layer,
					    .seqs = cl->parts,
					    .n_seqs = cl->o->seqs};

		app_stream_copy(cl->stream, cl->arena, cl->inputs, cl->o->seqs * part);
		check(coppice_step_on_stream(cl->lane, &step, stream, &ticket), cl->c);
		check(coppice_wait_on_stream(cl->lane, ticket, stream), cl->c);
	}
	app_stream_wait(cl->stream);
	put_time(cl, (double)(clock_now_ns() - start_ns) / 1e3 / cl->o->layers);
	check(coppice_wait(cl->lane, ticket, COPPICE_FOREVER), cl->c);
	check(coppice_poll(cl->lane, ticket, &result), cl->c);
	check(result.status, cl->c);
}

static void trim_all(struct client *cl)
{
	for (uint32_t i = 0; i < cl->o->seqs; i++) {
		uint64_t ticket;

		check(coppice_seq_trim(cl->seqs[i], cl->o->prefix, &ticket), cl->c);
		check(coppice_wait(cl->lane, ticket, COPPICE_FOREVER), cl->c);
	}
	cl->tail = 0;
}

static void decode_token(struct client *cl, uint32_t number)
{
	extend_all(cl, number, cl->n_tokens);
	if (cl->stream)
		token_on_stream(cl);
	else
		token_on_host(cl);
	cl->n_tokens++;
	cl->tail++;
	if (cl->o->rows > 1)
		trim_all(cl);
}

static void decode(struct client *cl, uint32_t number, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < n_tokens; i++)
		decode_token(cl, number);
}

static void tell(int to_parent, const void *what, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = write(to_parent, (const char *)what + done, bytes - done);

		if (n <= 0)
			errx(1, "the parent is gone");
		done += (size_t)n;
	}
}

static void await(int from_parent)
{
	char byte;

	if (read(from_parent, &byte, 1) != 1)
		errx(1, "the parent is gone");
}

/* However long that takes, tails are no longer than those that are measured. */
static void decode_until_told(struct client *cl, uint32_t number, int from_parent)
{
	struct pollfd p = {.fd = from_parent, .events = POLLIN};

	while (poll(&p, 1, 0) == 0) {
		if (cl->tail >= cl->o->tokens)
			trim_all(cl);
		decode_token(cl, number);
	}
	await(from_parent);
}

/* What was decoded until the parent told is a matter of chance, and would be read by each step. */
static void measure(struct client *cl, uint32_t number, int to_parent)
{
	uint32_t first = client_warm_tokens(cl->o);
	double tail;

	trim_all(cl);
	decode(cl, number, first);
	cl->measures = true;
	decode(cl, number, cl->o->tokens - first);
	cl->measures = false;
	tail = (first + cl->tail + 1) / 2.0;
	tell(to_parent, &tail, sizeof(tail));
	tell(to_parent, cl->us, cl->n_us * sizeof(*cl->us));
}

void client_main(const struct client_options *options, const char *socket, uint32_t number,
		 int to_parent, int from_parent)
{
	struct client cl = {.o = options};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	client_open(&cl, socket, number);
	tell(to_parent, "r", 1);
	await(from_parent);
	if (options->stagger_ms)
		usleep((useconds_t)random() % (options->stagger_ms * 1000));
	for (uint32_t i = 0; i < cl.o->seqs; i++)
		part_place(&cl, i, options->rows);
	decode(&cl, number, client_warm_tokens(options));
	tell(to_parent, "w", 1);
	decode_until_told(&cl, number, from_parent);
	measure(&cl, number, to_parent);
	decode_until_told(&cl, number, from_parent);
	coppice_close(cl.c);
	exit(0);
}
