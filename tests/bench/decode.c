/*
 * decode.c - coppice-bench decode: processes that decode behind one document, the daemon computing
 * the tokens of all of them; and with --apart each its own, as they would without it.
 *
 * Printed for each way: what a client sees of a token (p50, p99), also while sessions come and go;
 * tokens a second of all; the document's computing, the first tokens behind it; weights read a
 * token; memory of the daemon and of a client (Pss: a page that several have mapped counts in
 * parts); and how the p50 compares with the limit: weights and KV read once, at the rate at which
 * this machine reads memory, or that of the card.
 */
#ifdef BENCH_HAVE_AGENT
#include "bench.h"
#include "daemon.h"
#include "decode_client.h"
#include "machine.h"

#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CARD_BYTES_S 4.45e12 /* one H200, weights in a stream */
#define SCRATCH_BYTES (UINT64_C(2) << 30) /* more than a program takes to be run */
#define LOOK_US 1000u

static struct {
	struct decode_options each;
	const char *shape, *cache, *backend, *pool;
	double bytes_s; /* 0: not given */
	bool apart;
} options = {.each = {.n_clients = 8, .n_seqs = 1, .document = 1024, .prompt = 64, .n_tokens = 32},
	     .shape = "llama-3.2-1b",
	     .backend = "auto",
	     .pool = "2G"};

enum { KEY_PROMPT = 256, KEY_CACHE, KEY_POOL, KEY_RATE, KEY_APART };

static const struct args_option option_table[] = {
	{"model", 'm', "SHAPE",
	 "tiny, llama-3.2-1b (default), llama-3.2-3b, llama-3.1-8b, or a Llama's config.json"},
	{"models", KEY_CACHE, "DIR",
	 "Where random weights are kept (default: models/ of the build)"},
	{"clients", 'c', "N", "Processes (default 8)"},
	{"seqs", 's', "N", "Sequences of each (default 1)"},
	{"document", 'd', "TOKENS", "That all have in common (default 1024)"},
	{"prompt", KEY_PROMPT, "TOKENS", "Of each sequence alone, behind it (default 64)"},
	{"tokens", 't', "N", "Timed of each sequence, once alone and once joined (default 32)"},
	{"backend", 'b', "NAME", "The daemon's backend (default auto)"},
	{"pool", KEY_POOL, "BYTES", "The daemon's (default 2G)"},
	{"rate", KEY_RATE, "GB/S",
	 "At which memory is read (default: measured on a CPU, 4450 on a GPU)"},
	{"apart", KEY_APART, NULL, "Then once more, each process computing its own layers"},
	{0},
};

static int check_options(struct args *args, void *to)
{
	const struct decode_options *o = &options.each;

	(void)to;
	if (!o->n_clients || o->n_clients > DECODE_CLIENTS || !o->n_seqs ||
	    o->n_seqs > DECODE_SEQS || o->n_tokens < 4 || o->n_tokens > DECODE_TIMES ||
	    o->document < 2 || !o->prompt)
		return args_fail(args,
				 "1 to %u clients, 1 to %u sequences, 4 to %u tokens, a document "
				 "of 2 and a prompt of 1 at least",
				 DECODE_CLIENTS, DECODE_SEQS, DECODE_TIMES);
	return 0;
}

static int take_number(struct args *args, int key)
{
	uint32_t *const to = key == 'c'	  ? &options.each.n_clients
			     : key == 's' ? &options.each.n_seqs
			     : key == 'd' ? &options.each.document
			     : key == 't' ? &options.each.n_tokens
					  : &options.each.prompt;
	uint64_t n;
	int r = args_whole(args, 1, 1u << 20, &n);

	if (r == 0)
		*to = (uint32_t)n;
	return r;
}

static int parse_option(struct args *args, int key, void *to)
{
	(void)to;
	switch (key) {
	case 'm':
		options.shape = args->value;
		return 0;
	case KEY_CACHE:
		options.cache = args->value;
		return 0;
	case 'b':
		options.backend = args->value;
		return 0;
	case KEY_POOL:
		options.pool = args->value;
		return 0;
	case KEY_RATE:
		options.bytes_s = strtod(args->value, NULL) * 1e9;
		return 0;
	case KEY_APART:
		options.apart = true;
		return 0;
	default:
		return take_number(args, key);
	}
}

