/*
 * lane_fuzz.c - a session whose shared memory is nonsense, beside two that must not notice.
 *
 *      hostile   domain 1000   its lane is scribbled over between rounds; its entries are valid but
 *                for a field
 *      friend    domain 1000   shares a prefix with it that the friend computed
 *      stranger  domain 2000   uses the very token ids that the hostile one uses
 *
 * Q is zero, so that attention is the mean of V over the path, and V is made of a hash of all
 * tokens up to it: a foreign or stale row shows in the mean, and so does a NaN of the hostile
 * session's. Nobody must read or write outside the hostile session's arena, which lies between
 * pages that cannot be touched.
 */
#include "lane_program.h"

#include "daemon/control/evict.h"
#include "daemon/control/verbs.h"

#include "daemon/sched/long/streamed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define SECONDS 3
#define MAX_TURNS 200000
#define TURNS_A_CHECK 8

/* The one word that ends a lane when it makes no sense; then a new one. */
static void scribble_submitted(struct world *w)
{
	uint64_t near = w->hostile.ticket + draw_below(&w->draw, 600) - 300;

	atomic_store(&w->hostile.lane->submitted,
		     draw_one_in(&w->draw, 2) ? near : draw_border(&w->draw));
	for (int i = 0; i < 100; i++)
		sched_round(w->h.sched);
	hostile_lane_unmake(w);
	hostile_lane_make(w);
}

static void hostile_act(struct world *w)
{
	uint32_t what = draw_below(&w->draw, 400);

	if (what == 0) {
		scribble_submitted(w);
	} else if (what == 1) {
		hostile_arena_unmake(w);
		hostile_arena_make(w);
	} else if (what < 30) {
		hostile_open(w);
	} else if (what < 60) {
		hostile_request(w);
	} else if (what < 90) {
		hostile_scribble_arena(w);
	} else if (what < 120) {
		hostile_scribble_words(w);
	} else {
		/* A ring that is not full, most of the time. */
		if (w->hostile.ticket - hostile_lane(w)->accepted < ABI_LANE_SLOTS)
			hostile_entry(w);
	}
}

/* As a stream would; or it never comes, until something else lets the lane go. */
static void write_ready(struct world *w)
{
	const struct sched_lane *lane = hostile_lane(w);

	bool waits = lane->state == STEP_AWAITING_INPUT || lane->state == STEP_REFUSED;

	if (!waits || draw_one_in(&w->draw, 6))
		return;
	if (lane->word < ABI_LANE_WORDS)
		atomic_store(&w->hostile.lane->ready_words[lane->word], 1);
	else
		atomic_store(&w->hostile.lane->ready, lane->accepted);
}

/* And counts what has gone well; the completion may be scribbled over, which is of no matter. */
static void rounds_until_served(struct world *w)
{
	struct hostile *x = &w->hostile;
	const struct sched_lane *lane = hostile_lane(w);

	for (int i = 0; i < 1000 && (lane->accepted < x->ticket || lane->state != STEP_FREE); i++) {
		write_ready(w);
		sched_round(w->h.sched);
	}
	uint32_t slot = ring_slot(x->ticket), kind = x->lane->entries[slot].kind;

	if (kind < ABI_N_KINDS && x->lane->completions[slot].status == 0)
		x->n_done[kind]++;
}

