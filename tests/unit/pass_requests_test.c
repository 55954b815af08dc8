/*
 * pass_requests_test.c - requests while a pass is under way, which others' layers may make long:
 * those that touch nothing of it are served, between its segments or at any time, and the others
 * find it finished.
 */
#include "naive.h"
#include "school_layers.h"

#include "daemon/control/arenas.h"
#include "daemon/control/evict.h"
#include "daemon/control/lanes.h"
#include "daemon/control/models.h"
#include "daemon/control/seqs.h"
#include "daemon/control/verbs.h"
#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/sessions.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of the pass little is done. */
static void go_to_first_segments(struct school *s, struct other *o)
{
	const struct passes *p = &s->h.sched->passes;

	while (!p->now->under_way || world.next == 0 || world.next > N_LAYERS / 4)
		go_until(s, o, world.now_ns + ROUND_NS);
}

static struct sched_request request_of(const struct verb *verb, const struct pupil *p, void *room)
{
	return (struct sched_request){.serve = verb->serve,
				      .slow = verb->slow,
				      .beside = verb->beside,
				      .session = p->c.session,
				      .privileged = true,
				      .room = room};
}

static struct sched_request *next_answer(struct school *s, struct other *o)
{
	struct sched_request *rq;

	while (!(rq = sched_reap(s->h.sched)))
		go_until(s, o, world.now_ns + ROUND_NS);
	return rq;
}

/* Before the pass that has just begun ends. */
static void is_served_beside(struct school *s, struct other *o, struct sched_request *rq)
{
	uint32_t n_passes;

	go_to_first_segments(s, o);
	n_passes = world.n_passes;
	sched_post(s->h.sched, rq);
	assert_ptr_equal(next_answer(s, o), rq);
	assert_int_equal(rq->code, 0);
	assert_int_equal(world.n_passes, n_passes);
	assert_true(s->h.sched->passes.now->under_way);
}

static void who_is_not_in_the_pass_is_served_between_segments(void **state)
{
	struct school *s = school_of_layers(2);
	struct pupil *p = &s->pupils[1];
	struct evict_call evict = {0};
	struct lane_call lane = {.lane = 1};
	struct sched_status status;
	struct sched_request rq;
	struct other other;

	(void)state;
	p->again = 0;
	other_join(&other, s, 2);
	rq = request_of(&verb_status, p, &status);
	is_served_beside(s, &other, &rq);
	rq = request_of(&verb_seq_close, p, &p->seq);
	is_served_beside(s, &other, &rq);
	rq = request_of(&verb_evict, p, &evict);
	is_served_beside(s, &other, &rq);
	rq = request_of(&verb_lane_free, p, &lane);
	is_served_beside(s, &other, &rq);
	other_end(&other);
	school_free(s);
}

static void a_session_ends_between_segments_of_others(void **state)
{
	struct school *s = school_of_layers(2);
	struct session_end_call end = {0};
	struct sched_request rq = {.serve = sched_session_end,
				   .beside = beside_segments_of_others,
				   .session = s->pupils[1].c.session,
				   .room = &end};
	struct other other;

	(void)state;
	s->pupils[1].again = 0;
	other_join(&other, s, 2);
	is_served_beside(s, &other, &rq);
	assert_false(end.more);
	client_unmap(&s->pupils[1].c);
	s->n = 1;
	other_end(&other);
	school_free(s);
}

/* What is of the pass waits for its end, and others of the same user do not wait for that. */
static void who_is_in_the_pass_is_served_behind_it(void **state)
{
	struct school *s = school_of_layers(2);
	struct pupil *p = &s->pupils[0];
	struct sched_request close = request_of(&verb_seq_close, p, &p->seq), status;
	struct sched_status room;
	struct other other;

	(void)state;
	p->again = s->pupils[1].again = 0;
	other_join(&other, s, 2);
	go_until(s, &other, world.now_ns + (uint64_t)(50 * MS));
	ask(p, N_ROWS);
	go_to_first_segments(s, &other);
	sched_post(s->h.sched, &close);
	status = request_of(&verb_status, &s->pupils[1], &room);
	is_served_beside(s, &other, &status);
	assert_ptr_equal(next_answer(s, &other), &close);
	assert_int_equal(close.code, 0);
	assert_true(has(p));
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(end_of(p).value, N_ROWS);
	other_end(&other);
	school_free(s);
}

