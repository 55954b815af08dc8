/*
 * pass_layers_test.c - tokens of programs beside sessions that compute their layers themselves: a
 * pass is cut into segments of layers, and nobody's wait is longer than one of them.
 */
#include "school_layers.h"

#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void layers_wait_for_a_segment_and_no_pass(void **state)
{
	struct school *s = school_of_layers(1);
	struct other other;

	(void)state;
	other_join(&other, s, 1);
	go_until(s, &other, world.now_ns + (uint64_t)(100 * MS));
	other.longest_ns = world.longest_segment_ns = 0;
	go_until(s, &other, world.now_ns + (uint64_t)(1000 * MS));
	assert_true(world.longest_segment_ns <= 2 * MS);
	assert_true(other.longest_ns <= 2.5 * MS);
	/* a step a segment, of about 1.9 ms: neither waits for more than one of the other's */
	assert_in_range(other.n_steps, 400, 800);
	assert_in_range(s->pupils[0].c.session->tokens_computed, 45 * N_ROWS, 55 * N_ROWS);
	other_end(&other);
	school_free(s);
}

/* Of a program of one layer that takes as long as a token may, in passes as long as they may be.
 * max_token_ms 0: the key's default. */
static struct school *school_of_heavy_rows(uint32_t max_token_ms)
{
	struct school *s = school_new(0);

	if (max_token_ms)
		s->h.config.max_token_ms = max_token_ms;
	world.batch_ns = LAYER_NS;
	world.fixed_ns = s->h.config.max_token_ms * MS;
	world.row_ns = world.fixed_ns / N_ROWS;
	world.n_places = 5 * s->h.config.max_token_ms;
	school_start(s);
	join(s, 1, N_ROWS, 1);
	return s;
}

/* Of which a segment has two fifths, beside layers: of passes that take as long as they may. */
static void layers_wait_for_as_long_as_the_key_says(void **state)
{
	static const uint32_t some_ms[] = {1, 12, 1000};

	(void)state;
	for (uint32_t i = 0; i < sizeof(some_ms) / sizeof(*some_ms); i++) {
		double most_ns = 0.4 * some_ms[i] * MS;
		struct school *s = school_of_heavy_rows(0);
		struct other other;

		s->h.config.segment_ms = some_ms[i];
		other_join(&other, s, 2);
		go_until(s, &other, world.now_ns + (uint64_t)(100 * MS + 2 * most_ns));
		other.longest_ns = world.longest_segment_ns = 0;
		other.n_steps = 0;
		go_until(s, &other, world.now_ns + (uint64_t)(20 * (most_ns + LAYER_NS)));
		assert_true(world.longest_segment_ns > 0.9 * most_ns);
		assert_true(world.longest_segment_ns <= most_ns);
		assert_true(other.longest_ns <= most_ns + 0.5 * MS);
		assert_true(other.n_steps >= 19);
		other_end(&other);
		school_free(s);
	}
}

static void layers_wait_for_a_part_of_the_heaviest_layer(void **state)
{
	struct school *s = school_of_heavy_rows(0);
	struct other other;

	(void)state;
	other_join(&other, s, 2);
	go_until(s, &other, world.now_ns + (uint64_t)(100 * MS));
	other.longest_ns = world.longest_segment_ns = 0;
	go_until(s, &other, world.now_ns + (uint64_t)(1000 * MS));
	assert_true(world.longest_segment_ns > 1 * MS);
	assert_true(world.longest_segment_ns <= 2 * MS);
	assert_true(other.longest_ns <= 2.5 * MS);
	assert_true(other.n_steps >= 400);
	assert_in_range(world.n_passes, 1, 2);
	other_end(&other);
	school_free(s);
}

/* And nobody computes layers: so long does whoever asks for something wait. */
static void a_backend_that_holds_the_thread_has_it_for_some_milliseconds(void **state)
{
	struct school *s = school_new(0);

	(void)state;
	s->program.holds = true;
	world.fixed_ns = s->h.config.max_token_ms * MS;
	world.n_places = 10000;
	school_start(s);
	join(s, 1, 1, 1);
	go_until(s, NULL, world.now_ns + (uint64_t)(1000 * MS));
	assert_true(world.longest_segment_ns > 9 * MS);
	assert_true(world.longest_segment_ns <= 10 * MS);
	school_free(s);
}

