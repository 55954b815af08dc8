/*
 * tiers_long.c - prefill of a context that the pool has no room for, through a daemon: chunk by chunk, with room for an eighth of
 * it and the rest streaming from host memory, against the same in a pool that has room for all, and against the time that
 * what streamed takes to be copied alone.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE) && defined(BENCH_HAVE_CLIENT)
#include "bench.h"
#include "client/coppice.h"
#include "daemon.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

struct prefill {
	struct work_shape shape;
	uint32_t n_tokens, chunk;
	const char *socket;
	struct coppice *c;
	struct coppice_lane *lane;
	uint16_t *arena;
};

static void check(int r, const struct coppice *c)
{
	if (r < 0)
		errx(1, "%s", coppice_explain(c));
}

static struct coppice_step_seq part_of(const struct prefill *p, struct coppice_seq *seq)
{
	size_t q = (size_t)p->chunk * p->shape.n_q_heads * p->shape.head_dim;
	size_t k = (size_t)p->chunk * p->shape.n_kv_heads * p->shape.head_dim;

	return (struct coppice_step_seq){.seq = seq,
					 .n_new = p->chunk,
					 .q = p->arena,
					 .k = p->arena + q,
					 .v = p->arena + q + k,
					 .o = p->arena + q + 2 * k};
}

static void connect_to(struct prefill *p)
{
	size_t n = (size_t)p->chunk * p->shape.head_dim * 2 *
		   (p->shape.n_q_heads + p->shape.n_kv_heads);
	struct coppice_arena *arena;

	check(coppice_connect(&p->c, p->socket), p->c);
	check(coppice_arena_new(p->c, COPPICE_HOST, n * sizeof(uint16_t), &arena), p->c);
	check(coppice_lane_new(p->c, &p->lane), p->c);
	p->arena = coppice_arena_base(arena);
	for (size_t i = 0; i < n; i++)
		p->arena[i] = (uint16_t)((random() & 0x80ff) | 0x3f00);
}

static void chunk_run(struct prefill *p, struct coppice_seq *seq, const uint32_t *ids)
{
	struct coppice_step_seq part = part_of(p, seq);
	uint64_t ticket;

	check(coppice_seq_extend(seq, ids, p->chunk, NULL), p->c);
	for (uint32_t layer = 0; layer < p->shape.n_layers; layer++) {
		check(coppice_step(
			      p->lane,
			      &(struct coppice_step){.layer = layer, .seqs = &part, .n_seqs = 1},
			      &ticket),
		      p->c);
		check(coppice_wait(p->lane, ticket, COPPICE_FOREVER), p->c);
	}
}

/* Seconds of all chunks. */
static double prefill_seconds(struct prefill *p)
{
	const struct coppice_model_info info = {.name = "long",
						.n_layers = p->shape.n_layers,
						.n_q_heads = p->shape.n_q_heads,
						.n_kv_heads = p->shape.n_kv_heads,
						.head_dim = p->shape.head_dim,
						.dtype = COPPICE_BF16};
	uint32_t *ids = malloc(p->n_tokens * sizeof(*ids)), model;
	struct coppice_match match;
	struct coppice_seq *seq;

	if (!ids)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < p->n_tokens; i++)
		ids[i] = i;
	connect_to(p);
	check(coppice_model_open(p->c, &info, &model), p->c);
	check(coppice_seq_open(p->lane, model, ids, 1, 0, &seq, &match), p->c);
	uint64_t start_ns = bench_now_ns();
	for (uint32_t at = 0; at < p->n_tokens; at += p->chunk)
		chunk_run(p, seq, ids + at);
	double s = (double)(bench_now_ns() - start_ns) / 1e9;
	coppice_close(p->c);
	free(ids);
	return s;
}

static double run(struct prefill *p, const struct tiers_options *o, uint64_t pool_bytes,
		  uint64_t stage_bytes, uint64_t host_bytes)
{
	char pool[48], stage[48], host[48], backend[48];
	const char *const flags[] = {pool,
				     stage,
				     host,
				     backend,
				     "--extent=2M",
				     "--threads=1",
				     "--page-tokens=32",
				     "--max-arena-bytes=4G",
				     NULL};
	struct bench_daemon daemon;

	snprintf(pool, sizeof(pool), "--pool=%lu", pool_bytes);
	snprintf(stage, sizeof(stage), "--stage=%lu", stage_bytes);
	snprintf(host, sizeof(host), "--host-tier=%lu", host_bytes);
	snprintf(backend, sizeof(backend), "--backend=%s", o->backend);
	bench_daemon_start(&daemon, -1, flags);
	p->socket = daemon.socket;
	double s = prefill_seconds(p);
	bench_daemon_stop(&daemon);
	return s;
}

/* Bytes that come through the stage: for each chunk what has not been in the pool's room, of each layer. */
static double streamed_bytes(const struct prefill *p, uint64_t token_bytes, uint64_t room_tokens)
{
	double n = 0;

	for (uint64_t at = 0; at < p->n_tokens; at += p->chunk)
		n += at + p->chunk > room_tokens ? (double)(at + p->chunk - room_tokens) : 0;
	return n * (double)token_bytes;
}

int tiers_long(const struct tiers_options *o, const struct backend_ops *ops, double copy_rate)
{
	const struct tiers_bench bench = {.ops = ops};
	bool gpu = ops != &backend_cpu;
	struct prefill p = {.shape = tiers_shape(&bench, 2),
			    .n_tokens = o->tokens,
			    .chunk = gpu ? 4096 : 256};
	uint64_t token_bytes = (uint64_t)p.shape.n_layers * p.shape.n_kv_heads * 128 * 4;
	uint64_t all = (uint64_t)p.n_tokens * token_bytes, step = UINT64_C(2) << 20;
	uint64_t stage = o->stage_bytes;
	uint64_t room = (all / 8 + step - 1) / step * step;
	double alone = run(&p, o, all / step * step + 4 * step, 0, 0);
	double streamed = run(&p, o, room + stage, stage, 2 * all + 64 * step);
	double bytes = streamed_bytes(&p, token_bytes, room / token_bytes);
	double copy = bytes / copy_rate, slower = alone > copy ? alone : copy;

	bench_print("tiers", "long prefill", "room for all", alone * 1e3, "ms");
	bench_print("tiers", "long prefill", "room for an eighth", streamed * 1e3, "ms");
	bench_print("tiers", "long prefill", "copies alone", copy * 1e3, "ms");
	bench_print("tiers", "long prefill", "of_slower", slower / streamed, "1");
	return 0;
}
#elif defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
int tiers_long(const struct tiers_options *o, const struct backend_ops *ops, double copy_rate)
{
	(void)o;
	(void)ops;
	(void)copy_rate;
	return 0;
}
#endif
