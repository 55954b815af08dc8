/*
 * evict_turns_test.c - the verb evict, turn by turn: it ends when nothing idle is left, whatever a
 * turn has freed and whatever happens between two.
 *
 * Each stem of two tokens has two branches of one. The first lies in the stem's page, the other in
 * a page of its own. All first ones are older than all others: those that go in the first turn free
 * no page.
 */
#include "sched_fixture.h"

#include "daemon/control/evict.h"
#include "daemon/control/pins.h"
#include "daemon/control/verbs.h"
#include "daemon/session/reply.h"
#include "daemon/session/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define N_STEMS 150u /* a turn takes fewer branches */
#define STEM_TOKENS 2u
#define PATH_TOKENS (STEM_TOKENS + 1)

/* All of the path is there then. */
static uint64_t open_path(struct client *c, uint32_t stem, uint32_t branch)
{
	uint32_t ids[PATH_TOKENS] = {stem, stem, branch};
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(c, ids, PATH_TOKENS, &seq, &match), 0);
	if (match.cached < PATH_TOKENS)
		client_compute(c, seq, ids + match.cached, PATH_TOKENS - match.cached);
	return seq;
}

static void leave_branches(struct fixture *f, uint32_t branch)
{
	for (uint32_t stem = 0; stem < N_STEMS; stem++)
		assert_int_equal(client_close(&f->c, open_path(&f->c, stem, branch)), 0);
}

/* Nobody uses them, and each has two pages. The first branch is as old as the second, which parts
 * from it, until that is used again. */
static void leave_stems(struct fixture *f)
{
	leave_branches(f, 0);
	leave_branches(f, 1);
	leave_branches(f, 1);
	assert_int_equal(harness_status(&f->h).store.n_pages, 2 * N_STEMS);
}

static void turn(struct fixture *f, struct evict_call *call)
{
	struct sched_request rq = {.serve = verb_evict.serve, .room = call};

	assert_int_equal(harness_call(&f->h, &rq), 0);
	call->n_gone_in_all += call->n_gone;
}

/* The first turn, which frees nothing. */
static struct evict_call begin(struct fixture *f)
{
	struct evict_call call = {0};

	leave_stems(f);
	turn(f, &call);
	assert_int_equal(call.n_gone, 0);
	return call;
}

static void go_on(struct fixture *f, struct evict_call *call)
{
	while (call->more)
		turn(f, call);
}

static void pin_a_path(struct client *c)
{
	uint64_t seq = open_path(c, N_STEMS / 2, 1);
	struct pin_call call = {.what = seq, .for_ns = UINT64_C(3600000000000)};
	struct sched_request rq = {.serve = verb_seq_pin.serve,
				   .session = c->session,
				   .room = &call};

	assert_int_equal(harness_call(c->h, &rq), 0);
	assert_int_equal(client_close(c, seq), 0);
}

/* All turns of it, as the loop posts them: what is answered. */
static uint64_t evict(struct fixture *f, uint64_t n_pages)
{
	struct evict_call call = {.n_pages = n_pages};
	struct sessions home = {.config = &f->h.config};
	struct session session = {.home = &home, .state = SESSION_OPEN};
	struct request rq = {.session = &session,
			     .sched = {.serve = verb_evict.serve, .room = &call}};
	uint8_t packet[256];
	Coppice__Reply *reply;
	int ends[2];
	ssize_t bytes;
	uint64_t n;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	session.fd = ends[0];
	do {
		rq.again = false;
		assert_int_equal(harness_call(&f->h, &rq.sched), 0);
		verb_evict.answer(&rq);
	} while (rq.again);
	bytes = recv(ends[1], packet, sizeof(packet), MSG_DONTWAIT);
	assert_true(bytes > 0);
	reply = coppice__reply__unpack(NULL, (size_t)bytes, packet);
	assert_non_null(reply);
	assert_non_null(reply->evict);
	n = reply->evict->n_pages;
	coppice__reply__free_unpacked(reply, NULL);
	close(ends[0]);
	close(ends[1]);
	return n;
}

/* A part of them, in the last turn and in several. */
static void as_many_pages_go_as_are_wanted(void **state)
{
	struct fixture *f = *state;

	leave_stems(f);
	assert_int_equal(evict(f, 1), 1);
	assert_int_equal(harness_status(&f->h).store.n_pages, 2 * N_STEMS - 1);
	assert_int_equal(evict(f, 100), 100);
	assert_int_equal(harness_status(&f->h).store.n_pages, 2 * N_STEMS - 101);
	assert_int_equal(evict(f, 0), 2 * N_STEMS - 101);
	assert_int_equal(harness_status(&f->h).store.n_pages, 0);
	assert_int_equal(evict(f, 1), 0);
}

static void a_turn_that_frees_no_page_is_not_the_last(void **state)
{
	struct fixture *f = *state;
	struct evict_call call = begin(f);
	struct sched_status end;

	go_on(f, &call);
	end = harness_status(&f->h);
	assert_int_equal(call.n_gone_in_all, 2 * N_STEMS);
	assert_int_equal(end.store.n_pages + end.store.n_nodes, 0);
}

static void what_is_pinned_between_two_turns_stays(void **state)
{
	struct fixture *f = *state;
	struct evict_call call = begin(f);

	pin_a_path(&f->c);
	go_on(f, &call);
	assert_int_equal(call.n_gone_in_all, 2 * N_STEMS - 2);
	assert_int_equal(harness_status(&f->h).store.n_pages, 2);
	assert_int_equal(harness_status(&f->h).store.n_pins, 1);
}

static void pins_end_when_nothing_idle_is_left(void **state)
{
	struct fixture *f = *state;
	struct evict_call call = {.pinned = true};

	leave_stems(f);
	pin_a_path(&f->c);
	for (turn(f, &call); harness_status(&f->h).store.n_pages > 2; turn(f, &call))
		assert_int_equal(call.n_pins, 0);
	go_on(f, &call);
	assert_int_equal(call.n_pins, 1);
	assert_int_equal(harness_status(&f->h).store.n_pages, 0);
}

/* Its turn of the backend comes before the next turn of the verb. */
static void what_a_step_uses_between_two_turns_stays(void **state)
{
	struct fixture *f = *state;
	struct evict_call call = begin(f);
	uint64_t ticket = 0;

	fixture_extend(f);
	for (uint32_t layer = 0; layer < fixture_shape.n_layers; layer++)
		ticket = fixture_submit_step(f, layer, 0, 0);
	go_on(f, &call);
	assert_ends(client_wait(&f->c, ticket), 0, ABI_OK);
	assert_int_equal(call.n_gone_in_all, 2 * N_STEMS);
	assert_int_equal(harness_status(&f->h).store.n_pages, 1);
	assert_int_equal(client_close(&f->c, f->seq), 0);
	call = (struct evict_call){.more = true};
	go_on(f, &call);
	assert_int_equal(call.n_gone_in_all, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup_stepped, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(as_many_pages_go_as_are_wanted),
		TEST(a_turn_that_frees_no_page_is_not_the_last),
		TEST(what_is_pinned_between_two_turns_stays),
		TEST(pins_end_when_nothing_idle_is_left),
		TEST(what_a_step_uses_between_two_turns_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