/* Of a backend that holds nobody. Who is seen again after a while waits as a newcomer does. */
static void wait_unheard_of(uint32_t max_token_ms)
{
	struct school *s = school_of_heavy_rows(max_token_ms);
	double most_ns = 2.0 * s->h.config.batch_budget_ms * MS;
	struct other other;

	go_until(s, NULL, world.now_ns + (uint64_t)(1000 * MS));
	assert_true(world.longest_segment_ns > 0.9 * most_ns);
	assert_true(world.longest_segment_ns <= most_ns);
	other_join(&other, s, 2);
	for (int i = 0; i < 6; i++) {
		other.idles = i % 2 > 0;
		go_until(s, &other, world.now_ns + (uint64_t)(300 * MS));
	}
	assert_true(other.n_steps > 0);
	assert_true(other.longest_ns <= most_ns + 0.5 * MS);
	other_end(&other);
	school_free(s);
}

static void who_was_not_there_waits_for_a_part_of_a_long_pass(void **state)
{
	(void)state;
	wait_unheard_of(0);
	wait_unheard_of(3600000); /* the most that the key takes */
}

#define N_PROMPT 200u /* rows, each of which is a batch: the next one is there when one ends */

/* Until the prompt's layer is done: batches that begin while no segment does, at most. */
static uint32_t most_batches_in_turn(struct school *s, struct other *prompt, struct other *decodes)
{
	const struct sched_status *stats = &s->h.sched->core.stats;
	uint64_t n_segments = stats->pass_segments, n_batches = stats->batches;
	uint32_t most = 0;

	other_ask_prompt(prompt, N_PROMPT);
	while (ring_done(prompt->c.lane) < prompt->c.ticket) {
		go_until(s, decodes, world.now_ns + 1);
		if (stats->batches - n_batches > most)
			most = (uint32_t)(stats->batches - n_batches);
		if (stats->pass_segments != n_segments)
			n_batches = stats->batches;
		n_segments = stats->pass_segments;
	}
	return most;
}

/* User 1, whoever else is there: nobody, another program's user, one of his program. His layers are
 * a prompt's, and tokens' beside that. */
static void of_who_has_both_layers_and_passes_go_in_turns(void **state)
{
	(void)state;
	for (uint32_t with = 0; with < 6; with++) {
		struct school *s = school_of_layers(1);
		struct other prompt, decodes;

		s->h.config.prefill_rows = 1;
		if (with % 3)
			join(s, 2, N_ROWS, with % 3 == 1 ? N_LAYERS / 2 : N_LAYERS);
		other_join(&prompt, s, 1);
		other_join(&decodes, s, 1);
		go_until(s, NULL, world.now_ns + (uint64_t)(100 * MS));
		assert_int_equal(most_batches_in_turn(s, &prompt, with < 3 ? NULL : &decodes), 1);
		for (uint32_t i = 0; i < s->n; i++)
			s->pupils[i].again = 0;
		go_until(s, NULL, world.now_ns + (uint64_t)(100 * MS));
		other_end(&prompt);
		other_end(&decodes);
		school_free(s);
	}
}

/* What comes before the first layer may take a whole segment, and is nothing of what rows take. */
static void a_segment_that_is_no_part_of_its_pass_is_gone_on_from(void **state)
{
	struct school *s = school_of_layers(1);
	struct other other;

	(void)state;
	world.begins_small = true;
	other_join(&other, s, 1);
	go_until(s, &other, world.now_ns + (uint64_t)(500 * MS));
	assert_in_range(s->pupils[0].c.session->tokens_computed, 20 * N_ROWS, 30 * N_ROWS);
	assert_true(world.n_segments >= 2 * world.n_passes);
	other_end(&other);
	school_free(s);
}

