/*
 * budget_test.c - how long one batch keeps all others, whatever was asked for. Time is modelled
 * (modelled.h).
 */
#include "modelled.h"
#include "tests/sanitized.h"

#include "daemon/sched/long/streamed_impl.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS 1e6
#define BUDGET_NS (m->h.config.batch_budget_ms * MS)
#define LONG_TOKENS 131072u
#define SHORT_TOKENS 13107u
#define FORKS 400u
#define FORK_ROWS 16u
#define DRAFTS 1024u
#define FEW_TOKENS 500u
#define PREFILL_ROWS 128u

static struct modelled *start(uint32_t budget_ms)
{
	struct modelled *m = modelled_new();

	m->h.config.batch_budget_ms = budget_ms;
	modelled_start(m);
	return m;
}

/* Another user decodes meanwhile: its steps wait for one batch of the client's at most, and take
 * what they take. */
static void finish(struct modelled *m, struct modelled_client *client, uint32_t n_tokens)
{
	struct modelled_client *other = &m->clients[0];
	double most = modelled_most_ns(m, n_tokens, 0);

	other->user = 1;
	m->first_again = 1;
	modelled_forget(m);
	modelled_await(m, client);
	m->first_again = 0;
	modelled_await(m, other);
	assert_true(m->longest_ns > 0);
	assert_true(m->longest_ns <= 1.001 * most);
	assert_true(other->longest_ns <=
		    1.001 * (most + modelled_most_ns(m, SHORT_TOKENS, 0)) + 1 * MS);
	modelled_free(m);
}

static void a_step_of_many_forks_is_cut(void **state)
{
	struct modelled *m = start(30);
	uint64_t seqs[FORKS];

	(void)state;
	modelled_join(m, 1, SHORT_TOKENS);
	struct modelled_client *client = modelled_join(m, 2, LONG_TOKENS);
	const struct abi_entry fork = {.kind = ABI_FORK, .seq = client->seq};

	for (uint32_t i = 0; i < FORKS; i++)
		seqs[i] = client_do(&client->c, fork, NULL, 0).value;
	modelled_ask_all(m, client, seqs, FORKS, FORK_ROWS);
	finish(m, client, LONG_TOKENS + FORK_ROWS);
}

static void a_draft_tree_is_cut(void **state)
{
	struct modelled *m = start(30);
	static uint32_t body[2 * DRAFTS];

	(void)state;
	modelled_join(m, 1, SHORT_TOKENS);
	struct modelled_client *client = modelled_join(m, 2, LONG_TOKENS);
	struct abi_entry extend = {.kind = ABI_EXTEND,
				   .flags = ABI_EXTEND_PARENTS,
				   .seq = client->seq,
				   .count = DRAFTS};

	for (uint32_t i = 0; i < DRAFTS; i++)
		body[DRAFTS + i] = i % 5 ? i - 1 : (i ? i / 2 : WORK_NONE);
	assert_int_equal(client_do(&client->c, extend, body, sizeof(body)).status, 0);
	modelled_ask_step(m, client, &client->seq, 1, DRAFTS);
	finish(m, client, LONG_TOKENS + DRAFTS);
}

static void prefill_on_a_long_path_is_cut(void **state)
{
	struct modelled *m = start(30);

	(void)state;
	modelled_join(m, 1, SHORT_TOKENS);
	struct modelled_client *client = modelled_join(m, 2, LONG_TOKENS);

	m->h.config.prefill_rows = 65536;
	modelled_ask(m, client, 512);
	finish(m, client, LONG_TOKENS + 512);
}

static uint64_t batches_of_a_prefill(struct modelled *m, struct modelled_client *client)
{
	uint64_t n = m->n_batches;

	modelled_ask(m, client, PREFILL_ROWS);
	modelled_await(m, client);
	return m->n_batches - n;
}

/* With a small budget too, of which batches that are cut for it are no millisecond. */
static void what_was_slow_for_a_while_is_so_no_longer(void **state)
{
	struct modelled *m = start(4);
	uint64_t before, slow;

	(void)state;
	/* Its steps are modelled to take a quarter of a millisecond: they teach while a batch seems
	 * to take four times as long or more, those of half as many tokens only from eight on. */
	modelled_join(m, 1, 2 * FEW_TOKENS);
	struct modelled_client *client = modelled_join(m, 2, FEW_TOKENS);

	m->first_again = 1;
	before = batches_of_a_prefill(m, client);
	m->slowness = 8;
	(void)batches_of_a_prefill(m, client);
	slow = batches_of_a_prefill(m, client);
	m->slowness = 1;
	(void)batches_of_a_prefill(m, client);
	(void)batches_of_a_prefill(m, client);
	assert_true(slow >= 3 * before);
	assert_true(m->h.sched->core.batches.times < 1.5);
	modelled_free(m);
}

