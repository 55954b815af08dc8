/*
 * tiers_long.c - prefill of a context that the pool has no room for, through a daemon: chunk by
 * chunk, with room for an eighth of it and the rest streaming from host memory, against the same in
 * a pool that has room for all, attention alone, and the time that what streamed takes to be copied
 * alone; and once more with as many blocks left out as tau says.
 *
 * Keys of some KV heads lean towards the queries, other heads' from chunk to chunk, so that there
 * is something to choose.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE) && defined(BENCH_HAVE_CLIENT)
#include "app_stream.h"
#include "bench.h"
#include "client/coppice.h"
#include "daemon.h"
#include "proto/arith.h"

#include <err.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS 8u /* of keys */
#define LEAN 0.35f
#define BLOCK_TOKENS 4096u /* that are chosen or not */

struct prefill {
	const struct tiers_options *options;
	struct work_shape shape;
	uint32_t n_tokens, chunk;
	uint64_t extent_bytes;
	double tau; /* 0: exact */
	const char *socket;
	struct coppice *c;
	struct coppice_lane *lane;
	uint16_t *arena;
	struct app_stream *stream; /* NULL: the arena is host memory */
	uint16_t *o; /* owned: of the last step */
	double attended, visible; /* tokens of the path, sums over steps */
};

static void check(int r, const struct coppice *c)
{
	if (r < 0)
		errx(1, "%s", coppice_explain(c));
}

static size_t q_values(const struct prefill *p)
{
	return (size_t)p->chunk * p->shape.n_q_heads * p->shape.head_dim;
}

static size_t k_values(const struct prefill *p)
{
	return (size_t)p->chunk * p->shape.n_kv_heads * p->shape.head_dim;
}

/* Q, O, V, then K of each kind. */
static struct coppice_step_seq part_of(const struct prefill *p, struct coppice_seq *seq,
				       uint32_t kind)
{
	size_t q = q_values(p), k = k_values(p);

	return (struct coppice_step_seq){.seq = seq,
					 .n_new = p->chunk,
					 .q = p->arena,
					 .o = p->arena + q,
					 .v = p->arena + 2 * q,
					 .k = p->arena + 2 * q + k * (1 + kind)};
}

/* In about (-1.7, 1.7) around a mean, as bf16. */
static void draw(uint16_t *at, size_t n, float mean, uint64_t *random)
{
	for (size_t i = 0; i < n; i++) {
		*random = *random * UINT64_C(6364136223846793005) + 1;
		float value = (float)(int32_t)(*random >> 32) * 8e-10f + mean;
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		at[i] = (uint16_t)(bits >> 16);
	}
}

static void draw_all(const struct prefill *p, uint16_t *at)
{
	uint32_t dim = p->shape.head_dim, n_heads = p->shape.n_kv_heads;
	uint64_t random = 1;

	draw(at, 2 * q_values(p), LEAN, &random);
	draw(at + 2 * q_values(p), k_values(p), 0, &random);
	at += 2 * q_values(p) + k_values(p);
	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (uint32_t t = 0; t < p->chunk; t++)
			for (uint32_t head = 0; head < n_heads; head++, at += dim)
				draw(at, dim, (kind + head) * 5 % 8 < 4 ? LEAN : 0, &random);
}

static void connect_to(struct prefill *p)
{
	bool device = strcmp(p->options->backend, "cuda") == 0;
	size_t bytes = (2 * q_values(p) + (1 + KINDS) * k_values(p)) * sizeof(uint16_t);
	struct coppice_arena *arena;
	uint16_t *values = malloc(bytes);

	if (!values)
		errx(1, "out of memory");
	if (device && !p->stream)
		p->stream = app_stream_new();
	check(coppice_connect(&p->c, p->socket), p->c);
	check(coppice_arena_new(p->c, device ? COPPICE_DEVICE : COPPICE_HOST, bytes, &arena), p->c);
	check(coppice_lane_new(p->c, &p->lane), p->c);
	p->arena = coppice_arena_base(arena);
	draw_all(p, values);
	if (device)
		app_stream_upload(p->stream, p->arena, values, bytes);
	else
		memcpy(p->arena, values, bytes);
	free(values);
}