/* One layer that takes as long as all may: its attention is not cut, and takes what a batch may. */
static void the_attention_of_a_layer_is_no_longer_than_a_batch(void **state)
{
	struct school *s = school_new(0);
	struct sched_model *model;
	struct pupil *p;

	(void)state;
	world.fixed_ns = s->h.config.max_token_ms * MS;
	school_start(s);
	p = join(s, 1, 0, 1);
	model = p->c.session->models[p->c.model - 1];
	ask(p, MAX_ROWS);
	go_till_all_have(s);
	model->pair_ns = 1 * MS / MAX_ROWS; /* a row of it, behind that */
	world.longest_attend_ns = 0;
	ask(p, MAX_ROWS);
	go_till_all_have(s);
	assert_true(world.longest_attend_ns > 0.9 * BUDGET_NS);
	assert_true(world.longest_attend_ns <= 1.1 * BUDGET_NS);
	school_free(s);
}

/* It is cut where the backend gets as little of it at a time as is asked for. */
static void the_attention_of_a_layer_that_is_cut_takes_what_a_pass_may(void **state)
{
	struct school *s = school_new(0);
	struct pupil *p;

	(void)state;
	s->program.holds = true;
	world.n_places = 10000;
	world.fixed_ns = s->h.config.max_token_ms * MS;
	school_start(s);
	p = join(s, 1, 0, 1);
	ask(p, MAX_ROWS);
	go_till_all_have(s);
	p->c.session->models[p->c.model - 1]->pair_ns = 1 * MS / MAX_ROWS;
	world.longest_attend_ns = 0;
	ask(p, MAX_ROWS);
	go_till_all_have(s);
	assert_true(world.longest_attend_ns > MAX_ROWS * MS);
	assert_true(world.longest_segment_ns <= 10 * MS);
	school_free(s);
}

static struct {
	const struct backend_program_ops *ops;
	uint32_t most_tiles; /* of an item */
} seen;

static int run_seen(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	const struct work_list *list = run->job->list;

	for (uint32_t i = 0; i < list->n_items; i++)
		if (list->items[i].n_tiles > seen.most_tiles)
			seen.most_tiles = list->items[i].n_tiles;
	return seen.ops->run(b, run, ret);
}

/* Which other policies would make of a whole path. */
static void what_is_cut_by_time_has_short_items_by_any_policy(void **state)
{
	static struct backend_program_ops ops;

	(void)state;
	for (size_t i = 0; i < PLAN_N_WAYS; i++) {
		struct school *s = school_new(0.001 * MS);

		ops = s->program;
		seen.ops = &ops;
		seen.most_tiles = 0;
		s->program.run = run_seen;
		s->program.holds = true;
		assert_int_equal(plan_policy_parse(plan_ways[i], &s->h.config.policy), 0);
		school_start(s);
		ask(join(s, 1, 0, 1), 20000);
		go_till_all_have(s);
		assert_in_range(seen.most_tiles, 1, 2048 / WORK_TILE_TOKENS);
		school_free(s);
	}
}

static void a_pass_is_whole_while_nobody_computes_layers(void **state)
{
	struct school *s = school_of_layers(1);
	struct other other;

	(void)state;
	go_until(s, NULL, world.now_ns + (uint64_t)(200 * MS));
	assert_int_equal(world.n_segments, world.n_passes);
	other_join(&other, s, 1);
	go_until(s, &other, world.now_ns + (uint64_t)(200 * MS));
	assert_true(world.n_segments > world.n_passes);
	go_until(s, NULL, world.now_ns + (uint64_t)(200 * MS));
	world.n_segments = world.n_passes = 0;
	go_until(s, NULL, world.now_ns + (uint64_t)(200 * MS));
	assert_in_range(world.n_segments, world.n_passes, world.n_passes + 1);
	other_end(&other);
	school_free(s);
}

/* It did once, and is still there; then it names a layer that is not its next. */
static void who_asks_for_nothing_computes_no_layers(void **state)
{
	struct school *s = school_of_layers(1);
	struct abi_entry step = {.kind = ABI_STEP, .layer = N_LAYERS, .count = 1};
	struct abi_step_seq rec;
	struct other other;

	(void)state;
	other_join(&other, s, 1);
	go_until(s, &other, world.now_ns + (uint64_t)(50 * MS));
	assert_true(world.n_segments > world.n_passes);
	other.idles = true;
	go_until(s, &other, world.now_ns + (uint64_t)(200 * MS));
	world.n_segments = world.n_passes = 0;
	go_until(s, &other, world.now_ns + (uint64_t)(200 * MS));
	assert_in_range(world.n_segments, world.n_passes, world.n_passes + 1);
	rec = client_step_seq(&other.c, other.seq, 1);
	client_submit(&other.c, step, &rec, sizeof(rec));
	world.n_segments = world.n_passes = 0;
	go_until(s, NULL, world.now_ns + (uint64_t)(100 * MS));
	assert_int_equal(ring_completion(other.c.lane, other.c.ticket).status, -EINVAL);
	assert_in_range(world.n_segments, world.n_passes, world.n_passes + 1);
	other_end(&other);
	school_free(s);
}

