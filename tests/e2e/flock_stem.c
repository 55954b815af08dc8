/*
 * flock_stem.c - the hashes of a token's inputs, its output by plain sums, and the calls by which a
 * process of the flock opens, computes, decodes and closes.
 */
#include "flock_stem.h"

#include "element.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_Q_HEADS 2u
#define HEAD_DIM 64u
#define CHECK_EVERY 61u /* rows of a chunk, besides its last */
/* Norm of the difference by norm: what attention promises for fp32 and for fp16. */
#define MAX_ERROR (test_on_gpu() ? 5e-4 : 2e-6)
#define PATIENCE_NS UINT64_C(50000000000)

_Noreturn void stem_die(const struct stem *s, const char *condition, int line)
{
	fprintf(stderr, "process %u, line %d: %s; last said: %s\n", s->index, line, condition,
		coppice_explain(s->c));
	_exit(1);
}

void stem_arrive(struct stem *s)
{
	MUST(write(s->gate->arrived[1], "", 1) == 1);
}

void stem_wait(struct stem *s)
{
	char byte;

	MUST(read(s->gate->go[s->index][0], &byte, 1) == 1);
}

void stem_pass(struct stem *s)
{
	stem_arrive(s);
	stem_wait(s);
}

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* n numbers from 0 to 1 that belong to a prefix, a layer and one of q, k, v. */
static void fill(float *ret, uint32_t n, uint64_t prefix, uint32_t layer, char kind)
{
	uint64_t state = mix(prefix ^ ((uint64_t)layer << 8 | (unsigned char)kind));

	for (uint32_t i = 0; i < n; i++)
		ret[i] = element_round((float)(mix(state + i) >> 40) * 0x1p-24f);
}

static void fill_q(float *ret, uint64_t prefix, uint32_t layer)
{
	fill(ret, N_Q_HEADS * HEAD_DIM, prefix, layer, 'q');
	for (uint32_t i = 0; i < N_Q_HEADS * HEAD_DIM; i++)
		ret[i] = element_round(3 * ret[i] - 1.5f);
}

static void add_token(struct stem *s, uint32_t id)
{
	uint64_t before = s->n_tokens ? s->prefixes[s->n_tokens - 1] : mix(s->salt);

	MUST(s->n_tokens < MAX_TOKENS);
	s->ids[s->n_tokens] = id;
	s->prefixes[s->n_tokens++] = mix(before ^ id);
}

void stem_add_document(struct stem *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		add_token(s, (uint32_t)mix(i) % 50000);
}

/* Attention of the token at position pos, in double precision. */
static void plain_output(const struct stem *s, uint32_t pos, uint32_t layer, double *ret)
{
	double sums[N_Q_HEADS] = {0};
	float q[N_Q_HEADS * HEAD_DIM], k[HEAD_DIM], v[HEAD_DIM];

	memset(ret, 0, N_Q_HEADS * HEAD_DIM * sizeof(*ret));
	fill_q(q, s->prefixes[pos], layer);
	for (uint32_t i = 0; i <= pos; i++) {
		fill(k, HEAD_DIM, s->prefixes[i], layer, 'k');
		fill(v, HEAD_DIM, s->prefixes[i], layer, 'v');
		for (uint32_t h = 0; h < N_Q_HEADS; h++) {
			double score = 0;

			for (uint32_t d = 0; d < HEAD_DIM; d++)
				score += (double)q[h * HEAD_DIM + d] * k[d];
			/* Scores stay below 12: no maximum is needed. */
			double weight = exp(score / sqrt(HEAD_DIM));

			sums[h] += weight;
			for (uint32_t d = 0; d < HEAD_DIM; d++)
				ret[h * HEAD_DIM + d] += weight * v[d];
		}
	}
	for (uint32_t i = 0; i < N_Q_HEADS * HEAD_DIM; i++)
		ret[i] /= sums[i / HEAD_DIM];
}

static void check_row(const struct stem *s, const void *row, uint32_t pos, uint32_t layer)
{
	double right[N_Q_HEADS * HEAD_DIM], difference = 0, norm = 0;

	plain_output(s, pos, layer, right);
	for (uint32_t i = 0; i < N_Q_HEADS * HEAD_DIM; i++) {
		double off = element_get(row, i) - right[i];

		difference += off * off;
		norm += right[i] * right[i];
	}
	MUST(sqrt(difference / norm) <= MAX_ERROR);
}