static void chunk_run(struct prefill *p, struct coppice_seq *seq, const uint32_t *ids, uint32_t at)
{
	struct coppice_result result;
	uint64_t ticket;

	check(coppice_seq_extend(seq, ids, p->chunk, NULL), p->c);
	for (uint32_t layer = 0; layer < p->shape.n_layers; layer++) {
		struct coppice_step_seq part = part_of(p, seq, (at / p->chunk + 3 * layer) % KINDS);
		check(coppice_step(
			      p->lane,
			      &(struct coppice_step){.layer = layer, .seqs = &part, .n_seqs = 1},
			      &ticket),
		      p->c);
		check(coppice_wait(p->lane, ticket, COPPICE_FOREVER), p->c);
		check(coppice_poll(p->lane, ticket, &result), p->c);
		p->attended += (double)result.attended * (at + p->chunk);
		p->visible += at + p->chunk;
	}
}

static void keep_output(struct prefill *p)
{
	const uint16_t *from = p->arena + q_values(p);

	free(p->o);
	p->o = malloc(q_values(p) * sizeof(*p->o));
	if (!p->o)
		errx(1, "out of memory");
	if (p->stream)
		app_stream_download(p->stream, p->o, from, q_values(p) * sizeof(*p->o));
	else
		memcpy(p->o, from, q_values(p) * sizeof(*p->o));
}

static double value_of(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return (double)value;
}

/* Norm of the difference from what all at once gave, over its norm. */
static double off_by(const struct prefill *p, const uint16_t *right)
{
	double d = 0, sum = 0;

	for (size_t i = 0; i < q_values(p); i++) {
		double x = value_of(right[i]), y = value_of(p->o[i]) - x;
		d += y * y;
		sum += x * x;
	}
	return sqrt(d / sum);
}

/* Seconds of all chunks of a document whose tokens are from first on. */
static double document_seconds(struct prefill *p, uint32_t model, uint32_t first)
{
	const struct coppice_sparse sparse = {.tau = p->tau, .block_tokens = 128, .sink_blocks = 1};
	/* The last chunk is a whole one. */
	const uint64_t n = round_up(p->n_tokens, p->chunk);
	uint32_t *ids = malloc(n * sizeof(*ids));
	struct coppice_match match;
	struct coppice_seq *seq;

	if (!ids)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		ids[i] = first + i;
	check(coppice_seq_open(p->lane, model, ids, 1, 0, &seq, &match), p->c);
	if (p->tau > 0)
		check(coppice_seq_sparse(seq, &sparse, NULL), p->c);
	p->attended = p->visible = 0;
	uint64_t start_ns = clock_now_ns();
	for (uint32_t at = 0; at < p->n_tokens; at += p->chunk)
		chunk_run(p, seq, ids + at, at);
	double s = (double)(clock_now_ns() - start_ns) / 1e9;
	coppice_seq_close(seq);
	free(ids);
	return s;
}

/* Of the second document: by then what grows has grown. */
static double prefill_seconds(struct prefill *p)
{
	const struct coppice_model_info info = {.name = "long",
						.n_layers = p->shape.n_layers,
						.n_q_heads = p->shape.n_q_heads,
						.n_kv_heads = p->shape.n_kv_heads,
						.head_dim = p->shape.head_dim,
						.dtype = COPPICE_BF16};
	uint32_t model;

	connect_to(p);
	check(coppice_model_open(p->c, &info, &model), p->c);
	document_seconds(p, model, p->n_tokens);
	double s = document_seconds(p, model, 0);
	keep_output(p);
	coppice_close(p->c);
	return s;
}

static void flag(char *to, size_t bytes, const char *name, uint64_t value)
{
	snprintf(to, bytes, "--%s=%lu", name, value);
}