/* Of a backend that may take 2.4 times as long as modelled: who has a path, of which all that was
 * learned is forgotten. */
static struct modelled *start_unseen(double slowness)
{
	struct modelled *m = modelled_new();
	struct sched_core *core;

	m->unseen = 2.4;
	m->slowness = slowness;
	modelled_start(m);
	core = &m->h.sched->core;
	assert_true(core->batches.times > 2.39 && !core->batches.seen);
	modelled_join(m, 1, FEW_TOKENS);
	modelled_join(m, 2, SHORT_TOKENS);
	core->batches = (struct slowness){.times = m->unseen};
	modelled_forget(m);
	return m;
}

static void the_first_batch_is_no_longer_than_the_others(void **state)
{
	struct modelled *m = start_unseen(2.4);

	(void)state;
	(void)batches_of_a_prefill(m, &m->clients[1]);
	assert_true(m->longest_ns * m->slowness > 0.5 * BUDGET_NS);
	assert_true(m->longest_ns * m->slowness <= 1.001 * BUDGET_NS);
	modelled_free(m);
}

/* The first batch tells that the machine is as fast as modelled. */
static void a_machine_is_feared_for_one_batch(void **state)
{
	struct modelled *m = start_unseen(1);

	(void)state;
	modelled_ask(m, &m->clients[1], PREFILL_ROWS);
	while (!m->h.sched->core.batches.seen)
		modelled_round(m);
	assert_true(m->h.sched->core.batches.times < 1.01);
	modelled_await(m, &m->clients[1]);
	assert_true(m->longest_ns > BUDGET_NS / 2);
	modelled_free(m);
}

/* What legs of a path that streams take is learned before any batch was seen, and is as it was
 * once one is; who streams first pays for no more than is known. */
static void the_first_batch_makes_no_streamed_leg_longer(void **state)
{
	struct config config = {.batch_budget_ms = 30};
	struct sched_core core = {.config = &config, .batches.times = 2.4};
	struct streamed streamed;

	(void)state;
	streamed_init(&streamed, &core);
	assert_true(streamed_budget_ns(&streamed) > 30 * MS / 8.01);
	assert_true(streamed_charged_ns(&streamed, 1 * MS) < 1.01 * MS);
	streamed_learn(&streamed, 4 * MS, 2.4 * 4 * MS);
	assert_true(streamed_budget_ns(&streamed) * 2.4 <= 1.001 * 30 * MS);
	slowness_learn(&core.batches, SLOWNESS_MAX, 4 * MS, 4 * MS);
	assert_true(streamed_budget_ns(&streamed) * 2.4 <= 1.001 * 30 * MS);
	assert_true(streamed_charged_ns(&streamed, 1 * MS) > 2.39 * MS);
	streamed_done(&streamed);
}

#define PAGES (SHORT_TOKENS / 64)
#define READERS 60u

/* Reading them takes nothing, and who has to name all of their pages takes his time. */
static void what_plans_take_is_in_the_budget(void **state)
{
	struct modelled *m = start(1);
	double most;

	(void)state;
	for (uint32_t i = 0; i < READERS; i++)
		modelled_join(m, 1 + i, SHORT_TOKENS);
	for (uint32_t i = 0; i < READERS; i++) {
		struct client *c = &m->clients[i].c;
		struct sched_model *model = c->session->models[c->model - 1];

		model->token_ns = model->pair_ns = 0;
	}
	m->h.sched->core.batches.times = 4;
	most = BUDGET_NS / 4 / PAGE_NS;
	assert_true(READERS * PAGES > 1.5 * most);
	modelled_forget(m);
	m->most_slices = 0;
	for (uint32_t i = 0; i < READERS; i++)
		modelled_ask(m, &m->clients[i], 1);
	for (uint32_t i = 0; i < READERS; i++)
		modelled_await(m, &m->clients[i]);
	assert_true(m->most_slices > PAGES);
	assert_true((double)m->most_slices <= most);
	modelled_free(m);
}