/* What it asks for takes nothing of the pass: an arena that its entry does not write to may go. */
static void who_is_in_the_pass_is_served_beside_it_where_that_has_no_part(void **state)
{
	static uint8_t memory[4096];
	struct school *s = school_of_layers(1);
	struct pupil *p = &s->pupils[0];
	struct arena_call arena = {.arena = 2, .base = memory, .bytes = sizeof(memory)};
	struct evict_call evict = {0};
	struct sched_request rq;
	struct other other;
	uint32_t n_passes;

	(void)state;
	other_join(&other, s, 2);
	rq = request_of(&verb_evict, p, &evict);
	is_served_beside(s, &other, &rq);
	rq = request_of(&verb_arena_seal, p, &arena);
	is_served_beside(s, &other, &rq);
	rq = request_of(&verb_arena_free, p, &arena);
	is_served_beside(s, &other, &rq);
	arena = (struct arena_call){.arena = 1};
	rq = request_of(&verb_arena_free, p, &arena);
	go_to_first_segments(s, &other);
	n_passes = world.n_passes;
	p->again = 0;
	sched_post(s->h.sched, &rq);
	assert_ptr_equal(next_answer(s, &other), &rq);
	assert_true(has(p));
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(world.n_passes, n_passes);
	other_end(&other);
	school_free(s);
}

/* A length may be asked at any time, but not before what its session has asked for. */
static void a_session_is_served_in_order(void **state)
{
	struct school *s = school_of_layers(1);
	struct pupil *p = &s->pupils[0];
	struct sched_request close = request_of(&verb_seq_close, p, &p->seq), length;
	struct seq_length_call room = {.seq = p->seq};
	struct other other;

	(void)state;
	p->again = 0;
	other_join(&other, s, 2);
	go_until(s, &other, world.now_ns + (uint64_t)(50 * MS));
	ask(p, N_ROWS);
	go_to_first_segments(s, &other);
	length = request_of(&verb_seq_length, p, &room);
	sched_post(s->h.sched, &close);
	sched_post(s->h.sched, &length);
	assert_ptr_equal(next_answer(s, &other), &close);
	assert_ptr_equal(next_answer(s, &other), &length);
	assert_int_equal(length.code, -ESTALE);
	other_end(&other);
	school_free(s);
}

/* No time passes. */
static void sequences_that_are_not_in_the_pass_close_in_the_middle_of_it(void **state)
{
	struct school *s = school_of_layers(1);
	struct pupil *p = &s->pupils[0];
	struct store_match match;
	uint32_t id = 5;
	uint64_t seq;

	(void)state;
	while (!s->h.sched->passes.in_flight)
		go_until(s, NULL, world.now_ns + ROUND_NS);
	assert_int_equal(client_open(&p->c, &id, 1, &seq, &match), 0);
	assert_int_equal(client_close(&p->c, seq), 0);
	assert_int_equal(client_close(&p->c, seq), -ESTALE);
	assert_true(s->h.sched->passes.in_flight);
	assert_int_equal(p->c.session->n_seqs, 1);
	school_free(s);
}

static void go_into_a_pass(struct school *s)
{
	while (!s->h.sched->passes.in_flight)
		go_until(s, NULL, world.now_ns + ROUND_NS);
}

/* No time passes either: what who has just come needs first. */
static void memory_that_a_client_has_made_is_taken_in_the_middle_of_a_pass(void **state)
{
	static uint8_t memory[4096];
	struct school *s = school_of_layers(1);
	struct arena_call arena = {.arena = 2, .base = memory, .bytes = sizeof(memory)};
	struct sched_request rq = request_of(&verb_arena_seal, &s->pupils[0], &arena);

	(void)state;
	go_into_a_pass(s);
	sched_post(s->h.sched, &rq);
	sched_round(s->h.sched);
	assert_ptr_equal(sched_reap(s->h.sched), &rq);
	assert_int_equal(rq.code, 0);
	assert_true(s->h.sched->passes.in_flight);
	assert_int_equal(s->pupils[0].c.session->arenas[2].bytes, sizeof(memory));
	rq = request_of(&verb_arena_free, &s->pupils[0], &arena);
	sched_post(s->h.sched, &rq);
	assert_ptr_equal(next_answer(s, NULL), &rq);
	school_free(s);
}

/* ---- memory that a driver pins, a piece in a millisecond ---- */

#define PIECES 20u
#define FIRST_ADDRESS (UINT64_C(1) << 40)

