/*
 * clients.c - coppice-bench clients: N processes decode through a daemon, their sequences sharing a prefix.
 *
 * Each process has one lane and one host arena with random Q, K and V; the prefix is stored once, without attention.
 * Printed: time from a step's submission to its end (p50, p99), tokens a second of all, and the backend's own time a
 * batch, so that what the way through the daemon costs can be told apart.
 */
#include "bench.h"
#include "daemon.h"

#include "client/coppice.h"

#include <argp.h>
#include <err.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHUNK 256u
#define MAX_CLIENTS 64u
#define MAX_STEPS 100000u

static struct {
	uint32_t clients, seqs, prefix, layers, tokens, q_heads, kv_heads, dim;
	const char *backend;
} options = {.clients = 8,
	     .seqs = 1,
	     .prefix = 4096,
	     .layers = 4,
	     .tokens = 200,
	     .q_heads = 32,
	     .kv_heads = 8,
	     .dim = 128,
	     .backend = "auto"};

enum { KEY_KV_HEADS = 256, KEY_DIM };

static const struct argp_option argp_options[] = {
	{"clients", 'c', "N", 0, "Processes (default 8)", 0},
	{"seqs", 's', "N", 0, "Sequences of each, one step for all of them (default 1)", 0},
	{"prefix", 'p', "TOKENS", 0, "Tokens that all share (default 4096)", 0},
	{"layers", 'l', "N", 0, "Layers of the model (default 4)", 0},
	{"tokens", 't', "N", 0, "Tokens that each sequence decodes (default 200)", 0},
	{"q-heads", 'q', "N", 0, "Query heads (default 32)", 0},
	{"kv-heads", KEY_KV_HEADS, "N", 0, "KV heads (default 8)", 0},
	{"dim", KEY_DIM, "N", 0, "Head dim (default 128)", 0},
	{"backend", 'b', "NAME", 0, "The daemon's backend (default auto)", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	uint32_t n = arg ? (uint32_t)strtoul(arg, NULL, 10) : 0;

	switch (key) {
	case 'c':
		options.clients = n;
		break;
	case 's':
		options.seqs = n;
		break;
	case 'p':
		options.prefix = n;
		break;
	case 'l':
		options.layers = n;
		break;
	case 't':
		options.tokens = n;
		break;
	case 'q':
		options.q_heads = n;
		break;
	case KEY_KV_HEADS:
		options.kv_heads = n;
		break;
	case KEY_DIM:
		options.dim = n;
		break;
	case 'b':
		options.backend = arg;
		break;
	case ARGP_KEY_END:
		if (!options.clients || options.clients > MAX_CLIENTS || !options.seqs ||
		    !options.layers || options.tokens < 2 ||
		    options.tokens * options.layers > MAX_STEPS || options.prefix < 2)
			argp_error(state, "1 to %u clients, 2 tokens and more, %u steps at most",
				   MAX_CLIENTS, MAX_STEPS);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* ---- a client ---------------------------------------------------------------------------------------------- */

struct client {
	struct coppice *c;
	struct coppice_lane *lane;
	struct coppice_seq **seqs; /* [options.seqs] */
	struct coppice_step_seq *parts;
	uint16_t *arena; /* q, k, v, o of every sequence's rows, one part after the other */
	double *us; /* of each step */
	uint32_t n_us;
};

static void check(int r, const struct coppice *c)
{
	if (r < 0)
		errx(1, "%s", coppice_explain(c));
}

static size_t part_elements(uint32_t n_rows)
{
	return (size_t)n_rows * options.dim * 2 * (options.q_heads + options.kv_heads);
}

static void part_place(struct client *cl, uint32_t i, uint32_t n_rows)
{
	size_t q = (size_t)n_rows * options.q_heads * options.dim,
	       k = (size_t)n_rows * options.kv_heads * options.dim;
	uint16_t *at = cl->arena + i * part_elements(n_rows);

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

/* What is not cached of the prompt, chunk by chunk, stored without attention. */
static void fill(struct client *cl, const uint32_t *prompt, uint32_t from)
{
	for (uint32_t n; from < options.prefix; from += n) {
		n = options.prefix - from < CHUNK ? options.prefix - from : CHUNK;
		check(coppice_seq_extend(cl->seqs[0], prompt + from, n, NULL), cl->c);
		part_place(cl, 0, n);
		for (uint32_t layer = 0; layer < options.layers; layer++)
			check(coppice_wait(cl->lane, submit(cl, layer, 1, true), COPPICE_FOREVER),
			      cl->c);
	}
}

static void client_open(struct client *cl, const char *socket, uint32_t number)
{
	struct coppice_model_info info = {.name = "bench",
					  .n_layers = options.layers,
					  .n_q_heads = options.q_heads,
					  .n_kv_heads = options.kv_heads,
					  .head_dim = options.dim,
					  .dtype = COPPICE_BF16};
	size_t rows = options.seqs > CHUNK ? options.seqs : CHUNK;
	struct coppice_arena *arena;
	uint32_t model, *prompt = calloc(options.prefix, sizeof(*prompt));

	check(coppice_connect(&cl->c, socket), NULL);
	check(coppice_model_open(cl->c, &info, &model), cl->c);
	check(coppice_arena_new(cl->c, COPPICE_HOST, part_elements((uint32_t)rows) * 2, &arena),
	      cl->c);
	check(coppice_lane_new(cl->c, &cl->lane), cl->c);
	cl->arena = coppice_arena_base(arena);
	srandom(number + 1);
	for (size_t i = 0; i < part_elements((uint32_t)rows); i++) /* bf16 in (-2, 2) */
		cl->arena[i] = (uint16_t)((random() & 0x80ff) | 0x3f00);
	for (uint32_t i = 0; i < options.prefix; i++)
		prompt[i] = i;
	cl->seqs = calloc(options.seqs, sizeof(struct coppice_seq *));
	cl->parts = calloc(options.seqs, sizeof(*cl->parts));
	cl->us = calloc(options.tokens * options.layers, sizeof(*cl->us));
	for (uint32_t i = 0; i < options.seqs; i++) {
		struct coppice_match match;

		check(coppice_seq_open(cl->lane, model, prompt, options.prefix, 0, &cl->seqs[i],
				       &match),
		      cl->c);
		check(coppice_seq_wait(cl->seqs[i], COPPICE_FOREVER, &match), cl->c);
		struct coppice_seq *first = cl->seqs[0];

		cl->seqs[0] = cl->seqs[i];
		fill(cl, prompt, match.cached);
		cl->seqs[0] = first;
	}
	free(prompt);
}

static void decode(struct client *cl, uint32_t number)
{
	for (uint32_t i = 0; i < options.seqs; i++)
		part_place(cl, i, 1);
	for (uint32_t t = 0; t < options.tokens; t++) {
		for (uint32_t i = 0; i < options.seqs; i++) {
			uint32_t id = 1000000 + number * 65536 + i * 1024 + t % 1024;

			check(coppice_seq_extend(cl->seqs[i], &id, 1, NULL), cl->c);
		}
		for (uint32_t layer = 0; layer < options.layers; layer++) {
			uint64_t start_ns = bench_now_ns();

			check(coppice_wait(cl->lane, submit(cl, layer, options.seqs, false),
					   COPPICE_FOREVER),
			      cl->c);
			cl->us[cl->n_us++] = (double)(bench_now_ns() - start_ns) / 1e3;
		}
	}
}

/* Ready to the parent, go from it, times back. */
static void client_main(const char *socket, uint32_t number, int to_parent, int from_parent)
{
	struct client cl = {0};
	char go;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	client_open(&cl, socket, number);
	if (write(to_parent, "r", 1) != 1 || read(from_parent, &go, 1) != 1)
		errx(1, "the parent is gone");
	decode(&cl, number);
	size_t bytes = cl.n_us * sizeof(*cl.us), done = 0;

	while (done < bytes) {
		ssize_t n = write(to_parent, (char *)cl.us + done, bytes - done);

		if (n <= 0)
			errx(1, "the parent is gone");
		done += (size_t)n;
	}
	coppice_close(cl.c);
	exit(0);
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

struct busy {
	double batches, busy_ns;
};

static struct busy busy_now(const struct bench_daemon *d)
{
	json_t *status = bench_daemon_ask(d, "status");
	struct busy b = {json_number_value(json_object_get(status, "batches")),
			 json_number_value(json_object_get(status, "busy_ns"))};

	json_decref(status);
	return b;
}

static void read_all(int fd, void *to, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = read(fd, (char *)to + done, bytes - done);

		if (n <= 0)
			errx(1, "a client failed");
		done += (size_t)n;
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(double *us, uint32_t n, double wall_s, struct busy before, struct busy after)
{
	char name[64];

	snprintf(name, sizeof(name), "%ux%u_p%u_%u/%u", options.clients, options.seqs,
		 options.prefix, options.q_heads, options.kv_heads);
	qsort(us, n, sizeof(*us), compare);
	bench_print("clients", name, "p50_us", us[n / 2], "us");
	bench_print("clients", name, "p99_us", us[(uint32_t)(n * 0.99)], "us");
	bench_print("clients", name, "backend_us",
		    (after.busy_ns - before.busy_ns) / 1e3 / (after.batches - before.batches),
		    "us");
	bench_print("clients", name, "steps_a_batch", n / (after.batches - before.batches),
		    "steps");
	bench_print("clients", name, "tokens_s",
		    options.clients * options.seqs * options.tokens / wall_s, "1/s");
}

static void run(const struct bench_daemon *d)
{
	uint32_t each = options.tokens * options.layers, n = each * options.clients;
	double *us = calloc(n, sizeof(*us));
	int up[MAX_CLIENTS][2], down[MAX_CLIENTS][2];
	char ready;

	for (uint32_t i = 0; i < options.clients; i++) {
		if (pipe(up[i]) < 0 || pipe(down[i]) < 0)
			err(1, "pipe");
		if (fork() == 0)
			client_main(d->socket, i, up[i][1], down[i][0]);
		read_all(up[i][0], &ready, 1);
	}
	struct busy before = busy_now(d);
	uint64_t start_ns = bench_now_ns();

	for (uint32_t i = 0; i < options.clients; i++) {
		if (write(down[i][1], "g", 1) != 1)
			err(1, "pipe");
	}
	for (uint32_t i = 0; i < options.clients; i++)
		read_all(up[i][0], us + i * each, each * sizeof(*us));
	double wall_s = (double)(bench_now_ns() - start_ns) / 1e9;

	report(us, n, wall_s, before, busy_now(d));
	free(us);
}

int clients_main(int argc, char **argv)
{
	const struct argp_child children[] = {{&bench_common_argp, 0, NULL, 0}, {0}};
	const struct argp argp = {
		.options = argp_options,
		.parser = parse_option,
		.doc = "Processes that decode through a daemon of the bench's own.",
		.children = children};
	struct bench_daemon d;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	bench_daemon_start(&d, -1,
			   (const char *[]){"--backend", options.backend, "--pool", "4G", NULL});
	run(&d);
	bench_daemon_stop(&d);
	return 0;
}
