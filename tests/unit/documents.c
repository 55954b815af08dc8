/*
 * documents.c - documents' values by hash, the outputs of the large pool, which are computed first,
 * and the scheduler with tiers that has to give the same.
 */
#include "documents.h"

#include "daemon/control/verbs.h"

#include "device_ops.h"
#include "oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Norm of the difference by the norm, squared. On the CPU 1e-6; two answers in fp16 are off by 5e-4
 * at most, each. */
#define CLOSE 1e-12
#define CLOSE_FP16 1e-6

struct work_shape document_shape = {.n_layers = DOC_LAYERS,
				    .n_q_heads = DOC_HEADS,
				    .n_kv_heads = DOC_HEADS,
				    .head_dim = 64,
				    .page_tokens = 32,
				    .dtype = WORK_FP32};
static const struct backend_ops *ops = &backend_cpu;

float document_expected[DOCS][DOC_CHUNKS][DOC_LAYERS][DOC_ROW];
float document_expected_long[LONG_CHUNKS][DOC_LAYERS][DOC_ROW];

uint32_t document_token(uint32_t doc, uint32_t pos)
{
	return doc * 100000 + pos;
}

/* Q, K and V are functions of document, position and layer. */
static float value_of(uint32_t token, uint32_t layer, uint32_t tensor, uint32_t i)
{
	uint64_t x = ((uint64_t)token << 20 ^ (uint64_t)layer << 14 ^ tensor << 10 ^ i) + 1;

	x *= UINT64_C(0x9e3779b97f4a7c15);
	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return (float)(int32_t)(x >> 32) / (float)(UINT32_C(1) << 30);
}

void document_fill(struct client *c, uint32_t doc, uint32_t pos, uint32_t n, uint32_t layer)
{
	uint32_t n_values = DOC_HEADS * document_shape.head_dim;
	uint8_t *at = c->arena;
	float row[DOC_ROW];

	for (uint32_t tensor = 0; tensor < 3; tensor++)
		for (uint32_t t = 0; t < n; t++, at += DOC_ROW_BYTES) {
			for (uint32_t i = 0; i < n_values; i++)
				row[i] = value_of(document_token(doc, pos + t), layer, tensor, i);
			oracle_encode(document_shape.dtype, at, row, n_values);
		}
}

void document_output(const struct client *c, uint64_t at, float ret[DOC_ROW])
{
	memset(ret, 0, DOC_ROW * sizeof(*ret));
	oracle_decode(document_shape.dtype, ret, c->arena + at,
		      DOC_HEADS * document_shape.head_dim);
}

void document_compute(struct client *c, uint64_t seq, uint32_t doc, uint32_t pos, uint32_t n,
		      float ret[DOC_LAYERS][DOC_ROW])
{
	struct abi_step_seq rec = client_step_seq(c, seq, n);
	uint32_t ids[DOC_CHUNK];

	assert_true(n <= DOC_CHUNK);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = document_token(doc, pos + i);
	assert_int_equal(client_extend(c, seq, ids, n).status, 0);
	for (uint32_t layer = 0; layer < DOC_LAYERS; layer++) {
		document_fill(c, doc, pos, n, layer);
		assert_int_equal(client_step(c, &rec, layer).status, 0);
		document_output(c, rec.o + (n - 1) * DOC_ROW_BYTES, ret[layer]);
	}
}

void assert_close(float (*got)[DOC_ROW], float (*want)[DOC_ROW])
{
	double sum = 0, norm = 0, close = ops == &backend_cpu ? CLOSE : CLOSE_FP16;

	for (uint32_t layer = 0; layer < DOC_LAYERS; layer++)
		for (uint32_t i = 0; i < DOC_ROW; i++) {
			double x = (double)got[layer][i], y = (double)want[layer][i];
			sum += (x - y) * (x - y);
			norm += y * y;
		}
	if (!(sum <= norm * close))
		fail_msg("off by %g of %g", sum, norm);
}

void assert_right(const struct client *c, float (*got)[DOC_ROW], float (*want)[DOC_ROW])
{
	if (c->h->config.stage_bytes || ops != &backend_cpu)
		assert_close(got, want);
	else
		assert_memory_equal(got, want, sizeof(float[DOC_LAYERS][DOC_ROW]));
}

uint32_t document_use(struct client *c, uint32_t doc, uint32_t n_chunks)
{
	uint32_t tokens[DOC_TOKENS] = {0}, n = n_chunks * DOC_CHUNK;
	float o[DOC_LAYERS][DOC_ROW];
	struct store_match match;
	uint64_t seq;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = document_token(doc, i);
	assert_int_equal(client_open(c, tokens, n, &seq, &match), 0);
	match = client_await(c, seq, match);
	for (uint32_t pos = match.cached; pos < n;) {
		uint32_t count = DOC_CHUNK - pos % DOC_CHUNK;
		document_compute(c, seq, doc, pos, count, o);
		pos += count;
		assert_right(c, o, document_expected[doc][pos / DOC_CHUNK - 1]);
	}
	assert_int_equal(client_close(c, seq), 0);
	return match.cached;
}

static void compute_document(struct client *c, uint32_t doc, uint32_t n_chunks,
			     float (*ret)[DOC_LAYERS][DOC_ROW])
{
	struct store_match match;
	uint64_t seq;
	uint32_t first = document_token(doc, 0);

	assert_int_equal(client_open(c, &first, 1, &seq, &match), 0);
	for (uint32_t i = 0; i < n_chunks; i++)
		document_compute(c, seq, doc, i * DOC_CHUNK, DOC_CHUNK, ret[i]);
	assert_int_equal(client_close(c, seq), 0);
}

struct work_shape document_shape_of(struct work_shape shape)
{
	if (ops != &backend_cpu) {
		shape.dtype = WORK_FP16;
		shape.head_dim *= 2;
	}
	return shape;
}

int documents_init(int argc, char **argv)
{
	int r = argc > 1 ? device_ops(argv[1], &ops) : 0;

	document_shape = document_shape_of(document_shape);
	return r;
}

int documents_expect(void **state)
{
	struct harness h;
	struct client c;

	(void)state;
	harness_init(&h);
	h.ops = ops;
	harness_start(&h);
	client_start(&c, &h, 1, &document_shape, DOC_ARENA_BYTES);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		compute_document(&c, doc, DOC_CHUNKS, document_expected[doc]);
	compute_document(&c, LONG_DOC, LONG_CHUNKS, document_expected_long);
	client_end(&c);
	harness_stop(&h);
	return 0;
}

void documents_start(struct fixture *f)
{
	harness_start(&f->h);
	client_start(&f->c, &f->h, 1, &document_shape, DOC_ARENA_BYTES);
}

void documents_stop(struct fixture *f)
{
	client_end(&f->c);
	harness_stop(&f->h);
}

int documents_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	harness_init(&f->h);
	f->h.ops = ops;
	f->h.config.pool_bytes = 4u << 20;
	f->h.config.host_tier_bytes = 64u << 20;
	f->h.config.tier_depth = 8;
	strcpy(f->file, "/tmp/coppice-tier-XXXXXX");
	close(mkstemp(f->file));
	*state = f;
	return 0;
}

int documents_teardown(void **state)
{
	struct fixture *f = *state;

	unlink(f->file);
	free(f);
	return 0;
}

void documents_with_file(struct fixture *f, uint64_t bytes)
{
	strcpy(f->h.config.file_tier, f->file);
	f->h.config.file_tier_bytes = bytes;
}
