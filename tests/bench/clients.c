/*
 * clients.c - coppice-bench clients: N processes decode through a daemon, their sequences sharing a
 * prefix.
 *
 * Each process has one lane and one arena with random Q, K and V; the prefix is stored once,
 * without attention. A step has a token of each sequence, or some rows of a prompt's, always behind
 * the prefix. With host memory a step is submitted and waited for layer by layer; with device
 * memory the layers of a token are queued on the client's own stream, and the time is that of a
 * token by its layers. Printed, while all are at work and warm: time of a step (p50, p99,
 * p99.9, mean), the backend's own time a batch and what the p50 is over it, how many sessions meet
 * in a job, how long the sequences' own tails were, tokens a second of all. On a GPU, once all have
 * ended, the time of the kernels of a step of all sequences with tails of that length
 * (step_kernels.h), and what the p50 is over it.
 */
#include "bench.h"
#include "crew.h"
#include "daemon.h"
#include "mps.h"
#include "step_kernels.h"
#include "words.h"

#include "kernels/work.h"

#include <err.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 100000u
#define LEAST_TOKENS 4u /* of which the first warm up */
#define STAGGER_MAX_MS 3600000u

static struct {
	struct client_options each;
	uint32_t clients;
	double kernel_us; /* of a batch, measured elsewhere; 0: not known */
	const char *backend, *hold, *pool;
	bool mps;
} options = {.each = {.seqs = 1,
		      .rows = 1,
		      .prefix = 4096,
		      .layers = 4,
		      .tokens = 200,
		      .q_heads = 32,
		      .kv_heads = 8,
		      .dim = 128},
	     .clients = 8,
	     .backend = "auto",
	     .hold = "cost",
	     .pool = "4G"};

enum {
	KEY_KV_HEADS = 256,
	KEY_DIM,
	KEY_ROWS,
	KEY_MPS,
	KEY_STAGGER,
	KEY_WINDOW,
	KEY_KERNEL,
	KEY_POOL
};

static const struct args_option option_table[] = {
	{"clients", 'c', "N", "Processes (default 8)"},
	{"seqs", 's', "N", "Sequences of each, one step for all of them (default 1)"},
	{"prefix", 'p', "TOKENS", "Tokens that all share (default 4096)"},
	{"layers", 'l', "N", "Layers of the model (default 4)"},
	{"tokens", 't', "N", "Tokens that each sequence decodes (default 200)"},
	{"rows", KEY_ROWS, "N",
	 "Of each sequence in a step: more than one are a prompt's behind the prefix, --tokens "
	 "such prompts one after the other (default 1)"},
	{"q-heads", 'q', "N", "Query heads (default 32)"},
	{"kv-heads", KEY_KV_HEADS, "N", "KV heads (default 8)"},
	{"dim", KEY_DIM, "N", "Head dim (default 128)"},
	{"backend", 'b', "NAME", "The daemon's backend (default auto)"},
	{"memory", 'm', "KIND", "Of Q, K, V and O: host (default), or device"},
	{"mps", KEY_MPS, NULL, "Under an MPS control daemon of the bench's own"},
	{"stagger-ms", KEY_STAGGER, "MS",
	 "Each client starts at a random moment of so many (default 0)"},
	{"batch-window", KEY_WINDOW, "HOW", "The daemon's: cost (default), always, never"},
	{"pool", KEY_POOL, "BYTES", "The daemon's (default 4G)"},
	{"kernel-us", KEY_KERNEL, "US",
	 "Of a batch's kernels: what the p50 is over it (default: measured here)"},
	{0},
};

static int check_options(struct args *args, void *to)
{
	const struct client_options *o = &options.each;

	(void)to;
	if ((uint64_t)o->tokens * o->layers > MAX_STEPS)
		return args_fail(args, "--tokens by --layers are %u steps at most", MAX_STEPS);
	return 0;
}

static int take_memory(struct args *args)
{
	uint32_t place = 0;
	int r = words_take_place(args, "host device", &place);

	options.each.memory = place ? COPPICE_DEVICE : COPPICE_HOST;
	return r;
}

static int parse_option(struct args *args, int key, void *to)
{
	struct client_options *each = &options.each;

	(void)to;
	switch (key) {
	case 'c':
		return bench_take_whole(args, 1, CREW_MOST, &options.clients);
	case 's':
		return bench_take_whole(args, 1, CLIENT_MOST_SEQS, &each->seqs);
	case 'p':
		return bench_take_whole(args, 2, BENCH_TOKENS_MAX, &each->prefix);
	case 'l':
		return bench_take_whole(args, 1, MAX_STEPS / LEAST_TOKENS, &each->layers);
	case 't':
		return bench_take_whole(args, LEAST_TOKENS, MAX_STEPS, &each->tokens);
	case 'q':
		return bench_take_whole(args, 1, WORK_Q_HEADS_MAX, &each->q_heads);
	case KEY_KV_HEADS:
		return bench_take_whole(args, 1, WORK_Q_HEADS_MAX, &each->kv_heads);
	case KEY_ROWS:
		return bench_take_whole(args, 1, CLIENT_MOST_ROWS, &each->rows);
	case KEY_DIM:
		return bench_take_head_dim(args, &each->dim);
	case 'b':
		return words_take(args, WORDS_BACKENDS, &options.backend);
	case 'm':
		return take_memory(args);
	case KEY_MPS:
		options.mps = true;
		return 0;
	case KEY_STAGGER:
		return bench_take_whole(args, 0, STAGGER_MAX_MS, &each->stagger_ms);
	case KEY_WINDOW:
		return words_take(args, "cost always never", &options.hold);
	case KEY_POOL:
		return bench_take_pool(args, &options.pool);
	case KEY_KERNEL:
		return bench_take_rate(args, &options.kernel_us);
	}
	return 0;
}

