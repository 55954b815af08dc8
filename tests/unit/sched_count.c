/*
 * sched_count.c - rounds of a scheduler that the program goes itself, to be counted by callgrind:
 * what nops and tokens cost, of one session or of many, of one user or of several.
 *
 *      sched_count nop|layer|token|large CLIENTS USERS ROUNDS
 *
 * A round is a nop of each client, the next layer of a token, of which it has 256, or a token: an
 * extension, two layers, a trim. What is refused fails it. Large is that of 32 query heads and 8 KV
 * heads of 128. What a round takes is the difference of two runs, the client's part of it too.
 *
 * Printed is the processor's time of a round, without the first eighth of them: what is made once,
 * and caches that are cold, are no part of it.
 */
#include "sched_fixture.h"

#include "daemon/sched/round.h"
#include "proto/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIENTS_MAX 16
#define PROMPT 4u

static const struct work_shape large_shape = {.n_layers = 2,
					      .n_q_heads = 32,
					      .n_kv_heads = 8,
					      .head_dim = 128,
					      .page_tokens = 16,
					      .dtype = WORK_FP32};

/* One token has as many as anybody counts. */
static const struct work_shape deep_shape = {.n_layers = 256,
					     .n_q_heads = 4,
					     .n_kv_heads = 2,
					     .head_dim = 16,
					     .page_tokens = 16,
					     .dtype = WORK_FP32};

static struct harness h;
static struct client clients[CLIENTS_MAX];
static uint64_t seqs[CLIENTS_MAX];

/* The same in every run: which rounds wait for company, and how long, is no luck. */
static uint64_t next_ns(void)
{
	static uint64_t now_ns = 1000000000;

	return now_ns += 1000;
}

static void wait_all(int n)
{
	for (int i = 0; i < n; i++) {
		struct client *c = &clients[i];

		while (ring_done(c->lane) < c->ticket)
			sched_round(h.sched);
		assert_int_equal(ring_completion(c->lane, c->ticket).status, ABI_OK);
	}
}

static void nop_round(int n)
{
	for (int i = 0; i < n; i++)
		client_submit(&clients[i], (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	wait_all(n);
}

static void layer_round(int n, uint32_t layer)
{
	for (int i = 0; i < n; i++) {
		struct abi_step_seq rec = client_step_seq(&clients[i], seqs[i], 1);

		client_submit(&clients[i],
			      (struct abi_entry){.kind = ABI_STEP, .count = 1, .layer = layer},
			      &rec, sizeof(rec));
	}
	wait_all(n);
}

static void extend_round(int n)
{
	const uint32_t id = 5;

	for (int i = 0; i < n; i++)
		client_submit(&clients[i],
			      (struct abi_entry){.kind = ABI_EXTEND, .seq = seqs[i], .count = 1},
			      &id, sizeof(id));
	wait_all(n);
}

static void token_round(int n)
{
	extend_round(n);
	for (uint32_t layer = 0; layer < 2; layer++)
		layer_round(n, layer);
	for (int i = 0; i < n; i++)
		client_submit(&clients[i],
			      (struct abi_entry){.kind = ABI_TRIM, .seq = seqs[i], .arg = PROMPT},
			      NULL, 0);
	wait_all(n);
}

static void join(int i, int n_users, const struct work_shape *shape)
{
	struct client *c = &clients[i];
	struct store_match match;

	client_start(c, &h, 1000 + (uint64_t)(i % n_users), shape, 1 << 20);
	assert_int_equal(client_open(c, fixture_ids, PROMPT, &seqs[i], &match), 0);
	client_compute(c, seqs[i], fixture_ids + match.cached, PROMPT - match.cached);
}

/* Rounds up to `end`. */
static void go_rounds(const char *kind, int n, uint32_t i, uint32_t end)
{
	bool nops = strcmp(kind, "nop") == 0, layers = strcmp(kind, "layer") == 0;

	for (; i < end; i++) {
		if (layers)
			layer_round(n, i);
		else
			(nops ? nop_round : token_round)(n);
	}
}

static void time_rounds(const char *kind, int n, uint32_t n_rounds)
{
	uint32_t first = n_rounds / 8;

	if (strcmp(kind, "layer") == 0)
		extend_round(n);
	go_rounds(kind, n, 0, first);
	uint64_t start_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);

	go_rounds(kind, n, first, n_rounds);
	uint64_t took_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - start_ns;

	printf("{\"bench\":\"rounds\",\"case\":\"%s\",\"metric\":\"round_us\",\"value\":%.4f,"
	       "\"unit\":\"us\"}\n",
	       kind, (double)took_ns / 1e3 / (n_rounds - first));
	fflush(stdout);
}

static const struct work_shape *shape_of(const char *kind)
{
	if (strcmp(kind, "large") == 0)
		return &large_shape;
	return strcmp(kind, "layer") == 0 ? &deep_shape : &fixture_shape;
}

static bool has_rounds(const char *kind, int n)
{
	return n > 0 && (strcmp(kind, "layer") != 0 || (uint32_t)n <= deep_shape.n_layers);
}

int main(int argc, char **argv)
{
	int n = argc == 5 ? atoi(argv[2]) : 0, n_users = argc == 5 ? atoi(argv[3]) : 0;

	if (n < 1 || n > CLIENTS_MAX || n_users < 1 || !has_rounds(argv[1], atoi(argv[4]))) {
		fprintf(stderr, "sched_count nop|layer|token|large CLIENTS USERS ROUNDS\n");
		return 2;
	}
	harness_init(&h);
	h.stepped = true;
	h.config.n_threads = 1;
	harness_start(&h);
	h.sched->core.clock = next_ns;
	for (int i = 0; i < n; i++)
		join(i, n_users, shape_of(argv[1]));
	time_rounds(argv[1], n, (uint32_t)atoi(argv[4]));
	_exit(0); /* with all that there is */
}
