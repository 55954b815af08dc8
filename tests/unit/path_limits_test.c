/*
 * path_limits_test.c - how long a batch keeps all others where paths are as long as the keys
 * max_path_nodes and max_seq_tokens can say. Time is modelled (modelled.h).
 *
 * Nodes are there, and walks over them are counted: each asks the store once how many tokens a node
 * has. Tokens are not: the store and the planner say of a short path that it has so many.
 */
#include "modelled.h"

#include "daemon/sched/core/turns.h"
#include "daemon/sched/round.h"
#include "kernels/plan/plan.h"
#include "proto/arith.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS 1e6
#define N_OF(array) (sizeof(array) / sizeof(*(array)))
#define MOST_NODES 65535u /* that a path may have, at the most that the key takes */
#define MOST_TOKENS (UINT32_C(1) << 28)
#define POOL_BYTES (UINT64_C(4) << 30) /* a page for each that leaves; nobody writes there */
#define CHUNK_TOKENS 32768u
#define ROUGHLY 256u
#define ROWS 48u
#define SOME_PATHS 8u
#define SOME_NODES 8000u
#define SHORT_TOKENS 64u
#define SOME_FORKS 8u

static const uint32_t budgets_ms[] = {1, 30, 60000};

/* ---- what the store and the planner are asked ----------------------------------------------- */

static uint64_t n_nodes_asked;
static uint32_t n_told; /* tokens of each path's first node, beyond those that it has */

uint32_t __real_store_node_n_tokens(const struct store_node *n);
uint32_t __wrap_store_node_n_tokens(const struct store_node *n);
uint32_t __real_store_node_pos(const struct store_node *n);
uint32_t __wrap_store_node_pos(const struct store_node *n);
uint32_t __real_store_seq_n_tokens(const struct store_seq *q);
uint32_t __wrap_store_seq_n_tokens(const struct store_seq *q);
struct store_seq_view __real_store_seq_view(const struct store_seq *q);
struct store_seq_view __wrap_store_seq_view(const struct store_seq *q);
int __real_plan_make(const struct plan_config *config, const struct work_tree *tree,
		     struct work_list *list);
int __wrap_plan_make(const struct plan_config *config, const struct work_tree *tree,
		     struct work_list *list);

static bool is_first(const struct store_node *n)
{
	return store_node_parent(n) && __real_store_node_pos(n) == 0;
}

uint32_t __wrap_store_node_n_tokens(const struct store_node *n)
{
	n_nodes_asked++;
	return __real_store_node_n_tokens(n) + (is_first(n) ? n_told : 0);
}

uint32_t __wrap_store_node_pos(const struct store_node *n)
{
	uint32_t pos = __real_store_node_pos(n);

	return pos > 0 ? pos + n_told : 0;
}

uint32_t __wrap_store_seq_n_tokens(const struct store_seq *q)
{
	return __real_store_seq_n_tokens(q) + n_told;
}

struct store_seq_view __wrap_store_seq_view(const struct store_seq *q)
{
	struct store_seq_view view = __real_store_seq_view(q);

	view.n_tokens += n_told;
	view.n_last += is_first(store_seq_node(q)) ? n_told : 0;
	return view;
}

/* Of all queries that see the node. */
static uint32_t n_rows_of(const struct work_tree *tree, uint32_t node)
{
	uint32_t n = 0;

	for (uint32_t q = 0; q < tree->n_queries; q++) {
		uint32_t at = tree->queries[q].node;

		while (at != node && at != WORK_NONE)
			at = tree->nodes[at].parent;
		n += at == node ? tree->queries[q].n_rows : 0;
	}
	return n;
}

/* Each node is read once for as many rows as go together. */
int __wrap_plan_make(const struct plan_config *config, const struct work_tree *tree,
		     struct work_list *list)
{
	uint32_t together = max_u32(config->tile_rows / config->group_heads, 1);

	if (n_told == 0)
		return __real_plan_make(config, tree, list);
	list->kv_tokens_read = 0;
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		list->kv_tokens_read +=
			(uint64_t)tree->nodes[i].n_tokens * ceil_div(n_rows_of(tree, i), together);
	return 0;
}

/* ---- max_path_nodes ------------------------------------------------------------------------- */

static struct modelled *start_nodes(void)
{
	struct modelled *m = modelled_new();

	m->h.config.max_path_nodes = MOST_NODES;
	m->h.config.pool_bytes = POOL_BYTES;
	modelled_start(m);
	return m;
}

/* Of n tokens, which begins as no other does. */
static uint64_t open_path(struct modelled *m, struct modelled_client *client, uint32_t first,
			  uint32_t n)
{
	uint64_t seq = modelled_open(m, client, first);

	for (uint32_t left = n - 1, some; left > 0; left -= some) {
		some = min_u32(left, CHUNK_TOKENS);
		modelled_ask_all(m, client, &seq, 1, some);
		modelled_await(m, client);
	}
	return seq;
}