static struct {
	uint32_t n, n_calls;
	uint32_t fails_at, is_elsewhere_at; /* of the calls; 0: none */
} pinned;

static int pin(struct backend *b, void *host, uint64_t bytes, uint64_t *ret_base)
{
	(void)b;
	assert_true(bytes <= SCHED_ARENA_PIECE);
	world.now_ns += (uint64_t)MS;
	pinned.n_calls++;
	if (pinned.n_calls == pinned.fails_at)
		return -ENOMEM;
	*ret_base = (uintptr_t)host + (pinned.n_calls == pinned.is_elsewhere_at);
	pinned.n++;
	return 0;
}

static void unpin(struct backend *b, uint64_t base, uint64_t bytes)
{
	(void)b;
	assert_true(base >= FIRST_ADDRESS && bytes <= SCHED_ARENA_PIECE);
	world.now_ns += (uint64_t)MS;
	pinned.n--;
}

static struct school *school_that_pins(void)
{
	struct school *s = school_of_layers(1);

	memset(&pinned, 0, sizeof(pinned));
	s->ops.arena_attach = pin;
	s->ops.arena_detach = unpin;
	return s;
}

/* The last piece is half of one. */
static struct arena_call large_arena(void)
{
	return (struct arena_call){.arena = 2,
				   .base = (void *)(uintptr_t)FIRST_ADDRESS,
				   .bytes = PIECES * SCHED_ARENA_PIECE - SCHED_ARENA_PIECE / 2};
}

/* Until the request is back. Returns in how many turns its pieces went, two in one at most. */
static uint32_t turns_of(struct school *s, struct sched_request *rq)
{
	const struct sched_session *session = rq->session;
	uint32_t n_turns = 0;

	sched_post(s->h.sched, rq);
	while (sched_reap(s->h.sched) != rq) {
		uint32_t before = pinned.n;

		assert_null(session_arena(&s->h.sched->core, session, 2));
		sched_round(s->h.sched);
		assert_true(pinned.n - before <= 2);
		n_turns += pinned.n > before;
		if (pinned.n == before)
			go_until(s, NULL, world.now_ns + ROUND_NS);
	}
	return n_turns;
}

static void memory_is_pinned_and_let_go_some_pieces_in_a_turn(void **state)
{
	struct school *s = school_that_pins();
	struct arena_call arena = large_arena();
	struct sched_request rq = request_of(&verb_arena_seal, &s->pupils[0], &arena);
	const struct sched_arena *made = &s->pupils[0].c.session->arenas[2];

	(void)state;
	assert_true(turns_of(s, &rq) >= PIECES / 2);
	assert_true(rq.code == 0 && pinned.n == PIECES);
	assert_true(made->number == 2 && made->base == FIRST_ADDRESS);
	assert_int_equal(made->bytes, arena.bytes);
	rq = request_of(&verb_arena_free, &s->pupils[0], &arena);
	sched_post(s->h.sched, &rq);
	for (uint32_t before = PIECES; sched_reap(s->h.sched) != &rq; before = pinned.n) {
		sched_round(s->h.sched);
		assert_true(before - pinned.n <= 2);
		if (before == pinned.n)
			go_until(s, NULL, world.now_ns + ROUND_NS);
	}
	assert_int_equal(pinned.n, 0);
	assert_int_equal(made->base, 0);
	school_free(s);
}

/* Another session of the same user does not wait for all of it; what is behind it does. */
static void sessions_of_a_user_are_served_between_the_pieces(void **state)
{
	struct school *s = school_that_pins();
	struct sched_session *session = s->pupils[0].c.session;
	struct arena_call arena = large_arena();
	struct sched_request seal = request_of(&verb_arena_seal, &s->pupils[0], &arena);
	struct sched_request probe = {.serve = sched_probe, .beside = beside_pass}, behind = probe;
	struct client friend;

	(void)state;
	world.instant = true;
	client_start(&friend, &s->h, session->user->domain, &naive_shape, 1 << 20);
	world.instant = false;
	behind.session = session;
	probe.session = friend.session;
	sched_post(s->h.sched, &seal);
	sched_post(s->h.sched, &probe);
	sched_post(s->h.sched, &behind);
	assert_ptr_equal(next_answer(s, NULL), &probe);
	assert_in_range(pinned.n, 1, PIECES / 2);
	assert_ptr_equal(next_answer(s, NULL), &seal);
	assert_ptr_equal(next_answer(s, NULL), &behind);
	world.instant = true;
	client_end(&friend);
	school_free(s);
}