/* As much as has been run, what begins anew once more; paths are modelled too. */
static void is_charged_what_ran(const struct pupil *p, double had_before_ns)
{
	assert_true(had_ns(p) - had_before_ns >= 0.999 * world.ran_ns);
	assert_true(had_ns(p) - had_before_ns <= 1.05 * world.ran_ns);
}

static void a_pass_is_charged_as_it_runs(void **state)
{
	struct school *s = school_of_layers(1);
	struct pupil *p = &s->pupils[0];
	struct other other;
	double before_ns;

	(void)state;
	other_join(&other, s, 2);
	go_until(s, &other, world.now_ns + (uint64_t)(100 * MS));
	p->again = 0;
	while (!has(p))
		go_until(s, &other, world.now_ns + ROUND_NS);
	world.ran_ns = 0;
	before_ns = had_ns(p);
	ask(p, N_ROWS);
	go_between_segments(s, &other);
	is_charged_what_ran(p, before_ns);
	assert_true(had_ns(p) - before_ns < 5 * MS);
	while (!has(p)) {
		go_until(s, &other, world.now_ns + ROUND_NS);
		is_charged_what_ran(p, before_ns);
	}
	assert_true(world.ran_ns >= 0.99 * PASS_NS);
	other_end(&other);
	school_free(s);
}

/* The backend has forgotten the plan, and with it the rows: they begin anew. */
static void a_pass_begins_anew_where_its_plan_is_gone(void **state)
{
	struct school *s = school_of_layers(1);
	struct other other;
	uint32_t n_before;
	double before_ns;

	(void)state;
	other_join(&other, s, 1);
	go_until(s, &other, world.now_ns + (uint64_t)(100 * MS));
	go_between_segments(s, &other);
	n_before = world.n_passes;
	before_ns = had_ns(&s->pupils[0]);
	world.ran_ns = 0;
	world.stale_at = world.next;
	go_until(s, &other, world.now_ns + (uint64_t)(3 * MS));
	assert_int_equal(world.stale_at, 0);
	assert_int_equal(world.n_passes, n_before + 1);
	assert_true(world.ran_ns > 1 * MS);
	is_charged_what_ran(&s->pupils[0], before_ns);
	go_until(s, &other, world.now_ns + (uint64_t)(100 * MS));
	other_end(&other);
	school_free(s);
}

/* Somebody's tokens need more room than is left, so that what the pass reads goes to the tier below
 * between two of its segments. */
static void what_is_taken_from_under_a_pass_is_told_and_not_read(void **state)
{
	struct school *s = school_new((PASS_NS - FIXED_NS) / N_ROWS);
	struct abi_entry extend = {.kind = ABI_EXTEND, .count = 1400};
	uint32_t ids[1400] = {0}, n_passes;
	struct pupil *p, *q;
	struct other other, filler;

	(void)state;
	world.batch_ns = LAYER_NS;
	s->h.config.pool_bytes = 16u << 20;
	s->h.config.host_tier_bytes = 64u << 20;
	s->h.config.stage_bytes = 2u << 20;
	school_start(s);
	p = join(s, 1, 0, N_LAYERS);
	q = join(s, 1, 0, N_LAYERS);
	other_join(&other, s, 1);
	other_join(&filler, s, 1);
	ask(p, 1800);
	go_until(s, &other, world.now_ns + (uint64_t)(1000 * MS));
	assert_int_equal(end_of(p).status, 0);
	ask(p, N_ROWS);
	ask(q, N_ROWS);
	go_between_segments(s, &other);
	n_passes = world.n_passes;
	extend.seq = filler.seq;
	client_submit(&filler.c, extend, ids, sizeof(ids));
	while (!has(p) || !has(q))
		go_until(s, NULL, world.now_ns + ROUND_NS);
	assert_int_equal(end_of(p).status, -ENOSPC);
	assert_int_equal(end_of(p).reason, ABI_NO_ROOM);
	assert_int_equal(end_of(p).published, 0);
	assert_int_equal(end_of(q).status, 0);
	assert_int_equal(world.n_passes, n_passes + 1);
	other_end(&other);
	other_end(&filler);
	school_free(s);
}