/* All n tokens of that path but the last. */
static struct store_seq *open_beside(struct modelled *m, const struct modelled_client *client,
				     uint32_t first, uint32_t n)
{
	uint32_t *ids = calloc(n, sizeof(*ids));
	const struct store_open open = {
		.model = client->c.session->models[client->c.model - 1]->store,
		.domain = client->user,
		.tokens = ids,
		.n_tokens = n};
	struct store_match match;
	struct store_seq *q;
	int r;

	ids[0] = first;
	r = store_seq_open(m->h.sched->core.store, &open, modelled_now_ns(), &q, &match);
	assert_int_equal(r, 0);
	assert_int_equal(match.cached, n - 1);
	free(ids);
	return q;
}

/* Behind so many of its tokens, by a token that is not the path's. */
static int leave_at(struct store_seq *q, uint32_t at)
{
	const uint32_t other = 1;
	int r;

	assert_int_equal(store_seq_trim(q, at, modelled_now_ns()), 0);
	r = store_seq_extend(q, &other, 1, false, modelled_now_ns());
	if (r == 0)
		assert_int_equal(store_seq_publish(q, modelled_now_ns()), 0);
	return r;
}

/* Wherever so many tokens end, from the path's end up: then walks are short. */
static void leave_each(struct modelled *m, const struct modelled_client *client, uint32_t first,
		       uint32_t n, uint32_t n_apart)
{
	struct store_seq *q = open_beside(m, client, first, n);

	for (uint32_t at = (n - 1) / n_apart * n_apart; at > 0; at -= n_apart)
		assert_int_equal(leave_at(q, at), 0);
	store_seq_close(q, modelled_now_ns());
}

/* Of n nodes of a token each. What is cut from a long node is copied: so it is cut roughly at
 * first. */
static uint64_t open_nodes(struct modelled *m, struct modelled_client *client, uint32_t first,
			   uint32_t n)
{
	uint64_t seq = open_path(m, client, first, n);

	leave_each(m, client, first, n, ROUGHLY);
	leave_each(m, client, first, n, 1);
	return seq;
}

/* Goes on until the client has what it asked for: how often a batch had nodes asked, at most. */
static uint64_t most_asked(struct modelled *m, const struct modelled_client *client)
{
	uint64_t n_batches = m->n_batches, most = 0;

	n_nodes_asked = 0;
	while (!modelled_has(client)) {
		modelled_round(m);
		most = max_u64(most, n_nodes_asked);
		if (m->n_batches > n_batches)
			n_nodes_asked = 0;
		n_batches = m->n_batches;
	}
	return most;
}

/* What nodes take comes on top of what the backend does: twice one path's as well. Each is looked
 * at when a step is weighed, again when that is cut, and is planned. */
static void assert_nodes_bounded(struct modelled *m, struct modelled_client *client, uint64_t seq,
				 uint32_t n_rows)
{
	double nodes_ns = MOST_NODES * NODE_NS, most_ns;

	modelled_forget(m);
	modelled_ask_all(m, client, &seq, 1, n_rows);
	assert_in_range(most_asked(m, client), MOST_NODES, 3 * (MOST_NODES + 1));
	modelled_await(m, client);
	most_ns = modelled_most_ns(m, MOST_NODES + 3 * (ROWS + 1), MOST_NODES + 1);
	if (m->longest_ns + nodes_ns > 1.04 * most_ns)
		fail_msg("%u rows, budget %u ms: %.1f ms, not %.1f", n_rows,
			 m->h.config.batch_budget_ms, (m->longest_ns + nodes_ns) / MS,
			 most_ns / MS);
}

/* Somebody else stands where it ends. */
static void assert_no_node_more(struct modelled_client *client, uint64_t seq)
{
	const struct abi_entry fork = {.kind = ABI_FORK, .seq = seq};
	uint64_t other = client_do(&client->c, fork, NULL, 0).value;
	const uint32_t id = 0;

	assert_int_equal(client_extend(&client->c, seq, &id, 1).status, -EMLINK);
	assert_int_equal(client_close(&client->c, other), 0);
}

static void no_batch_is_longer_where_a_path_has_the_most_nodes(void **state)
{
	struct modelled *m = start_nodes();
	struct modelled_client *client = modelled_join(m, 1, 1);
	uint64_t seq = open_nodes(m, client, 1, MOST_NODES);
	(void)state;

	assert_no_node_more(client, seq);
	for (uint32_t i = 0; i < N_OF(budgets_ms); i++) {
		m->h.config.batch_budget_ms = budgets_ms[i];
		assert_nodes_bounded(m, client, seq, 1);
		assert_nodes_bounded(m, client, seq, ROWS);
	}
	modelled_free(m);
}