static void memory_of_which_a_piece_cannot_be_pinned_is_let_go(void **state)
{
	(void)state;
	for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
		struct school *s = school_that_pins();
		struct arena_call arena = large_arena();
		struct sched_request rq = request_of(&verb_arena_seal, &s->pupils[0], &arena);

		*(elsewhere ? &pinned.is_elsewhere_at : &pinned.fails_at) = 5;
		sched_post(s->h.sched, &rq);
		assert_ptr_equal(next_answer(s, NULL), &rq);
		assert_int_equal(rq.code, elsewhere ? -ENOTSUP : -ENOMEM);
		assert_true(pinned.n_calls == 5 && pinned.n == 0);
		assert_int_equal(s->pupils[0].c.session->arenas[2].base, 0);
		school_free(s);
	}
}

/* The verb's room begins so. */
struct program_room {
	struct model_call model;
	struct held_program *program;
};

/* One that is being made ready waits for the pass. */
static void a_program_that_others_have_is_given_in_the_middle_of_a_pass(void **state)
{
	struct school *s = school_of_layers(1);
	struct pupil *p = &s->pupils[0];
	struct sched_model *model = p->c.session->models[p->c.model - 1];
	struct weights weights = {.domain = 1};
	struct program_room room = {.model = {.shape = model->shape, .program = model->program}};
	struct sched_request rq = request_of(&verb_program_new, p, &room);

	(void)state;
	strcpy(room.model.name, model->name);
	model->program->weights = &weights;
	go_into_a_pass(s);
	sched_post(s->h.sched, &rq);
	sched_round(s->h.sched);
	assert_null(sched_reap(s->h.sched));
	model->program->ready = true;
	sched_round(s->h.sched);
	assert_ptr_equal(sched_reap(s->h.sched), &rq);
	assert_int_equal(rq.code, 0);
	assert_int_equal(room.model.model, p->c.model);
	assert_true(s->h.sched->passes.in_flight);
	model->program->weights = NULL;
	school_free(s);
}

static uint32_t n_released, n_renewed;

/* A driver would wait for the pass. */
static void release_in_time(struct backend *b, uint32_t extent)
{
	assert_true(world.instant || world.now_ns >= world.end_ns);
	n_released++;
	backend_cpu.extent_release(b, extent);
}

static int renew(struct backend *b, uint32_t extent)
{
	n_renewed++;
	return backend_cpu.extent_renew(b, extent);
}

/* A session whose sequences take an extent each. */
#define LEAVING 4u
#define EXTENT_TOKENS 32768u

struct leaver {
	struct client c;
	uint64_t seqs[LEAVING];
};

static void take_extent(struct leaver *l, uint32_t i)
{
	static uint32_t ids[EXTENT_TOKENS];
	struct store_match match;

	ids[0]++;
	assert_int_equal(client_open(&l->c, ids, 1, &l->seqs[i], &match), 0);
	assert_int_equal(client_extend(&l->c, l->seqs[i], ids, EXTENT_TOKENS).status, 0);
}

/* It has all of them, and leaves them in a pass that has just begun; one stays as the model's. */
static void leave_in_a_pass(struct leaver *l, struct school *s)
{
	const struct work_shape shape = {.n_layers = 1,
					 .n_q_heads = 1,
					 .n_kv_heads = 1,
					 .head_dim = 16,
					 .page_tokens = 64,
					 .dtype = WORK_FP16};

	s->ops.extent_release = release_in_time;
	s->ops.extent_renew = renew;
	n_released = n_renewed = 0;
	world.instant = true;
	client_start(&l->c, &s->h, 2, &shape, ARENA_BYTES);
	for (uint32_t i = 0; i < LEAVING; i++)
		take_extent(l, i);
	world.instant = false;
	while (s->h.sched->passes.in_flight)
		go_until(s, NULL, world.now_ns + ROUND_NS);
	while (!s->h.sched->passes.in_flight)
		go_until(s, NULL, world.now_ns + ROUND_NS);
	for (uint32_t i = 0; i < LEAVING; i++)
		assert_int_equal(client_close(&l->c, l->seqs[i]), 0);
	assert_true(s->h.sched->passes.in_flight);
	assert_int_equal(n_released, 0);
	assert_int_equal(s->h.sched->n_leaving, LEAVING - 1);
}