static void put(void *rows, size_t at, const float *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		element_put(rows, at + i, from[i]);
}

static void write_inputs(struct stem *s, uint32_t n, uint32_t layer)
{
	float values[N_Q_HEADS * HEAD_DIM];

	for (uint32_t i = 0; i < n; i++) {
		uint64_t prefix = s->prefixes[s->n_done + i];

		fill_q(values, prefix, layer);
		put(s->q, i * N_Q_HEADS * HEAD_DIM, values, N_Q_HEADS * HEAD_DIM);
		fill(values, HEAD_DIM, prefix, layer, 'k');
		put(s->k, i * HEAD_DIM, values, HEAD_DIM);
		fill(values, HEAD_DIM, prefix, layer, 'v');
		put(s->v, i * HEAD_DIM, values, HEAD_DIM);
	}
	/* A row that nobody writes is no number. */
	memset(s->o, 0xff, n * N_Q_HEADS * HEAD_DIM * element_bytes());
}

void stem_run_layer(struct stem *s, uint32_t n, uint32_t layer)
{
	struct coppice_step_seq part = {
		.seq = s->seq, .n_new = n, .q = s->q, .k = s->k, .v = s->v, .o = s->o};
	struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	write_inputs(s, n, layer);
	MUST(coppice_step(s->lane, &step, &ticket) == 0);
	MUST(coppice_wait(s->lane, ticket, PATIENCE_NS) == 0);
	for (uint32_t i = 0; i < n; i++)
		if (i == n - 1 || i % CHECK_EVERY == 0)
			check_row(s, element_at(s->o, i * N_Q_HEADS * HEAD_DIM), s->n_done + i,
				  layer);
}

static void compute_chunk(struct stem *s, uint32_t n)
{
	MUST(coppice_seq_extend(s->seq, s->ids + s->n_done, n, NULL) == 0);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		stem_run_layer(s, n, layer);
	s->n_done += n;
	s->found->n_computed += n;
}

void stem_compute_to(struct stem *s, uint32_t end)
{
	while (s->n_done < end)
		compute_chunk(s, end - s->n_done < CHUNK ? end - s->n_done : CHUNK);
}

void stem_connect(struct stem *s, const char *socket)
{
	const struct coppice_model_info info = {
		.name = "flock",
		.n_layers = N_LAYERS,
		.n_q_heads = N_Q_HEADS,
		.n_kv_heads = 1,
		.head_dim = HEAD_DIM,
		.dtype = (enum coppice_dtype)element_dtype(),
	};

	MUST(coppice_connect(&s->c, socket) == 0);
	MUST(coppice_model_open(s->c, &info, &s->model) == 0);
	MUST(coppice_arena_new(s->c, COPPICE_HOST, 1, &s->arena) == 0);
	MUST(coppice_lane_new(s->c, &s->lane) == 0);
	s->q = coppice_arena_base(s->arena);
	s->k = element_at(s->q, CHUNK * N_Q_HEADS * HEAD_DIM);
	s->v = element_at(s->k, CHUNK * HEAD_DIM);
	s->o = element_at(s->v, CHUNK * HEAD_DIM);
}

void stem_open(struct stem *s)
{
	MUST(coppice_seq_open(s->lane, s->model, s->ids, s->n_tokens, s->salt, &s->seq,
			      &s->found->opened) == 0);
}

void stem_settle(struct stem *s)
{
	MUST(coppice_seq_wait(s->seq, PATIENCE_NS, &s->found->settled) == 0);
	MUST(s->found->settled.pending == 0);
	s->n_done = s->found->settled.cached;
}

void stem_decode(struct stem *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		add_token(s, 60000 + s->index * 100 + i);
		compute_chunk(s, 1);
	}
}

void stem_close(struct stem *s)
{
	coppice_seq_close(s->seq);
	coppice_lane_free(s->lane);
	coppice_arena_free(s->arena);
	coppice_close(s->c);
}
