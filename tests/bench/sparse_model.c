/*
 * sparse_model.c - the small real model (tests/model) behind a daemon: held-out loss by tau.
 * Windows of the model's whole context, which do not overlap, each prefilled in chunks; every byte
 * but a window's first is predicted.
 */
#include "sparse.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_AGENT)
#include "bench.h"
#include "daemon.h"

#include "client/agent/daemon_attention.h"
#include "client/agent/llama_load.h"

#include <err.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024u
#define HELD_OUT "\nJeremiah 1\n"
#define HELD_OUT_SHARE 0.05

/* Attention that counts what the daemon says of its steps. */
struct counted {
	struct attention base;
	struct daemon_attention *daemon;
	double attended, mass; /* sums over steps */
	uint64_t n_steps;
};

struct table {
	const struct sparse_options *options;
	struct llama model; /* owned */
	char *text; /* owned */
	size_t n_text;
	const char *held_out;
	size_t n_held_out;
	struct bench_daemon process;
	struct daemon_attention daemon; /* owned */
	struct counted counted;
	struct llama_pass pass; /* owned */
	float *logits; /* owned */
};

static void fail_on(int r, const struct fault *fault)
{
	if (r < 0)
		errx(1, "%s", fault->text);
}

static int run_counted(struct attention *base, uint32_t layer, const struct attention_part *parts,
		       uint32_t n_parts, struct fault *fault)
{
	struct counted *c = (struct counted *)base;
	struct coppice_result result;
	int r = c->daemon->base.run(&c->daemon->base, layer, parts, n_parts, fault);

	if (r < 0)
		return r;
	if (coppice_poll(c->daemon->daemon.lane, c->daemon->daemon.last_ticket, &result) != 0)
		return fault_set(fault, -EIO, "a step's result is gone");
	c->attended += (double)result.attended;
	c->mass += (double)result.mass;
	c->n_steps++;
	return 0;
}

/* The corpus, unpacked by xz. */
static void read_text(struct table *t)
{
	size_t room = 8u << 20;
	FILE *from = popen("xz -dc " BENCH_SOURCE_DIR "/tests/model/corpus.txt.xz", "r");

	t->text = calloc(1, room + 1);
	if (!from || !t->text)
		errx(1, "cannot read the corpus");
	t->n_text = fread(t->text, 1, room, from);
	if (pclose(from) != 0)
		errx(1, "xz cannot read the corpus");
	char *at = strstr(t->text, HELD_OUT);
	if (!at)
		errx(1, "the corpus has no held-out text");
	t->held_out = at + 1;
	t->n_held_out = (size_t)((double)t->n_text * HELD_OUT_SHARE);
}

/* Which knows no fp32. */
static bool on_gpu(const struct sparse_options *options)
{
	return strcmp(options->backend, "cuda") == 0;
}

static void open_attention(struct table *t)
{
	const struct llama_config *c = &t->model.config;
	const struct daemon_options options = {.address.socket_path = t->process.socket,
					       .model = {.name = "trained",
							 .n_layers = c->n_layers,
							 .n_q_heads = c->n_q_heads,
							 .n_kv_heads = c->n_kv_heads,
							 .head_dim = c->head_dim,
							 .dtype = on_gpu(t->options) ? COPPICE_FP16
										     : COPPICE_FP32,
							 .weights_hash = t->model.hash},
					       .max_rows = CHUNK};
	struct fault fault;

	fail_on(daemon_attention_open(&t->daemon, &options, &fault), &fault);
	t->counted = (struct counted){.base = t->daemon.base, .daemon = &t->daemon};
	t->counted.base.run = run_counted;
	fail_on(llama_pass_init(&t->pass, &t->model, &t->counted.base, &fault), &fault);
	t->logits = malloc((size_t)CHUNK * c->n_vocab * sizeof(*t->logits));
	if (!t->logits)
		errx(1, "out of memory");
}

static void table_open(struct table *t, const struct sparse_options *options)
{
	char block[32];
	const char *const flags[] = {"--backend", options->backend, "--pool", "512M", NULL};
	const char *const below[] = {"--backend",  options->backend, "--pool=16M", "--extent=2M",
				     "--stage=4M", "--host-tier=1G", block,	   NULL};
	struct fault fault;

	*t = (struct table){.options = options};
	fail_on(llama_load(BENCH_SOURCE_DIR "/tests/model", &t->model, &fault), &fault);
	read_text(t);
	snprintf(block, sizeof(block), "--stage-block=%u", options->block_tokens);
	bench_daemon_start(&t->process, -1, options->below ? below : flags);
	open_attention(t);
}

static void table_close(struct table *t)
{
	llama_pass_done(&t->pass);
	daemon_attention_close(&t->daemon);
	bench_daemon_stop(&t->process);
	llama_done(&t->model);
	free(t->text);
	free(t->logits);
}