/* A step of many paths: no more of them are looked at than a batch may have. */
static void no_batch_walks_over_more_nodes_than_it_may_have(void **state)
{
	struct modelled *m = start_nodes();
	struct modelled_client *client = modelled_join(m, 1, 1);
	uint64_t seqs[SOME_PATHS];
	(void)state;

	for (uint32_t i = 0; i < SOME_PATHS; i++)
		seqs[i] = open_nodes(m, client, i + 1, SOME_NODES);
	m->h.config.batch_budget_ms = 1;
	modelled_forget(m);
	modelled_ask_all(m, client, seqs, SOME_PATHS, 1);
	/* two when it is weighed, two when it is cut, and one is planned */
	assert_in_range(most_asked(m, client), SOME_NODES, 5 * (SOME_NODES + 1));
	modelled_await(m, client);
	assert_int_equal(m->n_batches, SOME_PATHS);
	modelled_free(m);
}

/* ---- max_seq_tokens ------------------------------------------------------------------------- */

static const uint32_t some_rows[] = {1, 65536};

struct limits {
	enum modelled_backend backend;
	uint32_t budget_ms, prefill_rows, n_q_heads;
	bool wants_rows;
};

/* A sequence that may have ROWS tokens more. */
static struct modelled_client *join(struct modelled *m, const struct limits *l)
{
	struct modelled_client *client;

	m->h.config.max_seq_tokens = MOST_TOKENS;
	m->h.config.batch_budget_ms = l->budget_ms;
	m->n_q_heads = l->n_q_heads;
	m->wants_rows = l->wants_rows;
	modelled_on(m, l->backend);
	modelled_start(m);
	client = modelled_join(m, 1, SHORT_TOKENS - 1);
	m->h.config.prefill_rows = l->prefill_rows;
	n_told = MOST_TOKENS - ROWS - SHORT_TOKENS;
	modelled_forget(m);
	return client;
}

/* Each tile of rows beyond the first reads the KV again. */
static void assert_bounded(struct modelled *m, const struct limits *l)
{
	const struct work_shape shape = {.n_q_heads = l->n_q_heads, .n_kv_heads = 1};
	double again = m->token_ns / m->pair_ns / m->h.ops->tile_rows(m->h.backend, &shape);
	double most = (1.001 + again) * modelled_most_ns(m, MOST_TOKENS, 1);

	if (m->longest_ns > most || m->longest_ns < MOST_TOKENS * m->token_ns)
		fail_msg("backend %d, %u heads, budget %u ms, %u rows: %.1f ms, not %.1f",
			 l->backend, l->n_q_heads, l->budget_ms, l->prefill_rows,
			 m->longest_ns / MS, most / MS);
	n_told = 0;
	modelled_free(m);
}

/* To the last token that it may have. */
static void prefill_within(const struct limits *l)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, l);
	const uint32_t id = 0;

	modelled_ask(m, client, ROWS);
	modelled_await(m, client);
	assert_int_equal(client_extend(&client->c, client->seq, &id, 1).status, -E2BIG);
	assert_bounded(m, l);
}

/* One path, which is read once for some of them. */
static void forks_within(const struct limits *l)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, l);
	const struct abi_entry fork = {.kind = ABI_FORK, .seq = client->seq};
	uint64_t seqs[SOME_FORKS];

	for (uint32_t i = 0; i < SOME_FORKS; i++)
		seqs[i] = client_do(&client->c, fork, NULL, 0).value;
	modelled_ask_all(m, client, seqs, SOME_FORKS, 1);
	modelled_await(m, client);
	assert_bounded(m, l);
}

/* Each with each, on each backend. */
static void no_batch_is_longer_where_a_sequence_has_the_most_tokens(void **state)
{
	uint32_t n = N_OF(budgets_ms) * N_OF(some_rows) * 2 * 2;
	(void)state;

	for (enum modelled_backend backend = 0; backend < MODELLED_BACKENDS; backend++) {
		for (uint32_t i = 0; i < n; i++) {
			const struct limits l = {.backend = backend,
						 .budget_ms = budgets_ms[i % 3],
						 .prefill_rows = some_rows[i / 3 % 2],
						 .n_q_heads = i / 6 % 2 ? 128 : 1,
						 .wants_rows = i / 12};

			prefill_within(&l);
			forks_within(&l);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_batch_is_longer_where_a_path_has_the_most_nodes),
		cmocka_unit_test(no_batch_walks_over_more_nodes_than_it_may_have),
		cmocka_unit_test(no_batch_is_longer_where_a_sequence_has_the_most_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
