/* input_wait_test.c - steps whose inputs come later, by the lane's ready word or by pairs of words;
 * threads and plain stores play the streams. */
#include "daemon/sched/round.h"
#include "sched_fixture.h"
#include "daemon/control/arenas.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/verbs/sessions.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define ROUNDS 200

static void go_rounds(struct fixture *f, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sched_round(f->h.sched);
}

static void set_ready(struct fixture *f, uint64_t value)
{
	atomic_store_explicit(&f->c.lane->ready, value, memory_order_release);
}

static void set_ready_word(struct fixture *f, uint32_t word, uint64_t value)
{
	atomic_store_explicit(&f->c.lane->ready_words[word], value, memory_order_release);
}

/* ---- the lane's ready word ------------------------------------------------------------------ */

static void a_streamed_step_runs_once_its_ticket_is_ready(void **state)
{
	struct fixture *f = *state;
	float *q = (float *)(void *)f->c.arena;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);
	float *v = q + rec.v / 4, *o = q + rec.o / 4;
	uint64_t ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
	set_ready(f, ticket - 1);
	go_rounds(f, ROUNDS);
	assert_int_equal(ring_done(f->c.lane), ticket - 1);
	assert_int_equal(harness_status(&f->h).n_input_waits, 1);
	for (uint32_t i = 0; i < 4 * 2 * 16; i++)
		v[i] = 3; /* the inputs come after the submission */
	set_ready(f, ticket);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
	assert_true(o[0] == 3 && o[4 * 4 * 16 - 1] == 3);
	assert_int_equal(harness_status(&f->h).n_input_waits, 0);
}

static void layers_may_be_queued_ahead(void **state)
{
	struct fixture *f = *state;
	uint64_t first, second;

	fixture_extend(f);
	first = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
	second = fixture_submit_step(f, 1, ABI_STEP_STREAM, 0);
	set_ready(f, first);
	assert_ends(client_wait(&f->c, first), 0, ABI_OK);
	go_rounds(f, ROUNDS);
	assert_int_equal(ring_done(f->c.lane), first);
	set_ready(f, second);
	assert_ends(client_wait(&f->c, second), 0, ABI_OK);
	assert_int_equal(harness_status(&f->h).store.n_tokens, 4);
}

static void a_step_without_the_flag_does_not_look_at_ready(void **state)
{
	struct fixture *f = *state;

	fixture_extend(f);
	set_ready(f, 0);
	assert_ends(client_wait(&f->c, fixture_submit_step(f, 0, 0, 0)), 0, ABI_OK);
}

static void a_refused_streamed_step_ends_at_once(void **state)
{
	struct fixture *f = *state;

	assert_ends(client_wait(&f->c, fixture_submit_step(f, 0, ABI_STEP_STREAM, 0)), -EINVAL,
		    ABI_NOT_EXTENDED);
}

static void an_awaited_step_holds_up_its_own_lane_alone(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	struct client other;
	uint64_t seq, ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&other, fixture_ids, 8, &seq, &match), 0);
	client_compute(&other, seq, fixture_ids, 8);
	assert_true(ring_done(f->c.lane) < ticket);
	client_end(&other);
	set_ready(f, ticket);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
}

static void whatever_ready_holds_harms_nobody_else(void **state)
{
	static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, ABI_RELEASED};
	struct fixture *f = *state;
	uint64_t ticket;

	for (uint32_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		fixture_extend(f);
		ticket = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
		for (uint32_t j = 0; j < 50; j++) {
			set_ready(f, j % 2 ? 0 : values[i]);
			go_rounds(f, 1);
		}
		set_ready(f, ticket);
		assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
		assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_TRIM, .seq = f->seq},
				      NULL, 0),
			    0, ABI_OK);
	}
}

/* ---- pairs of words ------------------------------------------------------------------------- */

