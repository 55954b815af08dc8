/*
 * sched_random_test.c - random operations of several sessions against a naive model: a flat table
 * of sequences, each a list of token ids, and what attention over them must yield.
 *
 * Q is zero, so that attention is the mean of V over the path. V of a token is made of a hash of
 * everything up to it, so that a row of foreign or stale KV shows in the mean. One layer, one head,
 * 16 floats.
 */
#include "sched_harness.h"

#include "daemon/control/evict.h"
#include "daemon/control/verbs.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define DIM 16
#define MAX_LEN 160
#define N_CLIENTS 3
#define SEQS_A_CLIENT 6
#define ALPHABET 3 /* few ids: prefixes meet often */

static const struct work_shape SHAPE = {.n_layers = 1,
					.n_q_heads = 1,
					.n_kv_heads = 1,
					.head_dim = DIM,
					.page_tokens = 16,
					.dtype = WORK_FP32};

struct naive {
	uint64_t handle; /* 0: free */
	uint32_t n;
	uint32_t ids[MAX_LEN];
	uint64_t hash[MAX_LEN + 1]; /* of the first i ids */
	double sum[MAX_LEN + 1][DIM]; /* of V over the first i tokens */
};

struct world {
	struct harness h;
	struct client clients[N_CLIENTS];
	struct naive seqs[N_CLIENTS][SEQS_A_CLIENT];
	uint64_t random;
};

static uint32_t draw(struct world *w, uint32_t below)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 33) % below);
}

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

/* What the naive model knows of a token more. */
static void append(struct naive *q, uint32_t id)
{
	q->ids[q->n] = id;
	q->hash[q->n + 1] = mix(q->hash[q->n], id);
	for (int d = 0; d < DIM; d++)
		q->sum[q->n + 1][d] = q->sum[q->n][d] + v_of(q->hash[q->n + 1], d);
	q->n++;
}

static void write_rows(struct client *c, const struct abi_step_seq *rec, const uint64_t *hashes)
{
	float *k = (float *)(void *)(c->arena + rec->k), *v = (float *)(void *)(c->arena + rec->v);

	memset(c->arena + rec->q, 0, rec->n_new * DIM * sizeof(float));
	for (uint32_t i = 0; i < rec->n_new; i++) {
		for (int d = 0; d < DIM; d++) {
			k[i * DIM + d] = v_of(hashes[i] + 1, d);
			v[i * DIM + d] = v_of(hashes[i], d);
		}
	}
}

static void check_row(const struct client *c, const struct abi_step_seq *rec, uint32_t row,
		      const double *sum, uint32_t n)
{
	const float *o = (const float *)(const void *)(c->arena + rec->o) + row * DIM;

	for (int d = 0; d < DIM; d++)
		assert_true(fabs(o[d] - sum[d] / n) < 2e-6);
}

/* n tokens that the naive model has already, from `from` on. */
static void compute(struct client *c, struct naive *q, uint32_t from)
{
	uint32_t n = q->n - from;
	struct abi_step_seq rec = client_step_seq(c, q->handle, n);

	assert_int_equal(client_extend(c, q->handle, q->ids + from, n).status, 0);
	write_rows(c, &rec, q->hash + from + 1);
	assert_int_equal(client_step(c, &rec, 0).status, 0);
	for (uint32_t i = 0; i < n; i++)
		check_row(c, &rec, i, q->sum[from + i + 1], from + i + 1);
}

static void op_open(struct world *w, struct client *c, struct naive *q)
{
	struct store_match match;
	uint32_t n = 1 + draw(w, MAX_LEN / 2);

	q->n = 0;
	q->hash[0] = 1;
	while (q->n < n)
		append(q, draw(w, 8) ? (q->n * 7 + q->n / 5) % ALPHABET : draw(w, ALPHABET));
	assert_int_equal(client_open(c, q->ids, n, &q->handle, &match), 0);
	assert_true(match.cached < n);
	compute(c, q, match.cached);
}

static void op_extend(struct world *w, struct client *c, struct naive *q)
{
	uint32_t from = q->n, n = 1 + draw(w, 4);

	if (q->n + n > MAX_LEN)
		return;
	while (n--)
		append(q, draw(w, ALPHABET));
	compute(c, q, from);
}

static void op_trim(struct world *w, struct client *c, struct naive *q)
{
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = q->handle, .arg = draw(w, q->n + 1)};

	assert_int_equal(client_do(c, trim, NULL, 0).status, 0);
	q->n = (uint32_t)trim.arg;
}

static void op_fork(struct world *w, struct client *c, struct naive *q, struct naive *seqs)
{
	struct naive *other = &seqs[draw(w, SEQS_A_CLIENT)];

	if (other->handle)
		return;
	struct abi_completion fork =
		client_do(c, (struct abi_entry){.kind = ABI_FORK, .seq = q->handle}, NULL, 0);

	assert_int_equal(fork.status, 0);
	*other = *q;
	other->handle = fork.value;
}