/* ---- a run ---------------------------------------------------------------------------------- */

struct run {
	struct bench_daemon daemon;
	struct decode_board *board;
	pid_t pids[DECODE_CLIENTS];
	double daemon_bytes, client_bytes; /* Pss; of a client the mean */
	uint32_t n_joined;
};

/* A client that ended says why itself. */
static void look_for_the_dead(void)
{
	if (waitpid(-1, NULL, WNOHANG) > 0)
		errx(1, "a client failed");
}

static void await_all(struct decode_board *board)
{
	while (atomic_load_explicit(&board->n_arrived, memory_order_acquire) <
	       options.each.n_clients) {
		look_for_the_dead();
		usleep(LOOK_US);
	}
	atomic_store(&board->n_arrived, 0);
}

static void begin(struct decode_board *board, enum decode_phase phase)
{
	atomic_store_explicit(&board->phase, phase, memory_order_release);
}

static double pss_of(pid_t pid)
{
	char path[64], line[128];
	double kib = 0;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "Pss: %lf", &kib);
	if (file)
		fclose(file);
	return kib * 1024;
}

static void look_at_memory(struct run *run)
{
	run->daemon_bytes = pss_of(run->daemon.pid);
	for (uint32_t i = 0; i < options.each.n_clients; i++)
		run->client_bytes += pss_of(run->pids[i]) / options.each.n_clients;
}

static void run_joined(struct run *run, const struct decode_options *o)
{
	pid_t joiner = fork();

	if (joiner == 0)
		decode_joiner_main(o, run->board);
	await_all(run->board);
	run->n_joined = atomic_load(&run->board->n_joined);
	begin(run->board, DECODE_END);
	waitpid(joiner, NULL, 0);
}

static void run_clients(struct run *run, const struct decode_options *o)
{
	for (uint32_t i = 0; i < o->n_clients; i++) {
		run->pids[i] = fork();
		if (run->pids[i] == 0)
			decode_client_main(o, run->board, i);
	}
	for (enum decode_phase phase = DECODE_DOCUMENT; phase <= DECODE_ALONE; phase++) {
		await_all(run->board);
		begin(run->board, phase);
	}
	await_all(run->board);
	look_at_memory(run);
	begin(run->board, o->apart ? DECODE_END : DECODE_JOINED);
	if (!o->apart)
		run_joined(run, o);
	for (uint32_t i = 0; i < o->n_clients; i++)
		waitpid(run->pids[i], NULL, 0);
}

/* ---- figures -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct times {
	double p50, p99, tokens_s;
};

static struct times times_of(const struct decode_board *board, bool joined)
{
	const struct decode_options *o = &options.each;
	const uint32_t n = o->n_clients * o->n_tokens;
	double *all = calloc(n, sizeof(*all));
	struct times t = {0};

	if (!all)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < o->n_clients; i++) {
		const struct decode_figures *f = &board->of[i];
		double sum = 0;

		memcpy(all + i * o->n_tokens, joined ? f->joined_ms : f->alone_ms,
		       o->n_tokens * sizeof(*all));
		for (uint32_t k = 0; k < o->n_tokens; k++)
			sum += all[i * o->n_tokens + k];
		t.tokens_s += 1e3 * o->n_seqs * o->n_tokens / sum;
	}
	qsort(all, n, sizeof(*all), compare);
	t.p50 = all[n / 2];
	t.p99 = all[(uint32_t)(n * 0.99)];
	free(all);
	return t;
}

/* Weights once, the document once, and each sequence's own tokens. */
static double limit_ms(const struct decode_model *m, double bytes_s)
{
	const struct decode_options *o = &options.each;
	const double tokens = o->document + (double)o->n_clients * o->n_seqs *
						    (o->prompt + o->n_tokens * 3 / 4.0);

	return 1e3 * ((double)m->pass_bytes + tokens * (double)m->kv_bytes) / bytes_s;
}

