/*
 * pass_draft_test.c - trees of tokens on trial on paths so long that a pass has no time for all of
 * their rows: they go by rows, each behind its ancestors, whose K and V passes before have brought.
 */
#include "oracle.h"
#include "school_layers.h"

#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N ABI_DECODE_DRAFT_MAX
#define N_PATH 100u /* tokens before it */
#define FIRST_ID 500u /* of its first token, and so on */

/* What passes have brought of the draft, which nobody is beside. */
static struct {
	const struct backend_program_ops *ops;
	uint32_t n_rows, n_passes;
	struct work_slice at[N]; /* where each of its tokens lies */
	uint32_t parents[N];
} seen;

/* Where the i-th token of some slices lies. */
static struct work_slice place(const struct work_slice *slices, uint32_t i)
{
	for (; i >= slices->count; slices++)
		i -= slices->count;
	return (struct work_slice){slices->page, (uint16_t)(slices->first + i), 1};
}

static uint32_t depth_of(uint32_t i)
{
	uint32_t depth = 0;

	for (; seen.parents[i] != WORK_NONE; i = seen.parents[i])
		depth++;
	return depth;
}

/* The next rows of the draft, and nothing of it twice. */
static void check_query(const struct backend_job *job)
{
	const struct work_query *query = &job->tree->queries[0];
	const struct work_node *node = &job->tree->nodes[query->node];
	const struct work_slice *slices = job->tree->slices + node->slice;

	assert_int_equal(job->tree->n_queries, 1);
	assert_int_equal(query->n_before, seen.n_rows);
	assert_int_equal(query->pos, N_PATH + seen.n_rows);
	assert_int_equal(node->n_tokens, seen.n_rows + query->n_rows);
	assert_memory_equal(query->parents, seen.parents, node->n_tokens * sizeof(uint32_t));
	for (uint32_t i = 0; i < query->n_rows; i++)
		seen.at[seen.n_rows + i] = place(job->io[0].slots, i);
	for (uint32_t i = 0; i < node->n_tokens; i++) {
		struct work_slice at = place(slices, i);

		assert_memory_equal(&at, &seen.at[i], sizeof(at));
	}
}

static int run_seen(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	const struct program_rows *rows = run->rows;

	if (seen.parents[0] != 0 && !run->goes_on) {
		check_query(run->job);
		for (uint32_t i = 0; i < rows->n_rows; i++) {
			assert_int_equal(rows->ids[i], FIRST_ID + seen.n_rows + i);
			assert_int_equal(rows->positions[i], N_PATH + depth_of(seen.n_rows + i));
		}
		seen.n_rows += rows->n_rows;
		seen.n_passes++;
	}
	return seen.ops->run(b, run, ret);
}

static void draw_parents(uint64_t number)
{
	struct oracle_random random = {number};

	for (uint32_t i = 0; i < N; i++)
		seen.parents[i] = i == 0 || oracle_below(&random, 4) == 0
					  ? WORK_NONE
					  : oracle_below(&random, i);
}

static void ask_for_draft(struct pupil *p)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[N], parents[N];
	} body = {.seq = {.seq = p->seq, .n_new = N}};

	seen.n_rows = seen.n_passes = 0;
	for (uint32_t i = 0; i < N; i++)
		body.ids[i] = FIRST_ID + i;
	memcpy(body.parents, seen.parents, sizeof(body.parents));
	client_submit(&p->c,
		      (struct abi_entry){.kind = ABI_DECODE,
					 .flags = ABI_EXTEND_PARENTS,
					 .count = 1},
		      &body, sizeof(body));
}

/* One who stands at the end of a path, a row of which takes so long in a layer from now on. */
static struct school *start(struct school *s, double row_ns, uint32_t n_layers)
{
	static struct backend_program_ops ops;
	struct pupil *p;

	memset(&seen, 0, sizeof(seen));
	ops = s->program;
	seen.ops = &ops;
	s->program.run = run_seen;
	school_start(s);
	p = join(s, 2, 0, n_layers);
	ask(p, N_PATH);
	go_till_all_have(s);
	p->c.session->models[p->c.model - 1]->pair_ns = row_ns / N_PATH;
	world.longest_attend_ns = 0;
	return s;
}

static struct school *school_of_a_drafter(double row_ns)
{
	return start(school_new(0.001 * MS), row_ns, 1);
}

#define UNSEEN 2.4
#define DEEP_ROWS 40.0
#define DEEP_ROW_NS (BUDGET_NS / DEEP_ROWS)

/* Passes that are all weights come first, and end the fear of all that is not attention: the first
 * one that has some is as short as if it took as long as it may. It takes so many times as long as
 * modelled. Returns what the second one has, in rows of what a batch has time for. */