/* However long its path is: a plan of it would keep all others. */
static void nothing_is_planned_for_who_only_appends(void **state)
{
	struct modelled *m = start(30);

	(void)state;
	modelled_join(m, 1, LONG_TOKENS);
	assert_true(m->n_appends > 0);
	assert_int_equal(m->n_appends_planned, 0);
	modelled_free(m);
}

/* Its pages take as long to be named as to be read: who has a plan made has had both. */
static void who_has_a_plan_made_is_counted_its_time(void **state)
{
	struct modelled *m = start(30);
	struct modelled_client *client = modelled_join(m, 1, SHORT_TOKENS);
	const struct abi_entry fork = {.kind = ABI_FORK, .seq = client->seq};
	struct sched_model *model = client->c.session->models[client->c.model - 1];
	double plan_ns = pages_ns(model, SHORT_TOKENS), before_ns;

	(void)state;
	model->pair_ns = 0;
	model->token_ns = plan_ns / SHORT_TOKENS;
	client->seq = client_do(&client->c, fork, NULL, 0).value;
	before_ns = client->c.session->backend_ns;
	modelled_ask(m, client, 1);
	modelled_await(m, client);
	assert_true(client->c.session->backend_ns - before_ns >= 2 * 0.99 * plan_ns);
	modelled_free(m);
}

/* A step again and again, each of a plan that is new: the backend makes a schedule of it, too. What
 * is usual of batches then. */
static double times_of_new_plans(struct modelled *m, double device_ns, double plan_ns)
{
	struct modelled_client *client = modelled_join(m, 1, SHORT_TOKENS);
	struct sched_model *model = client->c.session->models[client->c.model - 1];
	struct sched_core *core = &m->h.sched->core;
	double times;

	core->batches = (struct slowness){.times = 1};
	model->pair_ns = m->pair_ns = 0;
	model->token_ns = m->token_ns = device_ns / SHORT_TOKENS;
	model->name_ns = plan_ns / SHORT_TOKENS;
	for (uint32_t i = 0; i < 10; i++) {
		const struct abi_entry fork = {.kind = ABI_FORK, .seq = client->seq};

		client->seq = client_do(&client->c, fork, NULL, 0).value;
		modelled_ask(m, client, 1);
		modelled_await(m, client);
	}
	times = core->batches.times;
	modelled_free(m);
	return times;
}

static struct modelled *start_submitting(double submit_ns)
{
	struct modelled *m = start(30);

	m->submit_ns = submit_ns;
	return m;
}

/* Be it longer than the device is at work, or as long, for more than a millisecond. */
static void who_has_plans_made_makes_no_batch_seem_slow(void **state)
{
	(void)state;
	assert_true(times_of_new_plans(start_submitting(1 * MS), 0.5 * MS, 1.5 * MS) == 1);
	assert_true(times_of_new_plans(start_submitting(2 * MS), 2 * MS, 1.5 * MS) < 1.01);
}

/* What the backend takes is learned beside that, whether it holds the thread meanwhile or not. */
static void a_backend_that_is_slow_seems_so_whatever_plans_take(void **state)
{
	(void)state;
	for (int holds = 0; holds < 2; holds++) {
		struct modelled *m = start_submitting(holds ? 0 : 2 * MS);

		m->slowness = 3;
		m->holds = holds;
		assert_in_range(100 * times_of_new_plans(m, 2 * MS, 1.5 * MS), 230, 310);
	}
}

static void the_longest_path_is_cut_at_the_least_budget(void **state)
{
	struct modelled *m = start(1);

	(void)state;
	modelled_join(m, 1, SHORT_TOKENS);
	struct modelled_client *client = modelled_join(m, 2, (1u << 20) - 32);

	modelled_ask(m, client, 16);
	finish(m, client, 1u << 20);
}

static void the_largest_budget_cuts_nothing(void **state)
{
	struct modelled *m = start(60000);

	(void)state;
	modelled_join(m, 1, SHORT_TOKENS);
	struct modelled_client *client = modelled_join(m, 2, LONG_TOKENS);

	modelled_forget(m);
	modelled_ask(m, client, 16);
	modelled_await(m, client);
	assert_int_equal(m->n_batches, 1);
	assert_int_equal(harness_status(&m->h).steps_cut, 0);
	modelled_free(m);
}

/* ---- at the limits of every key that the bound depends on ----------------------------------- */

