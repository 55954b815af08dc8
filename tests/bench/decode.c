/*
 * decode.c - coppice-bench decode: processes that decode behind one document, the daemon computing
 * the tokens of all of them; and with --apart each its own, as they would without it.
 *
 * What a process computes itself is coppice-agent's forward pass, of a Llama on the CPU. On a GPU,
 * where a process without the daemon would have an engine of its own, and of other families, it is
 * the daemon's still, by a program of each process's own: one that differs in no more than a number
 * too small to see, so that its weights are read for that process alone, in turns with the others',
 * and its document is its own. The weights lie there once all the same. So what engines of their
 * own cost beside, copies of the weights, contexts, switches between them, is not in it.
 *
 * Several numbers of processes go one after the other at the same daemon, so that its weights, and
 * documents, are there from the first on. With --private each process has a document of its own.
 *
 * What is printed of each way is decode_report.c's.
 */
#ifdef BENCH_HAVE_AGENT
#include "bench.h"
#include "crew.h"
#include "daemon.h"
#include "decode_client.h"
#include "decode_layers.h"
#include "decode_report.h"
#include "machine.h"
#include "words.h"

#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CARD_BYTES_S 4.45e12 /* one H200, weights in a stream */
#define CARD_OPERATIONS_S 7.9e14 /* its tensor cores */
#define SCRATCH_BYTES (UINT64_C(2) << 30) /* more than a program takes to be run */
#define OWN_SCRATCH_BYTES (UINT64_C(512) << 20) /* the same, of each of many */
#define LOOK_US 1000u
#define ROUNDS 16u
#define NUMBER_MAX (1u << 20) /* tokens, milliseconds, seconds */

static struct {
	struct decode_options each;
	uint32_t n_clients[ROUNDS], n_rounds; /* of each round */
	const char *shape, *cache, *backend, *pool;
	struct decode_rates rates; /* 0: not given */
	bool apart;
} options = {.each = {.n_seqs = 1, .document = 1024, .prompt = 64, .n_tokens = 32},
	     .n_clients = {8},
	     .n_rounds = 1,
	     .shape = "llama-3.2-1b",
	     .backend = "auto",
	     .pool = "2G"};

enum {
	KEY_PROMPT = 256,
	KEY_CACHE,
	KEY_POOL,
	KEY_RATE,
	KEY_FLOPS,
	KEY_APART,
	KEY_BESIDE,
	KEY_PRIVATE,
	KEY_STAY,
	KEY_EVERY,
	KEY_SECONDS,
	KEY_TURN,
	KEY_LAYERS
};

static const struct args_option option_table[] = {
	{"model", 'm', "SHAPE", DECODE_MODEL_NAMES ", or a config.json (default llama-3.2-1b)"},
	{"models", KEY_CACHE, "DIR",
	 "Where random weights are kept (default: models/ of the build)"},
	{"clients", 'c', "N[,N...]", "Processes (default 8); several numbers: one after the other"},
	{"seqs", 's', "N", "Sequences of each (default 1)"},
	{"document", 'd', "TOKENS", "That all have in common (default 1024)"},
	{"prompt", KEY_PROMPT, "TOKENS", "Of each sequence alone, behind it (default 64)"},
	{"tokens", 't', "N", "Timed of each sequence, once alone and once joined (default 32)"},
	{"backend", 'b', "NAME", "The daemon's backend (default auto)"},
	{"pool", KEY_POOL, "BYTES", "The daemon's (default 2G)"},
	{"rate", KEY_RATE, "GB/S",
	 "At which memory is read (default: measured on a CPU, 4450 on a GPU)"},
	{"flops", KEY_FLOPS, "TFLOP/S",
	 "At which it multiplies (default: measured on a CPU, 790 on a GPU)"},
	{"apart", KEY_APART, NULL,
	 "Then once more, each process computing its own layers; on a GPU, or where it is no "
	 "Llama, "
	 "by a program of its own at the daemon, which reads the weights for it alone"},
	{"beside", KEY_BESIDE, NULL, "At last tokens are timed while another document is computed"},
	{"stay", KEY_STAY, "MS",
	 "How long a session that joins decodes, before it leaves and the next joins (default 0: "
	 "it has its first token)"},
	{"every", KEY_EVERY, "MS",
	 "How often a session joins (default 0: when the one before has left)"},
	{"seconds", KEY_SECONDS, "S",
	 "How long sessions join and leave (default 0: for the tokens of -t)"},
	{"turn", KEY_TURN, "TOKENS",
	 "After so many tokens each sequence is its prompt again, a process after the other, so "
	 "that "
	 "long runs find sequences of all lengths; the first token of a turn counts apart "
	 "(anew_...) "
	 "(default 0: they grow)"},
	{"layers", KEY_LAYERS, "N",
	 "At last N processes compute their own layers, of a sequence each behind 4,096 tokens: "
	 "what "
	 "they wait for attention of a layer beside the others, then without them"},
	{"private", KEY_PRIVATE, NULL, "Each process has a document that nobody else has"},
	{0},
};