static double second_pass_of_attention(double times)
{
	struct school *s = school_new(0.001 * MS);
	uint32_t n_first, n_second;
	struct sched_core *core;
	struct pupil *p;

	s->ops.unseen = UNSEEN;
	start(s, DEEP_ROW_NS, 1);
	p = &s->pupils[0];
	core = &s->h.sched->core;
	assert_true(core->passes.seen && core->passes.times < 1.1);
	draw_parents(1);
	ask_for_draft(p);
	world.row_ns = times * DEEP_ROW_NS;
	while (seen.n_passes == 0)
		go_round(s);
	n_first = seen.n_rows;
	assert_in_range(n_first, 0.8 * DEEP_ROWS / UNSEEN, DEEP_ROWS / UNSEEN);
	while (seen.n_passes == 1)
		go_round(s);
	n_second = seen.n_rows - n_first;
	assert_true(core->attention.seen);
	go_till_all_have(s);
	assert_int_equal(end_of(p).status, 0);
	school_free(s);
	return n_second / DEEP_ROWS;
}

static void first_attention_behind_passes_of_weights_is_cut(void **state)
{
	double as_modelled, slow;

	(void)state;
	as_modelled = second_pass_of_attention(1);
	slow = second_pass_of_attention(2);
	assert_true(as_modelled > 0.9 && as_modelled <= 1);
	assert_true(slow > 0.4 && slow <= 0.55);
}

static uint32_t n_live(const struct school *s)
{
	return store_seq_n_live(handle_seq(&s->h.sched->core.seqs, s->pupils[0].seq)->store);
}

static void the_attention_of_a_draft_is_no_longer_than_a_batch(void **state)
{
	(void)state;
	for (uint64_t number = 1; number <= 20; number++) {
		struct school *s = school_of_a_drafter(BUDGET_NS / (double)number);
		struct pupil *p = &s->pupils[0];

		draw_parents(number);
		ask_for_draft(p);
		go_till_all_have(s);
		assert_int_equal(end_of(p).status, 0);
		assert_int_equal(end_of(p).value, 0);
		assert_int_equal(seen.n_rows, N);
		assert_in_range(seen.n_passes, N / (number + 1), N / number + 2);
		assert_true(world.longest_attend_ns <= 1.1 * BUDGET_NS);
		school_free(s);
	}
}

/* That is no time for any, and one goes nevertheless. */
static void of_the_heaviest_draft_a_pass_has_a_row(void **state)
{
	struct school *s = school_of_a_drafter(3 * BUDGET_NS);
	struct pupil *p = &s->pupils[0];

	(void)state;
	draw_parents(7);
	ask_for_draft(p);
	go_till_all_have(s);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(seen.n_passes, N);
	assert_true(world.longest_attend_ns <= 3.1 * BUDGET_NS);
	school_free(s);
}

static void a_draft_of_many_passes_is_accepted_as_one(void **state)
{
	struct school *s = school_of_a_drafter(BUDGET_NS / 5);
	struct pupil *p = &s->pupils[0];
	struct abi_entry accept = {.kind = ABI_ACCEPT, .seq = p->seq, .count = 2};
	uint32_t path[] = {0, N - 1};

	(void)state;
	draw_parents(1);
	seen.parents[N - 1] = 0;
	ask_for_draft(p);
	go_till_all_have(s);
	assert_int_equal(n_live(s), N);
	assert_int_equal(client_do(&p->c, accept, path, sizeof(path)).status, 0);
	assert_int_equal(n_live(s), 0);
	assert_int_equal(p->c.session->tokens_computed, N_PATH + 2);
	school_free(s);
}

/* Some passes have rows of it already: they go, and the sequence is as it was. */
static void a_draft_that_is_cancelled_leaves_nothing(void **state)
{
	struct school *s = school_of_a_drafter(BUDGET_NS / 5);
	struct pupil *p = &s->pupils[0];

	(void)state;
	draw_parents(2);
	ask_for_draft(p);
	while (seen.n_passes < 3)
		go_round(s);
	assert_int_equal(n_live(s), N);
	ring_cancel(p->c.lane, p->c.ticket);
	go_till_all_have(s);
	assert_int_equal(end_of(p).status, -ECANCELED);
	assert_in_range(seen.n_rows, 1, N - 1);
	assert_int_equal(n_live(s), 0);
	draw_parents(3);
	ask_for_draft(p);
	go_till_all_have(s);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(seen.n_rows, N);
	school_free(s);
}

static uint64_t fork_of(struct pupil *p)
{
	return client_do(&p->c, (struct abi_entry){.kind = ABI_FORK, .seq = p->seq}, NULL, 0).value;
}

static void ask_for_drafts(struct pupil *p, uint64_t other)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seqs[2];
		uint32_t ids[2 * N], parents[2 * N];
	} body = {.seqs = {{.seq = p->seq, .n_new = N}, {.seq = other, .n_new = N}}};

	for (uint32_t i = 0; i < 2 * N; i++) {
		body.ids[i] = FIRST_ID + i;
		body.parents[i] = i % N ? i % N - 1 : WORK_NONE;
	}
	client_submit(&p->c,
		      (struct abi_entry){.kind = ABI_DECODE,
					 .flags = ABI_EXTEND_PARENTS,
					 .count = 2},
		      &body, sizeof(body));
}

