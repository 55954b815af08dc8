/* naive.c - hashes of tokens and their sums, and the entries that make the scheduler have them. */
#include "naive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define DIM NAIVE_DIM

const struct work_shape naive_shape = {.n_layers = 1,
				       .n_q_heads = 1,
				       .n_kv_heads = 1,
				       .head_dim = DIM,
				       .page_tokens = 16,
				       .dtype = WORK_FP32};

static uint64_t mix(uint64_t hash, uint32_t id)
{
	hash = (hash ^ (id + 1)) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

static float v_of(uint64_t hash, int d)
{
	uint64_t h = mix(hash, (uint32_t)d + 1000);

	return (float)((double)(h >> 40) / (1 << 24)) - 0.5f;
}

void naive_begin(struct naive *q)
{
	q->n = 0;
	q->hash[0] = 1;
	memset(q->sum[0], 0, sizeof(q->sum[0]));
}

void naive_append(struct naive *q, uint32_t id)
{
	assert_true(q->n < NAIVE_MOST);
	q->ids[q->n] = id;
	q->hash[q->n + 1] = mix(q->hash[q->n], id);
	for (int d = 0; d < DIM; d++)
		q->sum[q->n + 1][d] = q->sum[q->n][d] + v_of(q->hash[q->n + 1], d);
	q->n++;
}

static uint32_t row_values(const struct client *c)
{
	return c->shape.n_kv_heads * c->shape.head_dim;
}

static void write_row(const struct client *c, uint64_t at, uint64_t hash)
{
	float *row = (float *)(void *)(c->arena + at);

	for (uint32_t d = 0; d < row_values(c); d++)
		row[d] = d < DIM ? v_of(hash, (int)d) : row[d - DIM];
}

static void write_rows(struct client *c, const struct abi_step_seq *rec, const uint64_t *hashes)
{
	memset(c->arena + rec->q, 0, rec->n_new * rec->q_stride);
	for (uint32_t i = 0; i < rec->n_new; i++) {
		write_row(c, rec->k + i * rec->k_stride, hashes[i] + 1);
		write_row(c, rec->v + i * rec->v_stride, hashes[i]);
	}
}

/* A sum of floats, one after the other. */
static void check_row(const struct client *c, const struct abi_step_seq *rec, uint32_t row,
		      const double *sum, uint32_t n)
{
	const float *o = (const float *)(const void *)(c->arena + rec->o + row * rec->o_stride);

	for (uint32_t d = 0; d < row_values(c); d++)
		assert_true(fabs(o[d] - sum[d % DIM] / n) < 2e-6);
}

static uint64_t submit(struct client *c, const struct naive *q, uint32_t from,
		       struct abi_step_seq *rec, uint32_t flags)
{
	struct abi_entry step = {.kind = ABI_STEP, .count = 1, .flags = flags};
	uint32_t n = q->n - from;

	*rec = client_step_seq(c, q->handle, n);
	write_rows(c, rec, q->hash + from + 1);
	client_submit(c, (struct abi_entry){.kind = ABI_EXTEND, .seq = q->handle, .count = n},
		      q->ids + from, n * 4);
	return client_submit(c, step, rec, sizeof(*rec));
}

uint64_t naive_submit(struct client *c, const struct naive *q, uint32_t from,
		      struct abi_step_seq *rec)
{
	return submit(c, q, from, rec, 0);
}

uint64_t naive_submit_append(struct client *c, const struct naive *q, uint32_t from)
{
	struct abi_step_seq rec;

	return submit(c, q, from, &rec, ABI_STEP_APPEND_ONLY);
}

int naive_await(struct client *c, struct naive *q, uint32_t from, const struct abi_step_seq *rec,
		uint64_t ticket)
{
	int status = client_wait(c, ticket).status;

	if (status < 0) {
		naive_trim(c, q, from);
		return status;
	}
	for (uint32_t i = 0; i < rec->n_new; i++)
		check_row(c, rec, i, q->sum[from + i + 1], from + i + 1);
	return 0;
}

int naive_compute(struct client *c, struct naive *q, uint32_t from)
{
	struct abi_step_seq rec;
	uint64_t ticket = naive_submit(c, q, from, &rec);

	return naive_await(c, q, from, &rec, ticket);
}

void naive_trim(struct client *c, struct naive *q, uint32_t n)
{
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = q->handle, .arg = n};

	assert_int_equal(client_do(c, trim, NULL, 0).status, 0);
	q->n = n;
}

int naive_fork(struct client *c, const struct naive *q, struct naive *other)
{
	struct abi_completion fork =
		client_do(c, (struct abi_entry){.kind = ABI_FORK, .seq = q->handle}, NULL, 0);

	if (fork.status < 0)
		return fork.status;
	other->handle = fork.value;
	other->n = q->n;
	memcpy(other->ids, q->ids, q->n * sizeof(*q->ids));
	memcpy(other->hash, q->hash, (q->n + 1) * sizeof(*q->hash));
	memcpy(other->sum, q->sum, (q->n + 1) * sizeof(*q->sum));
	return 0;
}

/* The tokens that are accepted; their rows are right. */
static void accept(struct client *c, struct naive *q, const struct abi_step_seq *rec,
		   const uint32_t ids[NAIVE_DRAFT], uint32_t n)
{
	static const uint32_t branch[] = {0, 2, 3};
	struct abi_entry entry = {.kind = ABI_ACCEPT, .seq = q->handle, .count = n};
	uint32_t from = q->n;

	for (uint32_t i = 0; i < n; i++) {
		naive_append(q, ids[branch[i]]);
		check_row(c, rec, branch[i], q->sum[from + i + 1], from + i + 1);
	}
	assert_int_equal(client_do(c, entry, branch, n * 4).status, 0);
}

int naive_draft(struct client *c, struct naive *q, const uint32_t ids[NAIVE_DRAFT],
		uint32_t n_accepted)
{
	const uint32_t body[] = {ids[0], ids[1], ids[2], ids[3], WORK_NONE, 0, 0, 2};
	struct abi_step_seq rec = client_step_seq(c, q->handle, NAIVE_DRAFT);
	struct abi_entry draft = {.kind = ABI_EXTEND,
				  .seq = q->handle,
				  .count = NAIVE_DRAFT,
				  .flags = ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS};
	uint64_t hashes[NAIVE_DRAFT];
	int status;

	hashes[0] = mix(q->hash[q->n], ids[0]);
	hashes[1] = mix(hashes[0], ids[1]);
	hashes[2] = mix(hashes[0], ids[2]);
	hashes[3] = mix(hashes[2], ids[3]);
	write_rows(c, &rec, hashes);
	client_submit(c, draft, body, sizeof(body));
	status = client_step(c, &rec, 0).status;
	if (status < 0)
		naive_trim(c, q, q->n);
	else
		accept(c, q, &rec, ids, n_accepted);
	return status;
}
