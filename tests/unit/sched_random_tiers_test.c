/*
 * sched_random_tiers_test.c - random operations of several sessions against naive sequences
 * (naive.h), where little of them fits in the pool: pages leave it for host memory and come back,
 * paths longer than it stream through a stage, pins hold some, and several steps are under way at
 * a time. What there is no room for may be refused; what is answered is right.
 */
#include "naive.h"
#include "oracle.h"
#include "tests/sanitized.h"

#include "daemon/control/pins.h"
#include "daemon/control/verbs.h"
#include "proto/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_OPS (SANITIZED_THREADS ? 500 : 2000)
#define N_CLIENTS 3
#define SEQS_A_CLIENT 3
#define N_DOCS 4
#define DOC_MOST 700u /* tokens */
#define EXTENT_BYTES (2u << 20) /* 16 pages, 256 tokens */

static const struct work_shape SHAPE = {.n_layers = 1,
					.n_q_heads = 8,
					.n_kv_heads = 8,
					.head_dim = 128,
					.page_tokens = 16,
					.dtype = WORK_FP32};

struct world {
	struct harness h;
	struct client clients[N_CLIENTS];
	struct naive seqs[N_CLIENTS][SEQS_A_CLIENT];
	uint64_t pins[N_CLIENTS]; /* 0: none */
	struct oracle_random random;
	uint64_t n_steps, n_refused;
};

static uint32_t draw(struct world *w, uint32_t below)
{
	return oracle_below(&w->random, below);
}

/* Counts it. For want of room nothing else may be said. */
static void note(struct world *w, int status)
{
	w->n_steps++;
	w->n_refused += status < 0;
	if (status < 0 && status != -ENOSPC && status != -EDQUOT)
		fail_msg("status %d", status);
}

static uint32_t doc_token(uint32_t doc, uint32_t pos)
{
	return doc * 1000 + pos % 7;
}

static void op_close(struct client *c, struct naive *q)
{
	assert_int_equal(client_close(c, q->handle), 0);
	q->handle = 0;
}

/* A piece of a document, and sometimes something else behind it. */
static void op_open(struct world *w, struct client *c, struct naive *q)
{
	uint32_t doc = draw(w, N_DOCS), n = 1 + draw(w, draw(w, 3) ? 200 : DOC_MOST);
	struct store_match match;
	int r;

	naive_begin(q);
	while (q->n < n)
		naive_append(q, doc_token(doc, q->n));
	if (draw(w, 2))
		naive_append(q, 5000 + draw(w, 3));
	r = client_open(c, q->ids, q->n, &q->handle, &match);
	if (r < 0) {
		note(w, r);
		q->handle = 0;
		return;
	}
	match = client_await(c, q->handle, match);
	assert_true(match.cached < q->n);
	r = naive_compute(c, q, match.cached);
	note(w, r);
	if (r < 0) /* others would wait for what it has claimed */
		op_close(c, q);
}

static bool more(struct world *w, struct naive *q)
{
	uint32_t n = 1 + draw(w, draw(w, 4) ? 3 : 40);

	if (!q->handle || q->n + n > NAIVE_MOST)
		return false;
	while (n--)
		naive_append(q, draw(w, 3));
	return true;
}

/* A step of each client's, all under way before the first is waited for. */
static void op_together(struct world *w)
{
	struct abi_step_seq recs[N_CLIENTS];
	struct naive *of[N_CLIENTS];
	uint32_t froms[N_CLIENTS];
	uint64_t tickets[N_CLIENTS];

	for (uint32_t i = 0; i < N_CLIENTS; i++) {
		struct naive *q = &w->seqs[i][draw(w, SEQS_A_CLIENT)];

		froms[i] = q->n;
		of[i] = more(w, q) ? q : NULL;
		if (of[i])
			tickets[i] = naive_submit(&w->clients[i], q, froms[i], &recs[i]);
	}
	for (uint32_t i = 0; i < N_CLIENTS; i++)
		if (of[i])
			note(w, naive_await(&w->clients[i], of[i], froms[i], &recs[i], tickets[i]));
}