/* One of two has all of its rows by then: its client cannot tell which, and finds neither. */
static void drafts_that_are_cancelled_leave_nothing_be_they_whole(void **state)
{
	struct school *s = school_of_a_drafter(BUDGET_NS / 5);
	struct pupil *p = &s->pupils[0];
	uint64_t other = fork_of(p);
	const struct sched_seq *first, *second;

	(void)state;
	first = handle_seq(&s->h.sched->core.seqs, p->seq);
	second = handle_seq(&s->h.sched->core.seqs, other);
	seen.parents[0] = 0; /* of several sequences it says nothing */
	ask_for_drafts(p, other);
	while (!first->computed)
		go_round(s);
	assert_false(has(p) || second->computed);
	ring_cancel(p->c.lane, p->c.ticket);
	while (!has(p))
		go_round(s);
	assert_int_equal(end_of(p).status, -ECANCELED);
	assert_int_equal(end_of(p).published, 0);
	assert_int_equal(store_seq_n_live(first->store) + store_seq_n_live(second->store), 0);
	ask(p, 1);
	while (!has(p))
		go_round(s);
	assert_int_equal(end_of(p).status, 0);
	school_free(s);
}

/* Its client closes the sequence meanwhile. */
static void a_draft_that_is_closed_meanwhile_leaves_nothing(void **state)
{
	struct school *s = school_of_a_drafter(BUDGET_NS / 5);
	struct pupil *p = &s->pupils[0];

	(void)state;
	draw_parents(4);
	ask_for_draft(p);
	while (seen.n_passes < 3)
		go_round(s);
	world.instant = true;
	seen.parents[0] = 0; /* what follows is no draft */
	assert_int_equal(client_close(&p->c, p->seq), 0);
	world.instant = false;
	assert_true(has(p));
	assert_true(end_of(p).status < 0);
	assert_int_equal(harness_status(&s->h).store.n_seqs, 0);
	school_free(s);
}

static bool are_in_a_pass(const struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (LIST_FIRST(&s->pupils[i].c.session->lanes)->state != STEP_IN_PASS)
			return false;
	return true;
}

/* Somebody who is in its third pass, too, loses his path between two segments: all rows of that
 * pass begin anew, and the draft from its first one. */
static void a_draft_whose_pass_begins_anew_begins_anew(void **state)
{
	struct school *s = school_new((PASS_NS - FIXED_NS) / N_ROWS);
	struct abi_entry extend = {.kind = ABI_EXTEND, .count = 1400};
	uint32_t ids[1400] = {0};
	struct other other, filler;
	struct pupil *p, *q = &s->pupils[0];

	(void)state;
	world.batch_ns = LAYER_NS;
	s->h.config.pool_bytes = 16u << 20;
	s->h.config.host_tier_bytes = 64u << 20;
	s->h.config.stage_bytes = 2u << 20;
	start(s, BUDGET_NS / 5, N_LAYERS);
	p = join(s, 1, 0, N_LAYERS);
	other_join(&other, s, 1);
	other_join(&filler, s, 1);
	ask(p, 1800);
	while (!has(p))
		go_until(s, &other, world.now_ns + ROUND_NS);
	draw_parents(5);
	ask_for_draft(q);
	while (seen.n_passes < 2)
		go_until(s, &other, world.now_ns + ROUND_NS);
	seen.parents[0] = 0; /* from now on there are others */
	ask(p, N_ROWS);
	while (!are_in_a_pass(s))
		go_until(s, &other, world.now_ns + ROUND_NS);
	go_between_segments(s, &other);
	extend.seq = filler.seq;
	client_submit(&filler.c, extend, ids, sizeof(ids));
	while (!has(p))
		go_until(s, NULL, world.now_ns + ROUND_NS);
	assert_int_equal(end_of(p).status, -ENOSPC);
	seen.parents[0] = WORK_NONE;
	seen.n_rows = 0;
	while (!has(q))
		go_until(s, NULL, world.now_ns + ROUND_NS);
	assert_int_equal(end_of(q).status, 0);
	assert_int_equal(seen.n_rows, N);
	other_end(&other);
	other_end(&filler);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_attention_of_a_draft_is_no_longer_than_a_batch),
		cmocka_unit_test(of_the_heaviest_draft_a_pass_has_a_row),
		cmocka_unit_test(first_attention_behind_passes_of_weights_is_cut),
		cmocka_unit_test(a_draft_of_many_passes_is_accepted_as_one),
		cmocka_unit_test(a_draft_that_is_cancelled_leaves_nothing),
		cmocka_unit_test(drafts_that_are_cancelled_leave_nothing_be_they_whole),
		cmocka_unit_test(a_draft_that_is_closed_meanwhile_leaves_nothing),
		cmocka_unit_test(a_draft_whose_pass_begins_anew_begins_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
