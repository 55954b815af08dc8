/*
 * sched_random_test.c - random operations of several sessions against naive sequences (naive.h),
 * in a pool that has room for them.
 */
#include "naive.h"
#include "oracle.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX_LEN 160
#define N_CLIENTS 3
#define SEQS_A_CLIENT 6
#define ALPHABET 3 /* few ids: prefixes meet often */

struct world {
	struct harness h;
	struct client clients[N_CLIENTS];
	struct naive seqs[N_CLIENTS][SEQS_A_CLIENT];
	struct oracle_random random;
};

static uint32_t draw(struct world *w, uint32_t below)
{
	return oracle_below(&w->random, below);
}

static void op_open(struct world *w, struct client *c, struct naive *q)
{
	struct store_match match;
	uint32_t n = 1 + draw(w, MAX_LEN / 2);

	naive_begin(q);
	while (q->n < n)
		naive_append(q, draw(w, 8) ? (q->n * 7 + q->n / 5) % ALPHABET : draw(w, ALPHABET));
	assert_int_equal(client_open(c, q->ids, n, &q->handle, &match), 0);
	assert_true(match.cached < n);
	assert_int_equal(naive_compute(c, q, match.cached), 0);
}

static void op_extend(struct world *w, struct client *c, struct naive *q)
{
	uint32_t from = q->n, n = 1 + draw(w, 4);

	if (q->n + n > MAX_LEN)
		return;
	while (n--)
		naive_append(q, draw(w, ALPHABET));
	assert_int_equal(naive_compute(c, q, from), 0);
}

/* Beside another client's step, by one batch where both are new at once. */
static void op_append(struct world *w, uint32_t i, struct naive *q)
{
	struct client *c = &w->clients[i], *other = &w->clients[(i + 1) % N_CLIENTS];
	struct naive *seen = &w->seqs[(i + 1) % N_CLIENTS][draw(w, SEQS_A_CLIENT)];
	uint32_t n_appended = q->n, n_seen = seen->n;
	struct abi_step_seq rec;
	uint64_t append, step;

	if (!seen->handle || q->n == MAX_LEN || seen->n == MAX_LEN)
		return;
	naive_append(q, draw(w, ALPHABET));
	naive_append(seen, draw(w, ALPHABET));
	append = naive_submit_append(c, q, n_appended);
	step = naive_submit(other, seen, n_seen, &rec);
	assert_int_equal(client_wait(c, append).status, 0);
	assert_int_equal(naive_await(other, seen, n_seen, &rec, step), 0);
}

static void op_fork(struct world *w, struct client *c, struct naive *q, struct naive *seqs)
{
	struct naive *other = &seqs[draw(w, SEQS_A_CLIENT)];

	if (!other->handle)
		assert_int_equal(naive_fork(c, q, other), 0);
}

static void op_draft(struct world *w, struct client *c, struct naive *q)
{
	const uint32_t ids[] = {draw(w, ALPHABET), draw(w, ALPHABET), draw(w, ALPHABET),
				draw(w, ALPHABET)};

	if (q->n + NAIVE_DRAFT <= MAX_LEN)
		assert_int_equal(naive_draft(c, q, ids, draw(w, 4)), 0);
}

/* A failed step leaves the sequence at its published tokens, after a trim. */
static void op_fail(struct world *w, struct client *c, struct naive *q)
{
	uint32_t id = draw(w, ALPHABET);
	struct abi_step_seq rec = client_step_seq(c, q->handle, 1);

	assert_int_equal(client_extend(c, q->handle, &id, 1).status, 0);
	rec.q = 1;
	assert_int_equal(client_step(c, &rec, 0).status, -EINVAL);
	naive_trim(c, q, q->n);
}

static void op_close(struct client *c, struct naive *q)
{
	assert_int_equal(client_close(c, q->handle), 0);
	q->handle = 0;
}

static void op_any(struct world *w)
{
	uint32_t i = draw(w, N_CLIENTS);
	struct client *c = &w->clients[i];
	struct naive *q = &w->seqs[i][draw(w, SEQS_A_CLIENT)];
	uint32_t what = draw(w, 100);

	if (!q->handle)
		op_open(w, c, q);
	else if (what < 60)
		op_extend(w, c, q);
	else if (what < 66)
		op_append(w, i, q);
	else if (what < 76)
		naive_trim(c, q, draw(w, q->n + 1));
	else if (what < 82)
		op_fork(w, c, q, w->seqs[i]);
	else if (what < 90)
		op_draft(w, c, q);
	else if (what < 93)
		op_fail(w, c, q);
	else if (what < 97)
		op_close(c, q);
	else
		harness_evict(&w->h, 1 + draw(w, 8));
}

static void random_operations_agree_with_the_naive_model(void **state)
{
	const char *count = getenv("COPPICE_OPS");
	uint64_t n_ops = count ? strtoull(count, NULL, 0) : ROUNDS(1000000, 50000);
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	w->random = oracle_seed(__func__);
	harness_init(&w->h);
	w->h.config.pool_bytes = 2 * w->h.config.extent_bytes;
	w->h.config.n_threads = 1;
	w->h.stepped = true;
	harness_start(&w->h);
	for (int i = 0; i < N_CLIENTS; i++)
		client_start(&w->clients[i], &w->h, 1000 + i / 2, &naive_shape, 1 << 20);
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