/* Whoever goes while his pass is between two segments takes nobody's rows with him. */
static void a_session_ends_behind_the_pass(void **state)
{
	struct school *s = school_of_layers(3);
	struct other other;

	(void)state;
	other_join(&other, s, 1);
	for (uint32_t i = 0; i < 3; i++)
		s->pupils[i].again = 10;
	go_until(s, &other, world.now_ns + (uint64_t)(100 * MS));
	go_between_segments(s, &other);
	other_end(&other);
	world.instant = true;
	client_end(&s->pupils[2].c);
	s->n = 2;
	world.instant = false;
	go_until(s, NULL, world.now_ns + (uint64_t)(200 * MS));
	school_free(s);
}

/* For so long: does any batch not have all that seems to be there? */
static bool some_are_left(struct school *s, struct other *o, double ns)
{
	uint64_t end_ns = world.now_ns + (uint64_t)ns;
	bool left = false;

	while (world.now_ns < end_ns) {
		go_until(s, o, world.now_ns + 1);
		left |= s->h.sched->fit.left_some;
	}
	return left;
}

/* His next tokens are likely, and go with no batch of others. */
static void who_has_just_had_tokens_counts_for_what_fits(void **state)
{
	struct school *s = school_of_layers(1);
	struct sched_core *core = &s->h.sched->core;
	struct other other;

	(void)state;
	other_join(&other, s, 2);
	s->pupils[0].again = 0;
	ask(&s->pupils[0], N_ROWS);
	while (!has(&s->pupils[0]))
		go_until(s, NULL, world.now_ns + ROUND_NS);
	assert_true(LIST_FIRST(&s->pupils[0].c.session->lanes)->is_away);
	assert_true(core->away_alone_ns >= 0.9 * (PASS_NS - FIXED_NS));
	assert_true(had_ns(&s->pupils[0]) >= 0.9 * PASS_NS);
	s->h.config.batch_budget_ms = 10;
	assert_true(some_are_left(s, &other, 5 * MS));
	go_until(s, &other, world.now_ns + (uint64_t)(6 * MS));
	assert_false(some_are_left(s, &other, 5 * MS));
	assert_true(other.n_steps > 20);
	other_end(&other);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_wait_for_a_segment_and_no_pass),
		cmocka_unit_test(layers_wait_for_as_long_as_the_key_says),
		cmocka_unit_test(layers_wait_for_a_part_of_the_heaviest_layer),
		cmocka_unit_test(a_backend_that_holds_the_thread_has_it_for_some_milliseconds),
		cmocka_unit_test(who_was_not_there_waits_for_a_part_of_a_long_pass),
		cmocka_unit_test(of_who_has_both_layers_and_passes_go_in_turns),
		cmocka_unit_test(a_segment_that_is_no_part_of_its_pass_is_gone_on_from),
		cmocka_unit_test(the_attention_of_a_layer_is_no_longer_than_a_batch),
		cmocka_unit_test(the_attention_of_a_layer_that_is_cut_takes_what_a_pass_may),
		cmocka_unit_test(what_is_cut_by_time_has_short_items_by_any_policy),
		cmocka_unit_test(a_pass_is_whole_while_nobody_computes_layers),
		cmocka_unit_test(who_asks_for_nothing_computes_no_layers),
		cmocka_unit_test(a_pass_is_charged_as_it_runs),
		cmocka_unit_test(a_pass_begins_anew_where_its_plan_is_gone),
		cmocka_unit_test(what_is_taken_from_under_a_pass_is_told_and_not_read),
		cmocka_unit_test(a_session_ends_behind_the_pass),
		cmocka_unit_test(who_has_just_had_tokens_counts_for_what_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