static double worst_first_ms(const struct decode_board *board)
{
	double most = 0;

	for (uint32_t i = 0; i < options.each.n_clients; i++)
		if (board->of[i].first_ms > most)
			most = board->of[i].first_ms;
	return most;
}

static void put(const char *name, const char *metric, double value, const char *unit)
{
	bench_print("decode", name, metric, value, unit);
}

static void report(const struct run *run, const struct decode_options *o, double bytes_s)
{
	const struct decode_figures *first = &run->board->of[0];
	const struct times alone = times_of(run->board, false);
	const double limit = limit_ms(o->model, bytes_s);
	double read = 0;
	char name[128];

	snprintf(name, sizeof(name), "%s_%ux%u_d%u%s", o->model->name, o->n_clients, o->n_seqs,
		 o->document, o->apart ? "_apart" : "");
	for (uint32_t i = 0; i < o->n_clients; i++)
		read += (double)run->board->of[i].alone_read /
			(o->n_clients * o->n_seqs * o->n_tokens);
	put(name, "token_p50", alone.p50, "ms");
	put(name, "token_p99", alone.p99, "ms");
	put(name, "tokens_s", alone.tokens_s, "1/s");
	if (!o->apart) {
		const struct times joined = times_of(run->board, true);

		put(name, "joined_p50", joined.p50, "ms");
		put(name, "joined_p99", joined.p99, "ms");
		put(name, "sessions_joined", run->n_joined, "sessions");
	}
	put(name, "document", first->document_ms, "ms");
	put(name, "document_rate", 1e3 * o->document / first->document_ms, "tokens/s");
	put(name, "first_tokens", worst_first_ms(run->board), "ms");
	put(name, "weights_a_token", read / 1e6, "MB");
	put(name, "daemon_memory", run->daemon_bytes / 1e6, "MB");
	put(name, "client_memory", run->client_bytes / 1e6, "MB");
	put(name, "limit", limit, "ms");
	put(name, "limit_of_time", limit / alone.p50, "");
}

/* ---- all ------------------------------------------------------------------------------------ */

static double measured_bytes_s(void)
{
	struct machine m;
	double rate;

	if (machine_init(&m, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN)) < 0)
		errx(1, "out of memory");
	rate = machine_read_rate(&m);
	machine_done(&m);
	return rate;
}

static double bytes_s(void)
{
	if (options.bytes_s > 0)
		return options.bytes_s;
	return strncmp(options.backend, "cuda", 4) == 0 ? CARD_BYTES_S : measured_bytes_s();
}

static void run_once(const struct decode_model *model, bool apart, double rate)
{
	struct decode_options o = options.each;
	struct run run = {0};
	char weights[32];

	snprintf(weights, sizeof(weights), "%ju",
		 (uintmax_t)(2 * model->file_bytes + SCRATCH_BYTES));
	bench_daemon_start(&run.daemon, -1,
			   (const char *[]){"--backend", options.backend, "--pool", options.pool,
					    "--weights", weights, "--domain-weights", weights,
					    "--config", "/dev/null", NULL});
	run.board = mmap(NULL, sizeof(*run.board), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run.board == MAP_FAILED)
		err(1, "mmap");
	o.model = model;
	o.socket = run.daemon.socket;
	o.apart = apart;
	run_clients(&run, &o);
	report(&run, &o, rate);
	munmap(run.board, sizeof(*run.board));
	bench_daemon_stop(&run.daemon);
}

int decode_main(int argc, char **argv)
{
	const struct bench_options of_decode = {
		.table = option_table,
		.take = parse_option,
		.check = check_options,
		.doc = "Processes that decode behind one document, the daemon computing whole "
		       "tokens.",
	};
	struct decode_model model;
	double rate;
	int r = bench_read(&of_decode, argc, argv);

	if (r >= 0)
		return r;
	decode_model_make(options.shape, options.cache, &model);
	rate = bytes_s();
	put(model.name, "rate", rate / 1e9, "GB/s");
	run_once(&model, false, rate);
	if (options.apart)
		run_once(&model, true, rate);
	return 0;
}
#endif
