/*
 * branched_test.c - a path that others leave at each token, by the CPU backend: what is planned of
 * it is no more than its pages and where the batch's own paths part, and the bits are those of the
 * same path which nobody leaves.
 */
#include "sched_harness.h"

#include "kernels/work.h"
#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PREFIX 200u
#define FORKS 6u
#define FORK_ROWS 5u
#define CHUNK 40u
#define ROWS PREFIX /* that a step has at most */
#define FAR_NODES 128u
#define ARENA_BYTES (1u << 20)

static const struct work_shape shape = {.n_layers = 2,
					.n_q_heads = 4,
					.n_kv_heads = 2,
					.head_dim = 32,
					.page_tokens = 16,
					.dtype = WORK_FP32};

/* Where the forks part: at the end, within a page, where a page ends, early. */
static const uint32_t kept[FORKS] = {PREFIX, 100, 112, PREFIX, 112, 3};

/* The largest of what was submitted. */
static struct {
	struct backend_ops ops;
	uint32_t n_nodes, n_slices;
} seen;

/* Of the store, by the scheduler. */
struct asked {
	uint64_t n_parents, n_ends;
};
static struct asked asked;

struct store_node *__real_store_node_parent(const struct store_node *n);
struct store_node *__wrap_store_node_parent(const struct store_node *n);
struct store_node *__real_store_seq_node(const struct store_seq *q);
struct store_node *__wrap_store_seq_node(const struct store_seq *q);

struct store_node *__wrap_store_node_parent(const struct store_node *n)
{
	asked.n_parents++;
	return __real_store_node_parent(n);
}

struct store_node *__wrap_store_seq_node(const struct store_seq *q)
{
	asked.n_ends++;
	return __real_store_seq_node(q);
}

struct user {
	struct client c;
	uint64_t seq, forks[FORKS];
	float o[2][ROWS * 4 * 32];
};

static int count_and_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct work_tree *tree = batch->jobs[i].tree;

		if (tree->n_nodes > seen.n_nodes)
			seen.n_nodes = tree->n_nodes;
		if (tree->n_slices > seen.n_slices)
			seen.n_slices = tree->n_slices;
	}
	return backend_cpu.submit(b, batch, ret_id);
}

static void start(struct harness *h, enum plan_policy policy, enum config_window window)
{
	seen.ops = backend_cpu;
	seen.ops.submit = count_and_submit;
	harness_init(h);
	h->ops = &seen.ops;
	h->stepped = true;
	h->config.policy.policy = policy;
	h->config.batch_window = window;
	harness_start(h);
}

static void fill(const struct client *c)
{
	uint32_t x = 1;

	for (uint32_t i = 0; i < ARENA_BYTES / sizeof(float); i++) {
		x = x * 1664525 + 1013904223;
		((float *)(void *)c->arena)[i] = (float)(x >> 8) / (1 << 23) - 1;
	}
}

/* Rows [row, row + n) of those that the arena has. */
static struct abi_step_seq rows_of(const struct user *u, uint64_t seq, uint32_t row, uint32_t n)
{
	struct abi_step_seq all = client_step_seq(&u->c, seq, ROWS);

	all.q += row * all.q_stride;
	all.k += row * all.k_stride;
	all.v += row * all.v_stride;
	all.o += row * all.o_stride;
	all.n_new = n;
	return all;
}

/* Of n rows each, all new. */
static void step(struct user *u, const uint64_t *seqs, uint32_t n_seqs, uint32_t n)
{
	struct abi_step_seq recs[FORKS];
	static const uint32_t ids[ROWS];

	seen.n_nodes = seen.n_slices = 0;
	for (uint32_t i = 0; i < n_seqs; i++) {
		assert_int_equal(client_extend(&u->c, seqs[i], ids, n).status, 0);
		recs[i] = rows_of(u, seqs[i], i * n, n);
	}
	for (uint32_t layer = 0; layer < 2; layer++) {
		struct abi_entry entry = {.kind = ABI_STEP, .layer = layer, .count = n_seqs};
		uint32_t bytes = n_seqs * (uint32_t)sizeof(*recs);

		assert_int_equal(client_do(&u->c, entry, recs, bytes).status, 0);
		memcpy(u->o[layer], u->c.arena + client_step_seq(&u->c, 0, ROWS).o,
		       sizeof(u->o[layer]));
	}
}

static void join(struct harness *h, struct user *u, uint64_t id)
{
	static const uint32_t ids[PREFIX];
	struct store_match match;

	client_start(&u->c, h, id, &shape, ARENA_BYTES);
	fill(&u->c);
	assert_int_equal(client_open(&u->c, ids, PREFIX, &u->seq, &match), 0);
	assert_int_equal(match.cached, 0);
	step(u, &u->seq, 1, PREFIX);
}