static void op_fork(struct world *w, struct client *c, struct naive *q, struct naive *seqs)
{
	struct naive *other = &seqs[draw(w, SEQS_A_CLIENT)];

	if (!other->handle)
		note(w, naive_fork(c, q, other));
}

static void op_draft(struct world *w, struct client *c, struct naive *q)
{
	const uint32_t ids[] = {draw(w, 3), draw(w, 3), draw(w, 3), draw(w, 3)};

	if (q->n + NAIVE_DRAFT <= NAIVE_MOST)
		note(w, naive_draft(c, q, ids, draw(w, 4)));
}

static void unpin(struct world *w, uint32_t i)
{
	struct sched_request rq = {.serve = verb_unpin.serve,
				   .session = w->clients[i].session,
				   .room = &w->pins[i]};

	assert_int_equal(harness_call(&w->h, &rq), 0);
	w->pins[i] = 0;
}

static void op_pin(struct world *w, uint32_t i, struct naive *q)
{
	struct pin_call call = {.what = q->handle, .for_ns = UINT64_C(600) * NS_PER_S};
	struct sched_request rq = {.serve = verb_seq_pin.serve,
				   .session = w->clients[i].session,
				   .room = &call};

	if (w->pins[i]) {
		unpin(w, i);
		return;
	}
	if (harness_call(&w->h, &rq) == 0)
		w->pins[i] = call.pin;
}

static void op_any(struct world *w)
{
	uint32_t i = draw(w, N_CLIENTS), what = draw(w, 100);
	struct client *c = &w->clients[i];
	struct naive *q = &w->seqs[i][draw(w, SEQS_A_CLIENT)];

	if (!q->handle)
		op_open(w, c, q);
	else if (what < 50)
		op_together(w);
	else if (what < 58)
		naive_trim(c, q, draw(w, q->n + 1));
	else if (what < 64)
		op_fork(w, c, q, w->seqs[i]);
	else if (what < 72)
		op_draft(w, c, q);
	else if (what < 77)
		op_pin(w, i, q);
	else if (what < 90)
		op_close(c, q);
	else
		harness_evict(&w->h, 1 + draw(w, 8));
}

static void start(struct world *w)
{
	harness_init(&w->h);
	w->h.config.stage_bytes = (1 + draw(w, 2)) * EXTENT_BYTES;
	w->h.config.pool_bytes = w->h.config.stage_bytes + (2 + draw(w, 2)) * EXTENT_BYTES;
	w->h.config.host_tier_bytes = (4 + draw(w, 12)) * EXTENT_BYTES;
	w->h.config.tier_depth = 8;
	w->h.config.domain_pin_percent = 30;
	w->h.config.n_threads = 1;
	harness_start(&w->h);
	for (uint32_t i = 0; i < N_CLIENTS; i++)
		client_start(&w->clients[i], &w->h, 1000 + i / 2, &SHAPE, 32 << 20);
}

/* All of it has happened, and nothing is left. */
static void end(struct world *w, uint64_t n_ops)
{
	struct sched_status status = harness_status(&w->h);
	const struct store_tier_stats *host = &status.tiers.tiers[STORE_HOST];

	print_message("%llu steps, %llu refused; %llu streamed; from host memory %llu\n",
		      (unsigned long long)w->n_steps, (unsigned long long)w->n_refused,
		      (unsigned long long)status.n_streamed, (unsigned long long)host->hits);
	if (n_ops >= 500) {
		assert_true(status.n_streamed > 0);
		assert_true(host->hits > 0);
		assert_true(w->n_refused < w->n_steps / 2);
	}
	for (uint32_t i = 0; i < N_CLIENTS; i++) {
		if (w->pins[i])
			unpin(w, i);
		client_end(&w->clients[i]);
	}
	assert_int_equal(harness_status(&w->h).store.n_seqs, 0);
	assert_int_equal(harness_status(&w->h).n_lanes, 0);
	harness_stop(&w->h);
}

static void what_is_answered_is_right(void **state)
{
	const char *count = getenv("COPPICE_OPS");
	uint64_t n_ops = count ? strtoull(count, NULL, 0) : N_OPS;
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->random = oracle_seed(__func__);
	start(w);
	for (uint64_t i = 0; i < n_ops; i++)
		op_any(w);
	end(w, n_ops);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_answered_is_right),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