static void hostile_turn(struct world *w)
{
	uint32_t n = 1 + draw_below(&w->draw, 12), n_rounds = draw_below(&w->draw, 8);

	while (n--) {
		hostile_act(w);
		if (!draw_one_in(&w->draw, 4))
			rounds_until_served(w);
	}
	while (n_rounds--)
		sched_round(w->h.sched);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* What is on its way through the stage has references of its own. */
static void assert_valid(const struct world *w)
{
	char error[200] = "";

	if (streamed_busy(&w->h.sched->streamed))
		return;
	if (store_validate(w->h.sched->core.store, error, sizeof(error)) < 0)
		fail_msg("the store: %s", error);
}

/* An extent for small pages, of which the stranger finds some whatever the others hold; two for
 * large ones, of which 21 are in one; the stage. */
static void make_tight(struct config *config)
{
	config->max_seqs = 5;
	config->max_seq_tokens = 1500;
	config->pool_bytes = 4 * config->extent_bytes;
	config->stage_bytes = config->extent_bytes;
	config->host_tier_bytes = 4 * config->extent_bytes;
	config->stage_block = 64;
	config->domain_bytes = 0;
}

static void world_init(struct world *w)
{
	draw_init(&w->draw, SECONDS);
	harness_init(&w->h);
	w->h.config.pool_bytes = 8 * w->h.config.extent_bytes;
	w->h.config.domain_bytes = 384 << 10;
	w->h.config.max_seqs = 12;
	w->h.config.max_seq_tokens = 1 << 17;
	w->h.config.claim_ms = 1;
	w->h.config.n_threads = 1;
	w->h.config.prefill_rows = 64;
	if (w->tight)
		make_tight(&w->h.config);
	w->h.stepped = true;
	lane_program_backend(&w->h);
	harness_start(&w->h);
	for (int i = 0; i < 2; i++) {
		client_start(&w->honest[i].c, &w->h, 1000 * (i + 1), &LANE_SHAPE, 1 << 20);
		w->honest[i].is_friend = i == 0;
		lane_honest_open(&w->draw, &w->honest[i], &w->honest[i].seqs[0], 1);
		assert_int_not_equal(w->honest[i].seqs[0].handle, 0);
	}
	hostile_start(w);
}

/* Nothing is left of anybody once pins are over and everything that can go is evicted. */
static void world_done(struct world *w)
{
	struct evict_call call = {0};
	struct sched_request evict = {.serve = verb_evict.serve, .room = &call};

	hostile_end(w);
	assert_valid(w);
	for (int i = 0; i < 2; i++) {
		lane_honest_turn(&w->draw, &w->honest[i]);
		client_end(&w->honest[i].c);
	}
	usleep(1000); /* pins hold for 200 us at most */
	sched_round(w->h.sched);
	sched_round(w->h.sched);
	do
		assert_int_equal(harness_call(&w->h, &evict), 0);
	while (call.more);
	struct sched_status end = harness_status(&w->h);

	assert_int_equal(end.store.n_seqs + end.store.n_claims + end.store.n_pins, 0);
	assert_int_equal(end.store.n_pages, 0);
	if (!w->tight) /* host memory has it yet */
		assert_int_equal(end.store.n_tokens + end.store.n_nodes, 0);
	assert_int_equal(end.n_lanes + end.n_sessions, 0);
	assert_valid(w);
	harness_stop(&w->h);
}

static void hurt_nobody(bool tight)
{
	struct world *w = calloc(1, sizeof(*w));
	uint32_t n = 0;

	w->tight = tight;
	world_init(w);
	for (; n < MAX_TURNS && draw_goes_on(&w->draw); n++) {
		hostile_turn(w);
		lane_honest_turn(&w->draw, &w->honest[draw_below(&w->draw, 2)]);
		if (n % TURNS_A_CHECK == 0)
			assert_valid(w);
	}
	print_message("%u turns, %llu entries in %llu lanes, %llu failed; friend %llu steps, "
		      "%llu refused; stranger %llu\n",
		      n, (unsigned long long)w->hostile.n_entries,
		      (unsigned long long)w->hostile.n_lanes,
		      (unsigned long long)harness_status(&w->h).entries_failed,
		      (unsigned long long)w->honest[0].n_steps,
		      (unsigned long long)w->honest[0].n_refused,
		      (unsigned long long)w->honest[1].n_steps);
	for (int kind = 0; kind < ABI_N_KINDS; kind++)
		print_message("kind %d: %llu went well\n", kind,
			      (unsigned long long)w->hostile.n_done[kind]);
	print_message("%llu legs\n", (unsigned long long)harness_status(&w->h).n_streamed);
	print_message("%llu passes of a program\n",
		      (unsigned long long)harness_status(&w->h).passes);
	assert_true(w->honest[1].n_steps > 0);
	/* Else a domain has one extent, which is another model's. */
	assert_true(!w->tight || harness_status(&w->h).passes > 0);
	world_done(w);
	free(w);
}

static void nonsense_in_a_lane_hurts_nobody_else(void **state)
{
	(void)state;
	hurt_nobody(false);
}

static void nor_where_kv_is_below_the_pool(void **state)
{
	(void)state;
	hurt_nobody(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nonsense_in_a_lane_hurts_nobody_else),
		cmocka_unit_test(nor_where_kv_is_below_the_pool),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