static void a_word_is_taken_back_and_answered(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_WORDS, 5);
	go_rounds(f, ROUNDS);
	assert_int_equal(ring_done(f->c.lane), ticket - 1);
	assert_int_equal(fixture_done_word(f, 5), 0);
	set_ready_word(f, 5, 1);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
	assert_int_equal(atomic_load(&f->c.lane->ready_words[5]), 0);
	assert_int_equal(fixture_done_word(f, 5), 1);
	assert_int_equal(fixture_done_word(f, 4), 0);
}

/* Its stream will write the word, whatever the daemon thinks of the step: the next replay must not
 * find it. */
static void a_refused_step_with_a_word_awaits_it(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket = fixture_submit_step(f, 0, ABI_STEP_WORDS, 0);

	go_rounds(f, ROUNDS);
	assert_int_equal(ring_done(f->c.lane), ticket - 1);
	set_ready_word(f, 0, 1);
	assert_ends(client_wait(&f->c, ticket), -EINVAL, ABI_NOT_EXTENDED);
	assert_int_equal(atomic_load(&f->c.lane->ready_words[0]), 0);
	assert_int_equal(fixture_done_word(f, 0), 1);
}

static void a_step_that_is_cancelled_awaits_its_word_too(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	uint64_t ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_WORDS, 0);
	go_rounds(f, ROUNDS);
	assert_int_equal(client_close(&f->c, f->seq), 0);
	go_rounds(f, ROUNDS);
	assert_int_equal(ring_done(f->c.lane), ticket - 1);
	set_ready_word(f, 0, 1);
	assert_ends(client_wait(&f->c, ticket), -ECANCELED, ABI_STALE_SEQ);
	assert_int_equal(client_open(&f->c, fixture_ids, 4, &f->seq, &match), 0);
}

/* It was in the lane's step before. */
static void a_sequence_that_is_not_in_the_step_goes_without_it(void **state)
{
	struct fixture *f = *state;
	struct abi_entry both = {.kind = ABI_STEP, .count = 2};
	struct abi_step_seq recs[2];
	struct store_match match;
	uint64_t other, ticket;

	assert_int_equal(client_open(&f->c, fixture_ids + 4, 4, &other, &match), 0);
	recs[0] = client_step_seq(&f->c, f->seq, 4);
	recs[1] = client_step_seq(&f->c, other, 4);
	fixture_extend(f);
	assert_ends(client_extend(&f->c, other, fixture_ids + 4, 4), 0, ABI_OK);
	for (; both.layer < fixture_shape.n_layers; both.layer++)
		assert_ends(client_do(&f->c, both, recs, sizeof(recs)), 0, ABI_OK);
	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
	go_rounds(f, ROUNDS);
	assert_int_equal(client_close(&f->c, other), 0);
	set_ready(f, ticket);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
}

static void an_arena_that_goes_cancels_an_awaited_step(void **state)
{
	struct fixture *f = *state;
	struct sched_request remove = {.serve = verb_arena_free.serve,
				       .session = f->c.session,
				       .room = &(struct arena_call){.arena = 1}};
	uint64_t ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
	go_rounds(f, ROUNDS);
	assert_int_equal(harness_call(&f->h, &remove), 0);
	assert_ends(client_wait(&f->c, ticket), -ECANCELED, ABI_BAD_ARENA);
}

static void flags_and_words_that_are_not_are_refused(void **state)
{
	struct fixture *f = *state;

	fixture_extend(f);
	assert_ends(client_wait(&f->c, fixture_submit_step(f, 0, 1u << 5, 0)), -EINVAL,
		    ABI_BAD_FLAGS);
	assert_ends(client_wait(&f->c, fixture_submit_step(f, 0, ABI_STEP_WORDS, ABI_LANE_WORDS)),
		    -EINVAL, ABI_BAD_WORD);
	set_ready_word(f, 1, 1);
	assert_ends(client_wait(&f->c,
				fixture_submit_step(f, 0, ABI_STEP_WORDS | ABI_STEP_STREAM, 1)),
		    -EINVAL, ABI_BAD_FLAGS);
}