static double run(struct prefill *p, uint64_t pool_bytes, uint64_t stage_bytes, uint64_t host_bytes)
{
	char pool[48], stage[48], host[48], backend[48], block[48], extent[48];
	const char *const flags[] = {pool,
				     stage,
				     host,
				     backend,
				     block,
				     extent,
				     "--threads=1",
				     "--page-tokens=32",
				     "--max-arena-bytes=4G",
				     NULL};
	struct bench_daemon daemon;

	flag(pool, sizeof(pool), "pool", pool_bytes);
	flag(stage, sizeof(stage), "stage", stage_bytes);
	flag(host, sizeof(host), "host-tier", host_bytes);
	flag(extent, sizeof(extent), "extent", p->extent_bytes);
	flag(block, sizeof(block), "stage-block",
	     p->chunk < BLOCK_TOKENS ? p->chunk : BLOCK_TOKENS);
	snprintf(backend, sizeof(backend), "--backend=%s", p->options->backend);
	bench_daemon_start(&daemon, -1, flags);
	p->socket = daemon.socket;
	double s = prefill_seconds(p);
	bench_daemon_stop(&daemon);
	return s;
}

/* Bytes that come through the stage: for each chunk what has not been in the pool's room, of each
 * layer. */
static double streamed_bytes(const struct prefill *p, uint64_t token_bytes, uint64_t room_tokens)
{
	double n = 0;

	for (uint64_t at = 0; at < p->n_tokens; at += p->chunk)
		n += at + p->chunk > room_tokens ? (double)(at + p->chunk - room_tokens) : 0;
	return n * (double)token_bytes;
}

static void print(const char *metric, double value, const char *unit)
{
	bench_print("tiers", "long prefill", metric, value, unit);
}

/* Room for all, and for an eighth. */
static void compare(struct prefill *p, const struct tiers_recompute *attention, double copy_rate)
{
	uint64_t token_bytes = (uint64_t)p->shape.n_layers * p->shape.n_kv_heads * 128 * 4;
	uint64_t all = (uint64_t)p->n_tokens * token_bytes, step = p->extent_bytes;
	uint64_t stage = p->options->stage_bytes, host = 4 * all + 64 * step;
	uint64_t room = round_up(all / 8, step);
	uint64_t for_all = round_up(2 * all, step) + 4 * step;
	double copy = streamed_bytes(p, token_bytes, room / token_bytes) / copy_rate;
	double alone = run(p, for_all, 0, 0);
	uint16_t *right = p->o; /* owned */
	p->o = NULL;
	double exact = run(p, room + stage, stage, host);
	double slower = attention->busy_s > copy ? attention->busy_s : copy;
	double once = attention->once_s > copy ? attention->once_s : copy;

	print("attention alone", attention->busy_s * 1e3, "ms");
	print("single batches", attention->once_s * 1e3, "ms");
	print("copies alone", copy * 1e3, "ms");
	print("room for all", alone * 1e3, "ms");
	print("room for an eighth", exact * 1e3, "ms");
	print("of slower alone", slower / exact, "1");
	print("of single batches", once / exact, "1");
	print("of room for all", (alone > copy ? alone : copy) / exact, "1");
	print("off by", off_by(p, right), "of 1");
	fflush(stdout);
	p->tau = p->options->tau;
	double sparse = p->tau > 0 ? run(p, room + stage, stage, host) : 0;
	double off = off_by(p, right);
	free(right);
	free(p->o);
	if (p->tau <= 0)
		return;
	print("sparse", sparse * 1e3, "ms");
	print("sparse off by", off, "of 1");
	print("sparse attended", p->attended / p->visible, "of 1");
	print("sparse over exact", exact / sparse, "x");
}

int tiers_long(const struct tiers_options *o, const struct backend_ops *ops)
{
	const struct tiers_bench bench = {.ops = ops};
	struct prefill p = {.options = o,
			    .shape = tiers_shape(&bench, 2),
			    .n_tokens = o->tokens,
			    .chunk = ops == &backend_cpu ? 256 : 4096,
			    .extent_bytes = UINT64_C(1) << (ops == &backend_cpu ? 21 : 25)};
	struct tiers_recompute attention;
	double rate;
	int r = ops->tier->leg ? tiers_up_rate(o, ops, &rate) : -ENOTSUP;

	if (!r)
		r = tiers_recompute_seconds(o, ops, p.shape.n_layers, &attention);
	if (!r)
		compare(&p, &attention, rate);
	return r;
}
#elif defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
int tiers_long(const struct tiers_options *o, const struct backend_ops *ops)
{
	(void)o;
	(void)ops;
	return 0;
}
#endif