static void leaver_end(struct leaver *l, struct school *s)
{
	world.instant = true;
	client_end(&l->c);
	school_free(s);
}

static void memory_that_is_left_in_a_pass_goes_behind_it(void **state)
{
	struct school *s = school_of_layers(1);
	struct leaver l;

	(void)state;
	leave_in_a_pass(&l, s);
	while (s->h.sched->passes.in_flight)
		go_until(s, NULL, world.now_ns + ROUND_NS);
	go_until(s, NULL, world.now_ns + ROUND_NS);
	assert_int_equal(n_released, LEAVING - 1);
	assert_int_equal(n_renewed, 0);
	leaver_end(&l, s);
}

/* No time passes: the driver is not asked for any of it. */
static void memory_that_is_left_in_a_pass_is_had_again_in_it(void **state)
{
	struct school *s = school_of_layers(1);
	struct leaver l;

	(void)state;
	leave_in_a_pass(&l, s);
	for (uint32_t i = 0; i < LEAVING - 1; i++)
		take_extent(&l, i);
	assert_true(s->h.sched->passes.in_flight);
	assert_int_equal(n_released, 0);
	assert_int_equal(n_renewed, LEAVING - 2);
	assert_int_equal(s->h.sched->n_leaving, 1);
	leaver_end(&l, s);
}

/* ---- who asks for room in a pass ------------------------------------------------------------- */

#define GIB (UINT64_C(1) << 30)

struct asker {
	pthread_t thread;
	struct ledger ledger;
	int r;
	atomic_bool done;
};

static void *ask_for_room(void *arg)
{
	struct ledger_wait wait = ledger_wait_for(NULL, NULL);
	struct asker *asker = arg;

	asker->r = ledger_ask_kv(&asker->ledger, 3 * GIB / 2, &wait);
	atomic_store(&asker->done, true);
	return NULL;
}

static void go_until_asked(struct asker *a)
{
	assert_int_equal(pthread_create(&a->thread, NULL, ask_for_room, a), 0);
	while (!ledger_is_asked(&a->ledger))
		sched_yield();
}

/* All that is there is used: nobody waits for a pass, or for copies, to hear it. */
static void that_nothing_can_go_is_said_at_once(void **state)
{
	struct school *s = school_of_layers(1);
	struct asker asker = {.ledger = {.max_bytes = 2 * GIB}};

	(void)state;
	sched_share_ledger(s->h.sched, &asker.ledger);
	assert_int_equal(ledger_take(&asker.ledger, LEDGER_WEIGHTS, GIB), 0);
	for (int in_flight = 1; in_flight >= 0; in_flight--) {
		while (s->h.sched->passes.in_flight != in_flight)
			go_until(s, NULL, world.now_ns + ROUND_NS);
		s->h.sched->tiers.busy = !in_flight;
		go_until_asked(&asker);
		sched_round(s->h.sched);
		assert_false(ledger_is_asked(&asker.ledger));
		assert_int_equal(pthread_join(asker.thread, NULL), 0);
		assert_int_equal(asker.r, -ENOSPC);
	}
	s->h.sched->tiers.busy = false;
	s->h.sched->core.ledger = NULL;
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_not_in_the_pass_is_served_between_segments),
		cmocka_unit_test(a_session_ends_between_segments_of_others),
		cmocka_unit_test(who_is_in_the_pass_is_served_behind_it),
		cmocka_unit_test(who_is_in_the_pass_is_served_beside_it_where_that_has_no_part),
		cmocka_unit_test(a_session_is_served_in_order),
		cmocka_unit_test(sequences_that_are_not_in_the_pass_close_in_the_middle_of_it),
		cmocka_unit_test(memory_that_a_client_has_made_is_taken_in_the_middle_of_a_pass),
		cmocka_unit_test(memory_is_pinned_and_let_go_some_pieces_in_a_turn),
		cmocka_unit_test(sessions_of_a_user_are_served_between_the_pieces),
		cmocka_unit_test(memory_of_which_a_piece_cannot_be_pinned_is_let_go),
		cmocka_unit_test(a_program_that_others_have_is_given_in_the_middle_of_a_pass),
		cmocka_unit_test(memory_that_is_left_in_a_pass_goes_behind_it),
		cmocka_unit_test(memory_that_is_left_in_a_pass_is_had_again_in_it),
		cmocka_unit_test(that_nothing_can_go_is_said_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