#define N_OF(array) (sizeof(array) / sizeof(*(array)))
#define ROWS 48u
#define SOME_FORKS 8u
struct limits {
	enum plan_policy policy;
	uint32_t budget_ms, prefill_rows, n_tokens, n_q_heads;
	enum modelled_backend backend;
};

static struct modelled_client *join(struct modelled *m, const struct limits *l)
{
	struct modelled_client *client;

	m->h.config.batch_budget_ms = l->budget_ms;
	m->h.config.policy.policy = l->policy;
	m->n_q_heads = l->n_q_heads;
	modelled_on(m, l->backend);
	modelled_start(m);
	client = modelled_join(m, 1, l->n_tokens);
	m->h.config.prefill_rows = l->prefill_rows;
	modelled_forget(m);
	return client;
}

/* Each tile of rows beyond the first reads the KV again, without a policy each sequence does: what
 * the scheduler counts as arithmetic is more by so much. */
static double read_again(const struct modelled *m, const struct limits *l)
{
	const struct work_shape shape = {.n_q_heads = m->n_q_heads, .n_kv_heads = 1};

	if (l->policy == PLAN_NONE)
		return m->token_ns / m->pair_ns;
	return m->token_ns / m->pair_ns / m->h.ops->tile_rows(m->h.backend, &shape);
}

static void assert_bounded(struct modelled *m, struct modelled_client *client,
			   const struct limits *l, const char *what)
{
	double most = (1.001 + read_again(m, l)) * modelled_most_ns(m, l->n_tokens + ROWS, 0);

	modelled_await(m, client);
	if (m->longest_ns > most)
		fail_msg("%s of %u tokens, %u heads, budget %u ms, %u rows, policy %d: %.1f ms, "
			 "not %.1f",
			 what, l->n_tokens, l->n_q_heads, l->budget_ms, l->prefill_rows, l->policy,
			 m->longest_ns / MS, most / MS);
	modelled_free(m);
}

static void prefill_within(const struct limits *l)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, l);

	modelled_ask(m, client, ROWS);
	assert_bounded(m, client, l, "prefill");
}

static void choose_blocks(struct modelled_client *client)
{
	const struct abi_sparse wish = {.tau = 0.5, .stride = 8, .block_tokens = 64};
	const struct abi_entry entry = {.kind = ABI_SPARSE, .seq = client->seq};

	assert_int_equal(client_do(&client->c, entry, &wish, sizeof(wish)).status, 0);
}

static void sparse_prefill_within(const struct limits *l)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, l);

	choose_blocks(client);
	modelled_ask(m, client, ROWS);
	assert_bounded(m, client, l, "sparse prefill");
}

static void forks_within(const struct limits *l, uint32_t n_rows)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, l);
	const struct abi_entry fork = {.kind = ABI_FORK, .seq = client->seq};
	uint64_t seqs[SOME_FORKS];

	for (uint32_t i = 0; i < SOME_FORKS; i++)
		seqs[i] = client_do(&client->c, fork, NULL, 0).value;
	modelled_ask_all(m, client, seqs, SOME_FORKS, n_rows);
	assert_bounded(m, client, l, "forks");
}

static void draft_within(const struct limits *l)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, l);
	struct abi_entry extend = {.kind = ABI_EXTEND,
				   .flags = ABI_EXTEND_PARENTS,
				   .seq = client->seq,
				   .count = ROWS};
	uint32_t body[2 * ROWS];

	for (uint32_t i = 0; i < ROWS; i++) {
		body[i] = i;
		body[ROWS + i] = i % 5 ? i - 1 : (i ? i / 2 : WORK_NONE);
	}
	assert_int_equal(client_do(&client->c, extend, body, sizeof(body)).status, 0);
	modelled_ask_step(m, client, &client->seq, 1, ROWS);
	assert_bounded(m, client, l, "a draft");
}

/* Where there is time for it. */
static void blocks_are_chosen_on_paths_that_are_not_too_long(void **state)
{
	const struct limits l = {PLAN_AUTO, 60000, 65536, LONG_TOKENS, 1};
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, &l);

	(void)state;
	choose_blocks(client);
	modelled_ask(m, client, ROWS);
	modelled_await(m, client);
	assert_int_equal(m->n_estimates, 1);
	modelled_free(m);
	sparse_prefill_within(&(struct limits){PLAN_AUTO, 30, 65536, 1000, 1});
}