static void a_session_that_ends_lets_its_streams_go(void **state)
{
	struct fixture *f = *state;
	struct session_end_call call = {0};
	struct sched_request end = {.serve = sched_session_end, .room = &call};
	struct store_match match;
	struct client other;
	uint64_t seq;

	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&other, fixture_ids, 4, &seq, &match), 0);
	struct fixture g = {.c = other, .seq = seq};

	fixture_extend(&g);
	fixture_submit_step(&g, 0, ABI_STEP_WORDS, 0);
	fixture_submit_step(&g, 1, ABI_STEP_WORDS, 1);
	go_rounds(f, ROUNDS);
	end.session = g.c.session;
	assert_int_equal(harness_call(&f->h, &end), 0);
	assert_int_equal(ring_done(g.c.lane), g.c.ticket);
	assert_int_equal(fixture_done_word(&g, 0), 1);
	assert_int_equal(fixture_done_word(&g, 1), 1);
	client_unmap(&g.c);
}

/* ---- with a thread -------------------------------------------------------------------------- */

#define REPLAYS 1000

/* A graph of two captured steps, launched again and again. */
static void *replay(void *arg)
{
	struct fixture *f = arg;

	for (uint32_t i = 0; i < REPLAYS * fixture_shape.n_layers; i++) {
		uint32_t word = i % fixture_shape.n_layers;

		set_ready_word(f, word, 1);
		while (fixture_done_word(f, word) == 0)
			sched_yield();
		atomic_store(&f->c.lane->done_words[word], 0);
	}
	return NULL;
}

/* Replays are submitted far ahead of the stream. */
static void the_thousandth_replay_is_as_right_as_the_first(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);
	pthread_t stream;

	pthread_create(&stream, NULL, replay, f);
	for (uint32_t i = 0; i < REPLAYS; i++) {
		uint32_t id = i;

		while (f->c.ticket - ring_done(f->c.lane) > 3)
			sched_yield(); /* the harness has room for four bodies */
		client_submit(&f->c,
			      (struct abi_entry){.kind = ABI_EXTEND, .seq = f->seq, .count = 1},
			      &id, sizeof(id));
		for (uint32_t layer = 0; layer < fixture_shape.n_layers; layer++) {
			while (f->c.ticket - ring_done(f->c.lane) > 3)
				sched_yield();
			client_submit(&f->c,
				      (struct abi_entry){.kind = ABI_STEP,
							 .count = 1,
							 .layer = layer,
							 .flags = ABI_STEP_WORDS,
							 .arg = layer},
				      &rec, sizeof(rec));
		}
	}
	assert_ends(client_wait(&f->c, f->c.ticket), 0, ABI_OK);
	pthread_join(stream, NULL);
	assert_int_equal(harness_status(&f->h).entries_failed, 0);
	assert_int_equal(harness_status(&f->h).store.n_tokens, REPLAYS);
}

static void sleep_ms(uint32_t ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000l}, NULL);
}

/* ---- company -------------------------------------------------------------------------------- */

#define TOKENS 150
#define SHARED 200

struct decoder {
	struct client c;
	uint64_t seq;
	uint32_t late_us; /* it begins so much later */
};

static void pause_us(uint32_t us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000l}, NULL);
}

/* All layers of a token are published, then the stream comes to one after the other. */
static void *decode_on_stream(void *arg)
{
	struct decoder *d = arg;
	struct abi_step_seq rec = client_step_seq(&d->c, d->seq, 1);

	pause_us(d->late_us);
	for (uint32_t i = 0; i < TOKENS; i++) {
		uint32_t id = i;
		uint64_t first = d->c.ticket + 2;

		client_submit(&d->c,
			      (struct abi_entry){.kind = ABI_EXTEND, .seq = d->seq, .count = 1},
			      &id, sizeof(id));
		for (uint32_t layer = 0; layer < fixture_shape.n_layers; layer++)
			client_submit(&d->c,
				      (struct abi_entry){.kind = ABI_STEP,
							 .count = 1,
							 .layer = layer,
							 .flags = ABI_STEP_STREAM},
				      &rec, sizeof(rec));
		for (uint32_t layer = 0; layer < fixture_shape.n_layers; layer++) {
			pause_us(200);
			atomic_store(&d->c.lane->ready, first + layer);
			client_wait(&d->c, first + layer);
		}
	}
	return NULL;
}