/* A name that has no file is one of a shape. */
static int take_model(struct args *args)
{
	if (access(args->value, F_OK) != 0)
		return words_take(args, DECODE_MODEL_NAMES ", config.json", &options.shape);
	options.shape = args->value;
	return 0;
}

static int take_number(struct args *args, int key)
{
	struct decode_options *each = &options.each;

	switch (key) {
	case 's':
		return bench_take_whole(args, 1, DECODE_SEQS, &each->n_seqs);
	case 'd':
		return bench_take_whole(args, 2, NUMBER_MAX, &each->document);
	case 't':
		return bench_take_whole(args, 4, DECODE_TIMES, &each->n_tokens);
	case KEY_STAY:
		return bench_take_whole(args, 0, NUMBER_MAX, &each->stay_ms);
	case KEY_EVERY:
		return bench_take_whole(args, 0, NUMBER_MAX, &each->every_ms);
	case KEY_SECONDS:
		return bench_take_whole(args, 0, NUMBER_MAX, &each->seconds);
	case KEY_TURN:
		return bench_take_whole(args, 0, NUMBER_MAX, &each->turn);
	case KEY_LAYERS:
		return bench_take_whole(args, 1, CREW_MOST, &each->n_layered);
	default:
		return bench_take_whole(args, 1, NUMBER_MAX, &each->prompt);
	}
}

/* In units of so much. */
static int take_rate(struct args *args, double unit, double *ret)
{
	int r = bench_take_rate(args, ret);

	if (r == 0)
		*ret *= unit;
	return r;
}