/* A draft tree of two branches below a common token; one branch is accepted, or nothing. */
static void op_draft(struct world *w, struct client *c, struct naive *q)
{
	const uint32_t ids[] = {draw(w, ALPHABET), draw(w, ALPHABET), draw(w, ALPHABET),
				draw(w, ALPHABET)};
	const uint32_t body[] = {ids[0], ids[1], ids[2], ids[3], WORK_NONE, 0, 0, 2};
	const uint32_t accepted[] = {0, 2, 3};
	uint32_t n_accepted = draw(w, 4), from = q->n;
	struct abi_step_seq rec = client_step_seq(c, q->handle, 4);
	struct abi_entry draft = {.kind = ABI_EXTEND,
				  .seq = q->handle,
				  .count = 4,
				  .flags = ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS};
	uint64_t hashes[4];

	if (q->n + 4 > MAX_LEN)
		return;
	hashes[0] = mix(q->hash[q->n], ids[0]);
	hashes[1] = mix(hashes[0], ids[1]);
	hashes[2] = mix(hashes[0], ids[2]);
	hashes[3] = mix(hashes[2], ids[3]);
	assert_int_equal(client_do(c, draft, body, sizeof(body)).status, 0);
	write_rows(c, &rec, hashes);
	assert_int_equal(client_step(c, &rec, 0).status, 0);
	for (uint32_t i = 0; i < n_accepted; i++)
		append(q, ids[accepted[i]]);
	for (uint32_t i = 0; i < n_accepted; i++)
		check_row(c, &rec, accepted[i], q->sum[from + i + 1], from + i + 1);
	struct abi_entry accept = {.kind = ABI_ACCEPT, .seq = q->handle, .count = n_accepted};

	assert_int_equal(client_do(c, accept, accepted, n_accepted * 4).status, 0);
}

/* A failed step leaves the sequence at its published tokens, after a trim. */
static void op_fail(struct world *w, struct client *c, struct naive *q)
{
	uint32_t id = draw(w, ALPHABET);
	struct abi_step_seq rec = client_step_seq(c, q->handle, 1);
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = q->handle, .arg = q->n};

	assert_int_equal(client_extend(c, q->handle, &id, 1).status, 0);
	rec.q = 1;
	assert_int_equal(client_step(c, &rec, 0).status, -EINVAL);
	assert_int_equal(client_do(c, trim, NULL, 0).status, 0);
}

static void op_close(struct client *c, struct naive *q)
{
	assert_int_equal(client_close(c, q->handle), 0);
	q->handle = 0;
}

static void op_evict(struct world *w)
{
	struct evict_call call = {.n_pages = 1 + draw(w, 8)};
	struct sched_request rq = {.serve = verb_evict.serve, .room = &call};

	assert_int_equal(harness_call(&w->h, &rq), 0);
}

static void op_any(struct world *w)
{
	uint32_t i = draw(w, N_CLIENTS);
	struct client *c = &w->clients[i];
	struct naive *q = &w->seqs[i][draw(w, SEQS_A_CLIENT)];
	uint32_t what = draw(w, 100);

	if (!q->handle)
		op_open(w, c, q);
	else if (what < 66)
		op_extend(w, c, q);
	else if (what < 76)
		op_trim(w, c, q);
	else if (what < 82)
		op_fork(w, c, q, w->seqs[i]);
	else if (what < 90)
		op_draft(w, c, q);
	else if (what < 93)
		op_fail(w, c, q);
	else if (what < 97)
		op_close(c, q);
	else
		op_evict(w);
}

static void random_operations_agree_with_the_naive_model(void **state)
{
	const char *seed = getenv("COPPICE_SEED"), *count = getenv("COPPICE_OPS");
	uint64_t n_ops = count ? strtoull(count, NULL, 0) : 1000000;
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	w->random = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	print_message("COPPICE_SEED=%llu, %llu operations\n", (unsigned long long)w->random,
		      (unsigned long long)n_ops);
	w->random = w->random * UINT64_C(0x9e3779b97f4a7c15) | 1;
	harness_init(&w->h);
	w->h.config.pool_bytes = 2 * w->h.config.extent_bytes;
	w->h.config.n_threads = 1;
	w->h.stepped = true;
	harness_start(&w->h);
	for (int i = 0; i < N_CLIENTS; i++)
		client_start(&w->clients[i], &w->h, 1000 + i / 2, &SHAPE, 1 << 20);
	for (uint64_t i = 0; i < n_ops; i++)
		op_any(w);
	for (int i = 0; i < N_CLIENTS; i++)
		client_end(&w->clients[i]);
	assert_int_equal(harness_status(&w->h).store.n_seqs, 0);
	assert_int_equal(harness_status(&w->h).n_lanes, 0);
	harness_stop(&w->h);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations_agree_with_the_naive_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