/* ---- all of them ---------------------------------------------------------------------------- */

struct counts {
	double batches, busy_ns, rows, jobs, sessions;
};

static double count_of(const json_t *status, const char *key)
{
	return json_number_value(json_object_get(status, key));
}

static struct counts counts_now(const struct bench_daemon *d)
{
	json_t *status = bench_daemon_ask(d, "status");
	struct counts c = {count_of(status, "batches"), count_of(status, "busy_ns"),
			   count_of(status, "rows"), count_of(status, "decode_jobs"),
			   count_of(status, "decode_sessions")};

	json_decref(status);
	return c;
}

/* With as many rows of so long tails as there are; 0: not on a GPU. */
static double kernel_us(double tail)
{
	const struct client_options *o = &options.each;
	struct step_kernels of = {.q_heads = o->q_heads,
				  .kv_heads = o->kv_heads,
				  .dim = o->dim,
				  .prefix = o->prefix,
				  .n_seqs = o->seqs * options.clients,
				  .tail = (uint32_t)(tail + 0.5)};

	if (options.kernel_us > 0 || o->rows > 1)
		return options.kernel_us;
	return strncmp(options.backend, "cuda", 4) == 0 ? step_kernels_us(&of) : 0;
}

static double mean_of(const double *us, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += us[i];
	return sum / n;
}

static void report(double *us, uint32_t n, double tail, double wall_s, struct counts before,
		   struct counts after)
{
	const struct client_options *o = &options.each;
	double batches = after.batches - before.batches,
	       backend_us = (after.busy_ns - before.busy_ns) / 1e3 / batches,
	       kernels = kernel_us(tail);
	char rows[16] = "", name[80];

	if (o->rows > 1)
		snprintf(rows, sizeof(rows), "_r%u", o->rows);
	snprintf(name, sizeof(name), "%ux%u_p%u%s_%u/%u%s%s", options.clients, o->seqs, o->prefix,
		 rows, o->q_heads, o->kv_heads, o->memory == COPPICE_HOST ? "" : "_device",
		 options.mps ? "_mps" : "");
	bench_sort(us, n);
	bench_print("clients", name, "p50_us", us[n / 2], "us");
	bench_print("clients", name, "p99_us", us[(uint32_t)(n * 0.99)], "us");
	bench_print("clients", name, "p999_us", us[(uint32_t)(n * 0.999)], "us");
	bench_print("clients", name, "mean_us", mean_of(us, n), "us");
	bench_print("clients", name, "backend_us", backend_us, "us");
	bench_print("clients", name, "over_backend_us", us[n / 2] - backend_us, "us");
	if (kernels > 0) {
		bench_print("clients", name, "kernel_us", kernels, "us");
		bench_print("clients", name, "over_kernel_us", us[n / 2] - kernels, "us");
	}
	if (o->rows == 1) {
		bench_print("clients", name, "sessions_a_job",
			    (after.sessions - before.sessions) / (after.jobs - before.jobs),
			    "sessions");
		bench_print("clients", name, "tail_tokens", tail, "tokens");
	}
	bench_print("clients", name, "tokens_s", (after.rows - before.rows) / o->layers / wall_s,
		    "1/s");
}

static void run(const struct bench_daemon *d)
{
	const uint32_t n = client_times(&options.each) * options.clients;
	double *us = calloc(n, sizeof(*us)), tail, wall_s;
	struct counts before, after;
	struct crew crew;
	uint64_t start_ns;

	if (!us)
		errx(1, "out of memory");
	crew_start(&crew, &options.each, options.clients, d->socket);
	before = counts_now(d);
	start_ns = clock_now_ns();
	tail = crew_measure(&crew, us);
	after = counts_now(d);
	wall_s = (double)(clock_now_ns() - start_ns) / 1e9;
	crew_end(&crew);
	report(us, n, tail, wall_s, before, after);
	free(us);
}

int clients_main(int argc, char **argv)
{
	const struct bench_options of_clients = {
		.table = option_table,
		.take = parse_option,
		.check = check_options,
		.doc = "Processes that decode through a daemon of the bench's own.",
	};
	struct bench_daemon d;
	int r = bench_read(&of_clients, argc, argv);

	if (r >= 0)
		return r;
	if (options.mps)
		mps_start();
	bench_daemon_start(&d, -1,
			   (const char *[]){"--backend", options.backend, "--pool", options.pool,
					    "--batch-window", options.hold, NULL});
	run(&d);
	bench_daemon_stop(&d);
	if (options.mps)
		mps_stop();
	return 0;
}