static int parse_option(struct args *args, int key, void *to)
{
	(void)to;
	switch (key) {
	case 'c':
		return bench_take_list(args, DECODE_CLIENTS, ROUNDS, options.n_clients,
				       &options.n_rounds);
	case 'm':
		return take_model(args);
	case KEY_CACHE:
		options.cache = args->value;
		return 0;
	case 'b':
		return words_take(args, WORDS_BACKENDS, &options.backend);
	case KEY_POOL:
		return bench_take_pool(args, &options.pool);
	case KEY_RATE:
		return take_rate(args, 1e9, &options.rates.bytes_s);
	case KEY_FLOPS:
		return take_rate(args, 1e12, &options.rates.operations_s);
	case KEY_APART:
		options.apart = true;
		return 0;
	case KEY_BESIDE:
		options.each.beside = true;
		return 0;
	case KEY_PRIVATE:
		options.each.own_document = true;
		return 0;
	default:
		return take_number(args, key);
	}
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* A client that ended says why itself. */
static void look_for_the_dead(void)
{
	if (waitpid(-1, NULL, WNOHANG) > 0)
		errx(1, "a client failed");
}

static void await_all(struct decode_board *board, uint32_t n_clients)
{
	while (atomic_load_explicit(&board->n_arrived, memory_order_acquire) < n_clients) {
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

static void look_at_memory(struct decode_run *run, uint32_t n_clients)
{
	run->daemon_bytes = pss_of(run->daemon->pid);
	for (uint32_t i = 0; i < n_clients; i++) {
		run->client_bytes += pss_of(run->pids[i]) / n_clients;
		run->n_on_device += decode_uses_device(run->pids[i]);
	}
	if (run->device_before_bytes >= 0)
		run->device_bytes = decode_device_bytes();
}

static void run_joined(struct decode_run *run, const struct decode_options *o)
{
	pid_t joiner = fork();

	if (joiner == 0)
		decode_joiner_main(o, run->board);
	await_all(run->board, o->n_clients);
	begin(run->board, DECODE_BESIDE);
	waitpid(joiner, NULL, 0);
}

static void run_beside(struct decode_run *run, const struct decode_options *o)
{
	pid_t reader = options.each.beside ? fork() : -1;

	if (reader == 0)
		decode_reader_main(o, run->board);
	if (reader > 0)
		waitpid(reader, NULL, 0);
	begin(run->board, DECODE_LAYERS);
}

static void run_layers(struct decode_run *run, const struct decode_options *o)
{
	if (o->n_layered)
		decode_layers_run(o, &run->layers_beside);
	begin(run->board, DECODE_END);
}

static void run_clients(struct decode_run *run, const struct decode_options *o)
{
	for (uint32_t i = 0; i < o->n_clients; i++) {
		run->pids[i] = fork();
		if (run->pids[i] == 0)
			decode_client_main(o, run->board, i);
	}
	for (enum decode_phase phase = DECODE_DOCUMENT; phase <= DECODE_ALONE; phase++) {
		await_all(run->board, o->n_clients);
		if (phase == DECODE_ALONE)
			decode_look(run->daemon, &run->before);
		begin(run->board, phase);
	}
	await_all(run->board, o->n_clients);
	decode_look(run->daemon, &run->after);
	look_at_memory(run, o->n_clients);
	begin(run->board, decode_is_joined(o) ? DECODE_JOINED : DECODE_END);
	if (decode_is_joined(o)) {
		run_joined(run, o);
		run_beside(run, o);
		run_layers(run, o);
	}
	for (uint32_t i = 0; i < o->n_clients; i++)
		waitpid(run->pids[i], NULL, 0);
	if (decode_is_joined(o) && o->n_layered)
		decode_layers_run(o, &run->layers_alone);
}

/* ---- all ------------------------------------------------------------------------------------ */

static bool is_on_gpu(void)
{
	return strncmp(options.backend, "cuda", 4) == 0;
}

/* A multiply-add is two operations. */
static struct decode_rates measured_rates(void)
{
	struct decode_rates rates;
	struct machine m;

	if (machine_init(&m, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN)) < 0)
		errx(1, "out of memory");
	rates = (struct decode_rates){machine_read_rate(&m), 2 * machine_fma_rate(&m)};
	machine_done(&m);
	return rates;
}

static struct decode_rates find_rates(void)
{
	const struct decode_rates card = {CARD_BYTES_S, CARD_OPERATIONS_S}, given = options.rates;
	struct decode_rates rates = is_on_gpu() ? card : measured_rates();

	if (given.bytes_s > 0)
		rates.bytes_s = given.bytes_s;
	if (given.operations_s > 0)
		rates.operations_s = given.operations_s;
	return rates;
}

struct rounds {
	struct decode_options o;
	struct decode_rates rates;
	struct bench_daemon daemon;
	double device_before_bytes;
};

static void run_round(struct rounds *r)
{
	struct decode_run run = {.daemon = &r->daemon,
				 .device_before_bytes = r->device_before_bytes,
				 .device_bytes = -1};

	run.board = mmap(NULL, sizeof(*run.board), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (run.board == MAP_FAILED)
		err(1, "mmap");
	run_clients(&run, &r->o);
	decode_report(&run, &r->o, &r->rates);
	munmap(run.board, sizeof(*run.board));
}

static uint32_t most_clients(void)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < options.n_rounds; i++)
		if (options.n_clients[i] > most)
			most = options.n_clients[i];
	return most;
}

static void start_daemon(struct rounds *r)
{
	const uint64_t n_more = r->o.own_program ? most_clients() : 0;
	char weights[32];

	snprintf(weights, sizeof(weights), "%ju",
		 (uintmax_t)(2 * r->o.model->file_bytes + SCRATCH_BYTES +
			     n_more * OWN_SCRATCH_BYTES));
	bench_daemon_start(&r->daemon, -1,
			   (const char *[]){"--backend", options.backend, "--pool", options.pool,
					    "--weights", weights, "--domain-weights", weights,
					    "--config", "/dev/null", NULL});
	r->o.socket = r->daemon.socket;
}

static void run_rounds(struct rounds *r)
{
	r->device_before_bytes = is_on_gpu() ? decode_device_bytes() : -1;
	if (is_on_gpu() && r->device_before_bytes < 0)
		warnx("nvidia-smi does not say what is taken of the device: only what the daemon "
		      "counts is told (held_...)");
	start_daemon(r);
	for (r->o.round = 0; r->o.round < options.n_rounds; r->o.round++) {
		r->o.n_clients = options.n_clients[r->o.round];
		run_round(r);
	}
	bench_daemon_stop(&r->daemon);
}

static void run_apart(struct rounds *r)
{
	r->o.apart = r->o.model->is_llama && !is_on_gpu();
	r->o.own_program = r->o.own_document = !r->o.apart;
	run_rounds(r);
}

int decode_main(int argc, char **argv)
{
	const struct bench_options of_decode = {
		.table = option_table,
		.take = parse_option,
		.doc = "Processes that decode behind one document, the daemon computing whole "
		       "tokens.",
	};
	struct decode_model model;
	struct rounds rounds;
	int r = bench_read(&of_decode, argc, argv);

	if (r >= 0)
		return r;
	decode_model_make(options.shape, options.cache, &model);
	rounds = (struct rounds){.o = options.each, .rates = find_rates()};
	rounds.o.model = &model;
	bench_print("decode", model.name, "rate", rounds.rates.bytes_s / 1e9, "GB/s");
	bench_print("decode", model.name, "operations", rounds.rates.operations_s / 1e12,
		    "TFLOP/s");
	run_rounds(&rounds);
	if (options.apart)
		run_apart(&rounds);
	return 0;
}
#endif
