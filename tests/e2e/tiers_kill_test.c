/*
 * tiers_kill_test.c - a daemon that is killed while KV is on its way to its tier file, again and again on the same file.
 *
 * A client computes documents, many more than the pool has room for; at a random moment the daemon is killed. The
 * next one serves all documents: V is the same vector in all of a document's tokens and another in each document, so that
 * attention gives that vector if, and only if, nothing but the document's own KV is seen. COPPICE_SEED repeats the moments,
 * COPPICE_KILLS sets how many.
 */
#include "control_harness.h"
#include "element.h"

#include "client/coppice.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_DOCS 12u
#define N_TOKENS 384u
#define CHUNK 32u
#define N_LAYERS 2u
#define HEAD_DIM 64u
#define ROWS (CHUNK * HEAD_DIM)
#define PATIENCE_NS UINT64_C(20000000000)
#define MAX_DELAY_US 20000u
#define MAX_DOCS 60u /* before that; the pool has room for 20 */

struct session {
	struct coppice *c;
	struct coppice_lane *lane;
	void *rows; /* of the arena: Q, K, V, O */
	uint32_t model;
};

static uint64_t random_state;

static uint32_t draw(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(random_state >> 33) % n;
}

static float vector_of(uint32_t doc, uint32_t layer, uint32_t i)
{
	return (float)((doc * 37 + layer * 11 + i * 5) % 61) - 30;
}

static uint32_t token_of(uint32_t doc, uint32_t pos)
{
	return doc << 16 | pos;
}

static void session_open(struct session *s, const struct harness *h)
{
	const struct coppice_model_info info = {.name = "kill",
						.n_layers = N_LAYERS,
						.n_q_heads = 1,
						.n_kv_heads = 1,
						.head_dim = HEAD_DIM,
						.dtype = (enum coppice_dtype)element_dtype()};
	struct coppice_arena *arena;

	assert_int_equal(coppice_connect(&s->c, h->socket), 0);
	assert_int_equal(coppice_model_open(s->c, &info, &s->model), 0);
	assert_int_equal(coppice_arena_new(s->c, COPPICE_HOST, ROWS * 4 * sizeof(float), &arena),
			 0);
	assert_int_equal(coppice_lane_new(s->c, &s->lane), 0);
	s->rows = coppice_arena_base(arena);
}

/* One layer of n tokens; false: the daemon is gone. Every row of O is the document's vector. */
static bool step(struct session *s, struct coppice_seq *seq, uint32_t doc, uint32_t layer,
		 uint32_t n)
{
	struct coppice_step_seq part = {.seq = seq,
					.n_new = n,
					.q = s->rows,
					.k = element_at(s->rows, ROWS),
					.v = element_at(s->rows, 2 * ROWS),
					.o = element_at(s->rows, 3 * ROWS)};
	uint64_t ticket;

	for (uint32_t i = 0; i < n * HEAD_DIM; i++) {
		element_put((void *)(uintptr_t)part.q, i, (float)draw(100) / 100);
		element_put((void *)(uintptr_t)part.k, i, (float)draw(100) / 100);
		element_put((void *)(uintptr_t)part.v, i, vector_of(doc, layer, i % HEAD_DIM));
	}
	if (coppice_step(s->lane,
			 &(struct coppice_step){.layer = layer, .seqs = &part, .n_seqs = 1},
			 &ticket) ||
	    coppice_wait(s->lane, ticket, PATIENCE_NS))
		return false;
	for (uint32_t i = 0; i < n * HEAD_DIM; i++)
		assert_float_equal(element_get((void *)(uintptr_t)part.o, i),
				   vector_of(doc, layer, i % HEAD_DIM), 1e-3);
	return true;
}

/* Opens a document, waits for what comes from lower tiers, computes the rest. Returns how much was there, -1: the daemon is
 * gone. */
static int use(struct session *s, uint32_t doc)
{
	uint32_t ids[N_TOKENS];
	struct coppice_match match;
	struct coppice_seq *seq;
	int n_cached;

	for (uint32_t i = 0; i < N_TOKENS; i++)
		ids[i] = token_of(doc, i);
	if (coppice_seq_open(s->lane, s->model, ids, N_TOKENS, 0, &seq, &match))
		return -1;
	if (match.pending && coppice_seq_wait(seq, PATIENCE_NS, &match))
		return -1;
	n_cached = (int)match.cached;
	for (uint32_t at = match.cached; at < N_TOKENS;) {
		uint32_t n = CHUNK - at % CHUNK;
		if (coppice_seq_extend(seq, ids + at, n, NULL))
			return -1;
		for (uint32_t layer = 0; layer < N_LAYERS; layer++)
			if (!step(s, seq, doc, layer, n))
				return -1;
		at += n;
	}
	coppice_seq_close(seq);
	return n_cached;
}

/* Kills the daemon some time from now. */
static pid_t kill_later(pid_t daemon)
{
	pid_t pid = fork();

	if (pid == 0) {
		usleep(1000 + draw(MAX_DELAY_US));
		kill(daemon, SIGKILL);
		_exit(0);
	}
	return pid;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void what_a_killed_daemon_leaves_is_right(void **state)
{
	struct harness *h = *state;
	uint64_t n_kills = number_from("COPPICE_KILLS", 25);
	uint64_t seed = number_from("COPPICE_SEED", (uint64_t)time(NULL)), n_found = 0;

	setenv("COPPICE_TEST_TIERS", "1", 1);
	random_state = seed;
	print_message("COPPICE_SEED=%lu COPPICE_KILLS=%lu\n", seed, n_kills);
	for (uint64_t i = 0; i < n_kills; i++) {
		struct session s;
		int cached = 0;

		harness_start(h);
		session_open(&s, h);
		for (uint32_t doc = 0; doc < N_DOCS && i > 0; doc++) {
			cached = use(&s, doc);
			assert_true(cached >= 0);
			n_found += (uint64_t)cached;
		}
		for (uint32_t n = draw(MAX_DOCS); n > 0; n--)
			assert_true(use(&s, N_DOCS + draw(4 * N_DOCS)) >= 0);
		pid_t killer = kill_later(h->pid);
		while (cached >= 0)
			cached = use(&s, N_DOCS + draw(4 * N_DOCS));
		coppice_close(s.c);
		assert_int_equal(harness_wait(killer), 0);
		assert_int_equal(harness_wait(h->pid), -SIGKILL);
		h->pid = 0;
	}
	print_message("%lu tokens were found in all\n", n_found);
	assert_true(n_kills < 5 || n_found > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_BARE(epoll, what_a_killed_daemon_leaves_is_right),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	if (!harness_has_uring()) {
		print_message("no io_uring here, and so no file\n");
		return 0;
	}
	return cmocka_run_group_tests_name("kills", tests, NULL, NULL);
}
