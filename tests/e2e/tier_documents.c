/*
 * tier_documents.c - a document's tokens and values, plain attention over them, and a reader that
 * opens, computes what is missing and compares.
 */
#include "tier_documents.h"

#include "element.h"

#include "client/coppice.h"

#include <math.h>

#define CHUNK 32u /* tokens of an extension */
#define N_LAYERS 2u
#define HEAD_DIM 64u
#define ROWS (CHUNK * HEAD_DIM)
#define PATIENCE_NS UINT64_C(20000000000)

enum tensor { Q, K, V, TENSORS };

/* A document as a whole, as the model's dtype has it. */
struct document {
	float rows[N_LAYERS][TENSORS][DOCUMENT_TOKENS][HEAD_DIM];
};

static uint32_t token_of(uint32_t doc, uint32_t pos)
{
	return doc << 16 | pos;
}

/* In [-1, 1). */
static float value_of(uint32_t token, uint32_t layer, enum tensor tensor, uint32_t i)
{
	uint64_t x = ((uint64_t)token << 20 ^ layer << 14 ^ (uint32_t)tensor << 10 ^ i) + 1;

	x *= UINT64_C(0x9e3779b97f4a7c15);
	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return element_round((float)(int32_t)(x >> 32) / 0x1p31f);
}

static void document_make(struct document *d, uint32_t doc)
{
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (enum tensor tensor = 0; tensor < TENSORS; tensor++)
			for (uint32_t pos = 0; pos < DOCUMENT_TOKENS; pos++)
				for (uint32_t i = 0; i < HEAD_DIM; i++)
					d->rows[layer][tensor][pos][i] =
						value_of(token_of(doc, pos), layer, tensor, i);
}

/* What a token sees: itself and all before it. */
static void attend(const struct document *d, uint32_t layer, uint32_t pos, double ret[HEAD_DIM])
{
	const float *q = d->rows[layer][Q][pos];
	double sum = 0;

	for (uint32_t i = 0; i < HEAD_DIM; i++)
		ret[i] = 0;
	for (uint32_t k = 0; k <= pos; k++) {
		double score = 0;
		for (uint32_t i = 0; i < HEAD_DIM; i++)
			score += (double)q[i] * (double)d->rows[layer][K][k][i];
		double weight = exp(score / sqrt(HEAD_DIM));
		sum += weight;
		for (uint32_t i = 0; i < HEAD_DIM; i++)
			ret[i] += weight * (double)d->rows[layer][V][k][i];
	}
	for (uint32_t i = 0; i < HEAD_DIM; i++)
		ret[i] /= sum;
}

/* A page of twelve that is another's alters some values of O by 1e-2 and more, one token of 384 by
 * 1e-3. fp16 rounds weights and O, of values below 1, by 2.5e-4 each. */
static void assert_seen(const struct document *d, uint32_t layer, uint32_t pos, void *o)
{
	double most = test_on_gpu() ? 1e-3 : 1e-5;
	double want[HEAD_DIM];

	attend(d, layer, pos, want);
	for (uint32_t i = 0; i < HEAD_DIM; i++)
		if (!(fabs((double)element_get(o, i) - want[i]) < most))
			fail_msg("layer %u of token %u: value %u is %g, not %g", layer, pos, i,
				 (double)element_get(o, i), want[i]);
}

void reader_open(struct reader *r, const struct harness *h)
{
	const struct coppice_model_info info = {.name = "documents",
						.n_layers = N_LAYERS,
						.n_q_heads = 1,
						.n_kv_heads = 1,
						.head_dim = HEAD_DIM,
						.dtype = (enum coppice_dtype)element_dtype(),
						.page_tokens = DOCUMENT_TOKENS / DOCUMENT_PAGES};
	struct coppice_arena *arena;

	assert_int_equal(coppice_connect(&r->c, h->socket), 0);
	assert_int_equal(coppice_model_open(r->c, &info, &r->model), 0);
	assert_int_equal(coppice_arena_new(r->c, COPPICE_HOST, ROWS * 4 * sizeof(float), &arena),
			 0);
	assert_int_equal(coppice_lane_new(r->c, &r->lane), 0);
	r->rows = coppice_arena_base(arena);
}

void reader_close(struct reader *r)
{
	coppice_close(r->c);
	r->c = NULL;
}

/* One layer of n tokens; false: the daemon is gone. */
static bool step(struct reader *r, struct coppice_seq *seq, const struct document *d,
		 uint32_t layer, uint32_t pos, uint32_t n)
{
	struct coppice_step_seq part = {.seq = seq,
					.n_new = n,
					.q = r->rows,
					.k = element_at(r->rows, K * ROWS),
					.v = element_at(r->rows, V * ROWS),
					.o = element_at(r->rows, TENSORS * ROWS)};
	uint64_t ticket;

	for (enum tensor tensor = 0; tensor < TENSORS; tensor++)
		for (uint32_t i = 0; i < n * HEAD_DIM; i++)
			element_put(element_at(r->rows, tensor * ROWS), i,
				    d->rows[layer][tensor][pos + i / HEAD_DIM][i % HEAD_DIM]);
	if (coppice_step(r->lane,
			 &(struct coppice_step){.layer = layer, .seqs = &part, .n_seqs = 1},
			 &ticket) ||
	    coppice_wait(r->lane, ticket, PATIENCE_NS))
		return false;
	assert_seen(d, layer, pos + n - 1, element_at(part.o, (n - 1) * HEAD_DIM));
	return true;
}

/* Tokens [pos, pos + n), all layers. */
static bool compute(struct reader *r, struct coppice_seq *seq, const struct document *d,
		    const uint32_t *ids, uint32_t pos, uint32_t n)
{
	if (coppice_seq_extend(seq, ids + pos, n, NULL))
		return false;
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		if (!step(r, seq, d, layer, pos, n))
			return false;
	return true;
}

int document_use(struct reader *r, uint32_t doc, uint32_t n)
{
	static struct document d;
	uint32_t ids[DOCUMENT_TOKENS];
	struct coppice_match match;
	struct coppice_seq *seq;

	document_make(&d, doc);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = token_of(doc, i);
	if (coppice_seq_open(r->lane, r->model, ids, n, 0, &seq, &match))
		return -1;
	if (match.pending && coppice_seq_wait(seq, PATIENCE_NS, &match))
		return -1;
	for (uint32_t pos = match.cached; pos < n;) {
		uint32_t end = pos - pos % CHUNK + CHUNK < n ? pos - pos % CHUNK + CHUNK : n;
		if (!compute(r, seq, &d, ids, pos, end - pos))
			return -1;
		pos = end;
	}
	coppice_seq_close(seq);
	return (int)match.cached;
}