/* Others of the user leave the path before each token, but the first. */
static void branch(struct user *u)
{
	uint32_t ids[PREFIX] = {0};

	for (uint32_t at = PREFIX - 1; at > 0; at--) {
		const uint32_t other = 1;
		struct abi_step_seq rec;
		struct store_match match;
		uint64_t seq;

		ids[at] = other;
		assert_int_equal(client_open(&u->c, ids, at + 1, &seq, &match), 0);
		assert_int_equal(match.cached, at);
		assert_int_equal(client_extend(&u->c, seq, &other, 1).status, 0);
		rec = rows_of(u, seq, 0, 1);
		assert_int_equal(client_step(&u->c, &rec, 0).status, 0);
		assert_int_equal(client_step(&u->c, &rec, 1).status, 0);
		assert_int_equal(client_close(&u->c, seq), 0);
		ids[at] = 0;
	}
}

static void fork_path(struct user *u)
{
	for (uint32_t i = 0; i < FORKS; i++) {
		const struct abi_entry fork = {.kind = ABI_FORK, .seq = u->seq};
		struct abi_completion done = client_do(&u->c, fork, NULL, 0);
		const struct abi_entry trim = {.kind = ABI_TRIM, .seq = done.value, .arg = kept[i]};

		assert_int_equal(done.status, 0);
		u->forks[i] = done.value;
		assert_int_equal(client_do(&u->c, trim, NULL, 0).status, 0);
	}
}

static uint32_t n_pages(uint32_t n_tokens)
{
	return ceil_div(n_tokens, shape.page_tokens);
}

/* A node for each query, and one for each border that some of them have. */
static void assert_planned(uint32_t n_tokens, uint32_t n_queries, uint32_t n_borders)
{
	assert_true(seen.n_nodes <= n_queries + n_borders);
	assert_true(seen.n_slices <= n_pages(n_tokens) + n_queries * 2 + n_borders);
}

static void assert_same(const struct user *a, const struct user *b)
{
	assert_memory_equal(a->o, b->o, sizeof(a->o));
}

static void check_policy(enum plan_policy policy)
{
	struct harness h;
	static struct user a, b;

	start(&h, policy, CONFIG_WINDOW_NEVER);
	join(&h, &a, 1000);
	join(&h, &b, 1001);
	branch(&b);
	fork_path(&a);
	fork_path(&b);
	step(&a, a.forks, FORKS, FORK_ROWS);
	step(&b, b.forks, FORKS, FORK_ROWS);
	assert_same(&a, &b);
	assert_planned(PREFIX, FORKS, 4);
	step(&a, &a.seq, 1, 1);
	step(&b, &b.seq, 1, 1);
	assert_same(&a, &b);
	assert_planned(PREFIX, 1, 1);
	step(&a, &a.seq, 1, CHUNK);
	step(&b, &b.seq, 1, CHUNK);
	assert_same(&a, &b);
	assert_planned(PREFIX + 1 + CHUNK, 1, 1);
	client_end(&a.c);
	client_end(&b.c);
	harness_stop(&h);
}

static void what_others_left_is_not_planned(void **state)
{
	(void)state;
	check_policy(PLAN_AUTO);
}

static void nor_by_policies_that_follow_nodes(void **state)
{
	(void)state;
	check_policy(PLAN_CASCADE);
	check_policy(PLAN_FASTTREE);
	check_policy(PLAN_DEFT);
}

/* Of two users who take turns. */
static struct asked asked_in_turns(enum config_window window)
{
	struct harness h;
	static struct user a, b;

	start(&h, PLAN_AUTO, window);
	join(&h, &a, 1000);
	join(&h, &b, 1001);
	branch(&a);
	branch(&b);
	asked = (struct asked){0};
	for (uint32_t i = 0; i < 8; i++)
		step(i % 2 ? &b : &a, i % 2 ? &b.seq : &a.seq, 1, 1);
	client_end(&a.c);
	client_end(&b.c);
	harness_stop(&h);
	return asked;
}

/* Whether to wait for another is asked of two paths, and each node may be looked at twice. */
static void company_is_not_looked_for_far_up(void **state)
{
	struct asked alone = asked_in_turns(CONFIG_WINDOW_NEVER);
	struct asked both = asked_in_turns(CONFIG_WINDOW_ALWAYS);
	uint64_t n_questions = (both.n_ends - alone.n_ends) / 2;

	(void)state;
	assert_true(both.n_ends > alone.n_ends);
	assert_true(both.n_parents - alone.n_parents <= n_questions * 3 * FAR_NODES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_others_left_is_not_planned),
		cmocka_unit_test(company_is_not_looked_for_far_up),
		cmocka_unit_test(nor_by_policies_that_follow_nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