static void compute_shared(struct client *c)
{
	uint32_t ids[SHARED];
	struct store_match match;
	uint64_t seq;

	for (uint32_t i = 0; i < SHARED; i++)
		ids[i] = i;
	assert_int_equal(client_open(c, ids, SHARED, &seq, &match), 0);
	client_compute(c, seq, ids, SHARED);
	assert_int_equal(client_close(c, seq), 0);
}

static void open_on_shared(struct decoder *d)
{
	uint32_t ids[SHARED + 1];
	struct store_match match;

	for (uint32_t i = 0; i <= SHARED; i++)
		ids[i] = i;
	assert_int_equal(client_open(&d->c, ids, SHARED + 1, &d->seq, &match), 0);
	assert_int_equal(match.cached, SHARED);
}

/* A step counts as come when its inputs are there: who published it early waits for the others as
 * everybody does. */
static void streams_come_to_keep_pace(void **state)
{
	struct harness h;
	struct decoder decoders[3] = {0};
	struct sched_status before, after;
	pthread_t threads[3];

	(void)state;
	harness_init(&h);
	h.config.batch_window = CONFIG_WINDOW_ALWAYS;
	h.config.batch_window_max_us = 20000;
	harness_start(&h);
	for (uint32_t i = 0; i < 3; i++) {
		client_start(&decoders[i].c, &h, 1000, &fixture_shape, 1 << 20);
		decoders[i].late_us = 700 * i;
		if (i == 0)
			compute_shared(&decoders[i].c);
		open_on_shared(&decoders[i]);
	}
	before = harness_status(&h);
	for (uint32_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, decode_on_stream, &decoders[i]);
	for (uint32_t i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	after = harness_status(&h);
	/* Alone it would be 1; a sanitizer or a busy machine may part them now and then. */
	assert_true((double)(after.decode_sessions - before.decode_sessions) >=
		    2.0 * (double)(after.decode_jobs - before.decode_jobs));
	for (uint32_t i = 0; i < 3; i++)
		client_end(&decoders[i].c);
	harness_stop(&h);
}

/* A stream that does not come is looked at a thousand times a second, not for ever. */
static void looks_at_an_awaited_step_become_rare(void **state)
{
	struct fixture *f = *state;
	uint64_t before, ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, ABI_STEP_STREAM, 0);
	sleep_ms(100);
	before = sched_progress(f->h.sched);
	sleep_ms(500);
	assert_in_range(sched_progress(f->h.sched) - before, 1, 1500);
	set_ready(f, ticket); /* and no doorbell */
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
}

#define STEPPED(name) cmocka_unit_test_setup_teardown(name, fixture_setup_stepped, fixture_teardown)
#define THREADED(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STEPPED(a_streamed_step_runs_once_its_ticket_is_ready),
		STEPPED(layers_may_be_queued_ahead),
		STEPPED(a_step_without_the_flag_does_not_look_at_ready),
		STEPPED(a_refused_streamed_step_ends_at_once),
		STEPPED(an_awaited_step_holds_up_its_own_lane_alone),
		STEPPED(whatever_ready_holds_harms_nobody_else),
		STEPPED(a_word_is_taken_back_and_answered),
		STEPPED(a_refused_step_with_a_word_awaits_it),
		STEPPED(a_step_that_is_cancelled_awaits_its_word_too),
		STEPPED(a_sequence_that_is_not_in_the_step_goes_without_it),
		STEPPED(an_arena_that_goes_cancels_an_awaited_step),
		STEPPED(flags_and_words_that_are_not_are_refused),
		STEPPED(a_session_that_ends_lets_its_streams_go),
		THREADED(the_thousandth_replay_is_as_right_as_the_first),
		cmocka_unit_test(streams_come_to_keep_pace),
		THREADED(looks_at_an_awaited_step_become_rare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