static void what_choosing_blocks_takes_is_learned(void **state)
{
	const struct limits l = {PLAN_AUTO, 60000, 65536, LONG_TOKENS, 1};
	struct modelled *m = modelled_new();
	struct modelled_client *client = join(m, &l);

	(void)state;
	choose_blocks(client);
	m->h.sched->core.batches = (struct slowness){.times = 1};
	m->slowness = 4;
	for (uint32_t i = 0; i < 20; i++) {
		modelled_ask(m, client, ROWS);
		modelled_await(m, client);
	}
	assert_int_equal(m->n_estimates, 20);
	assert_in_range(100 * m->h.sched->core.batches.times, 300, 400);
	modelled_free(m);
}

/* Each with each. Not so under a sanitizer, which looks at memory; but the longest path with the
 * most heads has the least budget there, too. */
static void no_batch_is_longer_at_the_limits_of_the_keys(void **state)
{
	static const uint32_t budgets[] = {1, 30, 60000}, rows[] = {1, 65536}, heads[] = {1, 128};
	static const uint32_t tokens[] = {1, LONG_TOKENS};

	(void)state;
	for (uint32_t i = 0; i < N_OF(budgets) * N_OF(rows) * N_OF(heads) * N_OF(tokens);
	     i += ROUNDS(1u, 7u)) {
		uint32_t at = i;
		struct limits l = {.policy = PLAN_AUTO};

		l.budget_ms = budgets[at % N_OF(budgets)];
		at /= N_OF(budgets);
		l.prefill_rows = rows[at % N_OF(rows)];
		at /= N_OF(rows);
		l.n_q_heads = heads[at % N_OF(heads)];
		l.n_tokens = tokens[at / N_OF(heads)];
		prefill_within(&l);
		sparse_prefill_within(&l);
		forks_within(&l, 1);
		forks_within(&l, FORK_ROWS);
		draft_within(&l);
	}
}

/* The longest path, with the least budget and the most heads; of two cores it was above. */
static void no_batch_is_longer_on_any_backend(void **state)
{
	(void)state;
	for (enum modelled_backend i = TWO_CORES_WITHOUT_VECTORS; i < MODELLED_BACKENDS; i++) {
		const struct limits l = {.policy = PLAN_AUTO,
					 .budget_ms = 1,
					 .prefill_rows = 65536,
					 .n_tokens = LONG_TOKENS,
					 .n_q_heads = 128,
					 .backend = i};

		prefill_within(&l);
		sparse_prefill_within(&l);
		forks_within(&l, 1);
		forks_within(&l, FORK_ROWS);
		draft_within(&l);
	}
}

static void no_batch_is_longer_by_any_policy(void **state)
{
	(void)state;
	for (enum plan_policy policy = PLAN_AUTO; policy <= PLAN_DEFT; policy++) {
		struct limits l = {policy, 1, 128, SHORT_TOKENS, 1};

		prefill_within(&l);
		forks_within(&l, 1);
		forks_within(&l, FORK_ROWS);
		draft_within(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_of_many_forks_is_cut),
		cmocka_unit_test(a_draft_tree_is_cut),
		cmocka_unit_test(prefill_on_a_long_path_is_cut),
		cmocka_unit_test(what_was_slow_for_a_while_is_so_no_longer),
		cmocka_unit_test(the_first_batch_is_no_longer_than_the_others),
		cmocka_unit_test(a_machine_is_feared_for_one_batch),
		cmocka_unit_test(the_first_batch_makes_no_streamed_leg_longer),
		cmocka_unit_test(what_plans_take_is_in_the_budget),
		cmocka_unit_test(nothing_is_planned_for_who_only_appends),
		cmocka_unit_test(who_has_a_plan_made_is_counted_its_time),
		cmocka_unit_test(who_has_plans_made_makes_no_batch_seem_slow),
		cmocka_unit_test(a_backend_that_is_slow_seems_so_whatever_plans_take),
		cmocka_unit_test(the_longest_path_is_cut_at_the_least_budget),
		cmocka_unit_test(the_largest_budget_cuts_nothing),
		cmocka_unit_test(blocks_are_chosen_on_paths_that_are_not_too_long),
		cmocka_unit_test(what_choosing_blocks_takes_is_learned),
		cmocka_unit_test(no_batch_is_longer_at_the_limits_of_the_keys),
		cmocka_unit_test(no_batch_is_longer_on_any_backend),
		cmocka_unit_test(no_batch_is_longer_by_any_policy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