/* Nats of byte `next` after logits of its predecessor. */
static double loss_of(const float *logits, uint32_t n_vocab, uint32_t next)
{
	double max = (double)logits[0], sum = 0;

	for (uint32_t i = 1; i < n_vocab; i++)
		max = (double)logits[i] > max ? (double)logits[i] : max;
	for (uint32_t i = 0; i < n_vocab; i++)
		sum += exp((double)logits[i] - max);
	return max + log(sum) - (double)logits[next];
}

/* Tokens [from, from + n) of a window; the loss of those that follow each. */
static double run_chunk(struct table *t, struct daemon_seq *seq, const uint32_t *ids,
			const uint32_t *positions, uint32_t from, uint32_t n, uint32_t n_window)
{
	const struct attention_part part = {seq, n};
	const struct llama_batch batch = {.n_rows = n,
					  .ids = ids + from,
					  .positions = positions + from,
					  .parts = &part,
					  .n_parts = 1,
					  .wanted = positions,
					  .n_wanted = n};
	uint32_t n_vocab = t->model.config.n_vocab;
	struct fault fault;
	double loss = 0;

	fail_on(daemon_seq_extend(&t->daemon.daemon, seq, ids + from, n, &fault), &fault);
	fail_on(llama_forward(&t->pass, &batch, t->logits, &fault), &fault);
	for (uint32_t i = 0; i < n && from + i + 1 < n_window; i++)
		loss += loss_of(t->logits + (size_t)i * n_vocab, n_vocab, ids[from + i + 1]);
	return loss;
}

static double run_window(struct table *t, uint32_t window, double tau, uint64_t salt)
{
	uint32_t n = t->model.config.max_positions;
	uint32_t *ids = malloc(n * sizeof(*ids)), *positions = malloc(n * sizeof(*positions));
	const struct coppice_sparse wish = {.tau = tau,
					    .stride = t->options->stride,
					    .block_tokens = t->options->block_tokens,
					    .sink_blocks = 1,
					    .recent_blocks = 1};
	struct daemon_seq seq;
	struct fault fault;
	double loss = 0;

	if (!ids || !positions)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < n; i++) {
		ids[i] = (unsigned char)t->held_out[(size_t)window * n + i];
		positions[i] = i;
	}
	t->daemon.daemon.address.salt = salt; /* nothing of another tau's */
	fail_on(daemon_seq_open(&t->daemon.daemon, ids, n, &seq, &fault), &fault);
	if (coppice_seq_sparse(seq.handle, &wish, &t->daemon.daemon.last_ticket) != 0)
		errx(1, "%s", coppice_explain(t->daemon.daemon.coppice));
	for (uint32_t from = 0; from < n; from += CHUNK)
		loss += run_chunk(t, &seq, ids, positions, from,
				  n - from < CHUNK ? n - from : CHUNK, n);
	daemon_seq_close(&seq);
	free(ids);
	free(positions);
	return loss / (n - 1);
}

static double run_tau(struct table *t, double tau, double exact, uint64_t salt)
{
	uint64_t start_ns = clock_now_ns();
	double loss = 0, n = t->options->n_windows;
	char name[64];

	t->counted.attended = t->counted.mass = 0;
	t->counted.n_steps = 0;
	for (uint32_t i = 0; i < t->options->n_windows; i++)
		loss += run_window(t, i, tau, salt + i);
	snprintf(name, sizeof(name), "model%s_s%u_b%u_tau%g", t->options->below ? "_below" : "",
		 t->options->stride, t->options->block_tokens, tau);
	bench_print("sparse", name, "loss", loss / n, "nats/byte");
	if (exact > 0)
		bench_print("sparse", name, "more loss", 100 * (loss / n / exact - 1), "%");
	bench_print("sparse", name, "attended", t->counted.attended / (double)t->counted.n_steps,
		    "of 1");
	bench_print("sparse", name, "mass", t->counted.mass / (double)t->counted.n_steps, "of 1");
	bench_print("sparse", name, "window", (double)(clock_now_ns() - start_ns) / 1e9 / n, "s");
	return loss / n;
}

void sparse_model(const struct sparse_options *options)
{
	static const double taus[] = {0.99, 0.97, 0.95, 0.9, 0.8};
	struct table t;
	double exact;

	table_open(&t, options);
	if (t.n_held_out < (size_t)options->n_windows * t.model.config.max_positions)
		errx(64, "the held-out text has fewer windows");
	exact = run_tau(&t, 1, 0, 1);
	for (uint32_t i = 0; i < sizeof(taus) / sizeof(taus[0]); i++)
		run_tau(&t, taus[i], exact, 1000 * (i + 1u));
	table_close(&t);
}
#endif
