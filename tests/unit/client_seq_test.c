/*
 * client_seq_test.c - libcoppice's sequences against a coppiced of its own for each test: how long
 * they are, several opened at once, and waits that do not block. argv[1] is the daemon's program.
 */
#include "client_fixture.h"
#include "client/lib/connection/connection.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_length(struct coppice_seq *seq, uint32_t n_tokens, uint32_t n_live)
{
	uint32_t tokens, live;

	assert_int_equal(coppice_seq_length(seq, &tokens), 0);
	assert_int_equal(coppice_seq_live(seq, &live), 0);
	assert_int_equal(tokens, n_tokens);
	assert_int_equal(live, n_live);
}

/* Of the fixture's model of one layer: all the live tokens' rows. */
static int step_all(struct fixture *f, struct coppice_seq *seq, uint32_t n)
{
	struct coppice_step_seq part = client_part_of(f, seq, n);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	return coppice_wait(f->lane, ticket, COPPICE_FOREVER);
}

static void await(struct fixture *f, uint64_t ticket)
{
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
}

static void a_sequence_grows_by_what_is_computed(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 8);
	uint64_t ticket;

	assert_length(seq, 0, 0);
	assert_int_equal(coppice_seq_extend(seq, f->ids, 8, &ticket), 0);
	await(f, ticket);
	assert_length(seq, 0, 8);
	assert_int_equal(step_all(f, seq, 8), 0);
	assert_length(seq, 8, 0);
	assert_int_equal(coppice_seq_trim(seq, 5, &ticket), 0);
	await(f, ticket);
	assert_length(seq, 5, 0);
	coppice_seq_close(seq);
}

static void a_draft_counts_once_it_is_accepted(void **state)
{
	static const uint32_t indices[] = {0, 1};
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	uint64_t ticket;

	assert_int_equal(coppice_seq_draft(seq, f->ids, NULL, 4, NULL), 0);
	assert_int_equal(step_all(f, seq, 4), 0);
	assert_length(seq, 0, 4);
	assert_int_equal(coppice_seq_accept(seq, indices, 2, &ticket), 0);
	await(f, ticket);
	assert_length(seq, 2, 0);
	coppice_seq_close(seq);
}

static void a_failed_step_leaves_the_length_to_trim_to(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 8);
	struct coppice_step_seq part = client_part_of(f, seq, 4);
	struct coppice_step step = {.layer = 7, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(seq, f->ids, 3, NULL), 0);
	assert_int_equal(step_all(f, seq, 3), 0);
	assert_int_equal(coppice_seq_extend(seq, f->ids + 3, 4, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), -EINVAL);
	assert_length(seq, 3, 0);
	assert_int_equal(coppice_seq_trim(seq, 3, NULL), 0);
	assert_int_equal(coppice_seq_extend(seq, f->ids + 3, 4, NULL), 0);
	assert_int_equal(step_all(f, seq, 4), 0);
	assert_length(seq, 7, 0);
	coppice_seq_close(seq);
}

/* ---- what the daemon cannot take at the moment ---- */

#define REQUESTS_MAX 64u /* of a session at a time */

/* Waits for what nobody computes: so long the daemon takes no further request. */
static void fill_requests(struct fixture *f, struct coppice_seq **ret, uint64_t for_ns)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		ret[i] = client_open_seq(f, f->lane, 8);
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		assert_int_equal(coppice_seq_wait_async(ret[i], for_ns), 0);
}

static void end_requests(struct coppice_seq **seqs)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		int r;

		while ((r = coppice_seq_wait_poll(seqs[i], NULL)) == -EAGAIN)
			usleep(1000);
		assert_int_equal(r, -ETIMEDOUT);
		coppice_seq_close(seqs[i]);
	}
}

static void a_prompt_that_the_daemon_cannot_take_yet_is_asked_again(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seqs[REQUESTS_MAX], *claimant = client_open_seq(f, f->lane, 8), *seq;
	uint64_t begin_ns = clock_now_ns();

	fill_requests(f, seqs, 300 * MS);
	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 4, 1, &seq, NULL), 0);
	assert_true(clock_now_ns() - begin_ns >= 200 * MS);
	end_requests(seqs);
	coppice_seq_close(seq);
	coppice_seq_close(claimant);
}

static void a_prompt_that_the_daemon_cannot_take_is_refused_after_a_second(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seqs[REQUESTS_MAX], *seq;
	uint64_t begin_ns;

	client_open_seq(f, f->lane, 8);
	fill_requests(f, seqs, COPPICE_FOREVER);
	begin_ns = clock_now_ns();
	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 4, 1, &seq, NULL), -EBUSY);
	assert_true(clock_now_ns() - begin_ns >= 900 * MS);
	assert_explained(f, "64 requests");
}

struct opener {
	struct fixture *f;
	struct coppice_lane *lane;
	uint64_t ended_ns;
	int r;
};

static void *open_while_busy(void *arg)
{
	struct opener *o = arg;
	struct coppice_seq *seq;

	o->r = coppice_seq_open(o->lane, o->f->model, o->f->ids, 4, 1, &seq, NULL);
	o->ended_ns = clock_now_ns();
	return NULL;
}

/* The later of two has its second behind that of the other, however much later it came. */
static void a_prompt_has_its_second_behind_one_that_is_asked_again(void **state)
{
	struct fixture *f = *state;
	struct opener a = {f, f->lane, 0, 0}, b = {.f = f};
	struct coppice_seq *seqs[REQUESTS_MAX];
	pthread_t thread;
	uint64_t begin_ns;

	assert_int_equal(coppice_lane_new(f->c, &b.lane), 0);
	client_open_seq(f, f->lane, 8);
	fill_requests(f, seqs, COPPICE_FOREVER);
	begin_ns = clock_now_ns();
	assert_int_equal(pthread_create(&thread, NULL, open_while_busy, &b), 0);
	open_while_busy(&a);
	pthread_join(thread, NULL);
	assert_int_equal(a.r, -EBUSY);
	assert_int_equal(b.r, -EBUSY);
	assert_true(a.ended_ns - begin_ns >= 1800 * MS || b.ended_ns - begin_ns >= 1800 * MS);
}

/* ---- many at once ---- */

#define N_MANY 100u /* more than are on their way together */
#define MANY_TOKENS 20u

/* Every second prompt is that of the one before it. */
static void make_prompts(struct fixture *f, struct coppice_prompt *ret)
{
	for (uint32_t i = 0; i < N_MANY; i++)
		ret[i] = (struct coppice_prompt){
			.model = f->model,
			.tokens = f->ids + i / 2 * MANY_TOKENS,
			.n_tokens = MANY_TOKENS,
			.salt = 5,
		};
}

static void many_are_opened_in_their_order(void **state)
{
	struct fixture *f = *state;
	struct coppice_prompt prompts[N_MANY];
	struct coppice_seq *seqs[N_MANY];
	struct coppice_match matches[N_MANY];

	make_prompts(f, prompts);
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, N_MANY, seqs, matches), 0);
	for (uint32_t i = 0; i < N_MANY; i++) {
		assert_int_equal(matches[i].cached, 0);
		assert_int_equal(matches[i].claimed, i % 2 == 0);
		assert_int_equal(matches[i].pending, i % 2 ? MANY_TOKENS - 1 : 0);
	}
	for (uint32_t i = 0; i < N_MANY; i += 2) {
		assert_int_equal(coppice_seq_extend(seqs[i], prompts[i].tokens, MANY_TOKENS, NULL),
				 0);
		assert_int_equal(step_all(f, seqs[i], MANY_TOKENS), 0);
	}
	for (uint32_t i = 1; i < N_MANY; i += 2) {
		assert_int_equal(coppice_seq_wait(seqs[i], COPPICE_SECONDS(20), &matches[i]), 0);
		assert_int_equal(matches[i].cached, MANY_TOKENS - 1);
	}
	for (uint32_t i = 0; i < N_MANY; i++)
		coppice_seq_close(seqs[i]);
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, 0, NULL, NULL), 0);
}

/* Together they have more ids than are sent at once, and one alone has as many. */
static void many_long_prompts_are_opened(void **state)
{
	struct fixture *f = *state;
	struct coppice_prompt prompts[N_MANY];
	struct coppice_seq *seqs[N_MANY];

	for (uint32_t i = 0; i < N_MANY; i++)
		prompts[i] = (struct coppice_prompt){
			.model = f->model,
			.tokens = f->ids,
			.n_tokens = CLIENT_IDS,
			.salt = i,
		};
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, N_MANY, seqs, NULL), 0);
	for (uint32_t i = 0; i < N_MANY; i++)
		coppice_seq_close(seqs[i]);
}

static uint32_t count_seqs(struct fixture *f)
{
	struct coppice_stats stats = {.size = sizeof(stats)};

	assert_int_equal(coppice_stats(f->c, &stats), 0);
	return stats.n_seqs;
}

/* The daemon takes prompts of 1,048,576 tokens at most, the library any. */
static void all_are_opened_or_none(void **state)
{
	static uint32_t too_many[1100000];
	struct fixture *f = *state;
	struct coppice_prompt prompts[N_MANY];
	struct coppice_seq *seqs[N_MANY] = {NULL};

	make_prompts(f, prompts);
	prompts[50].tokens = too_many;
	prompts[50].n_tokens = sizeof(too_many) / sizeof(*too_many);
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, N_MANY, seqs, NULL), -E2BIG);
	assert_explained(f, "coppice_seq_open_many: ");
	assert_explained(f, "1100000 tokens is too long");
	assert_explained(f, "(prompt 50 of 100)");
	assert_int_equal(count_seqs(f), 0);
	for (uint32_t i = 0; i < N_MANY; i++)
		assert_null(seqs[i]);
}

static void prompts_that_make_no_sense_are_named(void **state)
{
	struct fixture *f = *state;
	struct coppice_prompt prompts[N_MANY];
	struct coppice_seq *seqs[N_MANY];

	make_prompts(f, prompts);
	prompts[3].n_tokens = 0;
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, N_MANY, seqs, NULL), -EINVAL);
	assert_explained(f, "there are no tokens; a prompt has at least one (prompt 3 of 100)");
	make_prompts(f, prompts);
	prompts[99].model = 77;
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, N_MANY, seqs, NULL), -EINVAL);
	assert_explained(f, "(prompt 99 of 100)");
	make_prompts(f, prompts);
	prompts[0].reserved[1] = 1;
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, N_MANY, seqs, NULL), -EINVAL);
	assert_explained(f, "a reserved word is not 0");
	assert_int_equal(count_seqs(f), 0);
}

/* ---- waits that do not block ---- */

static int readable(int fd, int timeout_ms)
{
	return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, timeout_ms);
}

/* Until the answer is there; sleeps on the descriptor meanwhile. */
static int await_answer(struct fixture *f, struct coppice_seq *seq, struct coppice_match *ret)
{
	int fd = coppice_fd(f->c);
	int r;

	assert_true(fd >= 0);
	while ((r = coppice_seq_wait_poll(seq, ret)) == -EAGAIN)
		assert_int_equal(readable(fd, 20000), 1);
	return r;
}

static void an_answer_is_polled_for(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 100);
	struct coppice_seq *second = client_open_seq(f, f->lane, 100);
	struct coppice_match match;

	assert_int_equal(coppice_seq_wait_poll(second, &match), -EINVAL);
	assert_explained(f, "was not asked about");
	assert_int_equal(coppice_seq_wait_async(second, COPPICE_SECONDS(20)), 0);
	assert_int_equal(coppice_seq_wait_async(second, COPPICE_SECONDS(20)), -EBUSY);
	assert_explained(f, "asked about already");
	assert_int_equal(coppice_seq_extend(second, f->ids, 100, NULL), -EBUSY);
	assert_explained(f, "more of it may be cached by now; take the answer");
	assert_int_equal(coppice_seq_wait_poll(second, &match), -EAGAIN);
	assert_int_equal(readable(coppice_fd(f->c), 30), 0);
	assert_int_equal(coppice_seq_extend(first, f->ids, 100, NULL), 0);
	assert_int_equal(step_all(f, first, 100), 0);
	assert_int_equal(await_answer(f, second, &match), 0);
	assert_int_equal(match.cached, 99);
	assert_int_equal(match.pending, 0);
	assert_int_equal(readable(coppice_fd(f->c), 0), 0);
	assert_int_equal(coppice_seq_wait_poll(second, &match), -EINVAL);
	coppice_seq_close(first);
	coppice_seq_close(second);
}

/* The daemon stands still for longer than it may. */
static void wait_in_vain(struct fixture *f, struct coppice_seq *seq)
{
	struct coppice_match match;

	daemon_pause(f);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), -ETIMEDOUT);
	assert_explained(f, "the daemon has not answered in time");
	assert_int_equal(coppice_seq_extend(seq, f->ids, 8, NULL), -EBUSY);
	assert_int_equal(coppice_seq_wait_async(seq, 0), -EBUSY);
	assert_int_equal(coppice_seq_wait_poll(seq, &match), -EAGAIN);
	kill(f->daemon, SIGCONT);
}

/* What it says may be more than what is known: no tokens go behind that. */
static void an_answer_that_is_late_is_waited_for(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 8);
	struct coppice_seq *second = client_open_seq(f, f->lane, 8);
	struct coppice_match match;

	assert_non_null(first);
	wait_in_vain(f, second);
	assert_int_equal(await_answer(f, second, &match), -ETIMEDOUT);
	assert_int_equal(match.pending, 7);
	wait_in_vain(f, second);
	assert_int_equal(coppice_seq_wait(second, 0, &match), -ETIMEDOUT);
	assert_int_equal(match.pending, 7);
	assert_int_equal(coppice_seq_wait_poll(second, &match), -EINVAL);
	wait_in_vain(f, second); /* who has time is not told that it was up before */
	assert_int_equal(coppice_seq_extend(first, f->ids, 8, NULL), 0);
	assert_int_equal(step_all(f, first, 8), 0);
	assert_int_equal(coppice_seq_wait(second, COPPICE_SECONDS(20), &match), 0);
	assert_int_equal(match.cached, 7);
	assert_int_equal(coppice_seq_extend(second, f->ids + 7, 1, NULL), 0);
	coppice_seq_close(first);
	coppice_seq_close(second);
}

/* The answer comes while somebody waits for another one, and reads it: the descriptor tells. */
static void an_answer_that_another_call_has_read_is_told_of(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 100);
	struct coppice_seq *second = client_open_seq(f, f->lane, 100);
	struct coppice_match match;
	int fd = coppice_fd(f->c);

	assert_int_equal(coppice_seq_wait_async(second, 0), 0);
	assert_int_equal(readable(fd, 20000), 1);
	assert_int_equal(count_seqs(f), 2); /* reads both answers */
	assert_int_equal(readable(fd, 0), 1);
	assert_int_equal(coppice_seq_wait_poll(second, &match), -ETIMEDOUT);
	assert_int_equal(match.pending, 99);
	assert_int_equal(readable(fd, 0), 0);
	coppice_seq_close(first);
	coppice_seq_close(second);
}

/* So does a descriptor that is asked for when the answer has been read. */
static void a_descriptor_comes_with_what_is_there(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 100);
	struct coppice_seq *second = client_open_seq(f, f->lane, 100);
	struct coppice_match match;

	assert_int_equal(coppice_seq_wait_async(second, 0), 0);
	assert_int_equal(readable(f->c->socket, 20000), 1);
	assert_int_equal(count_seqs(f), 2);
	assert_int_equal(readable(coppice_fd(f->c), 0), 1);
	assert_int_equal(coppice_seq_wait_poll(second, &match), -ETIMEDOUT);
	assert_int_equal(readable(coppice_fd(f->c), 0), 0);
	coppice_seq_close(first);
	coppice_seq_close(second);
}

static void a_question_goes_with_its_sequence(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 100);

	for (int i = 0; i < 100; i++) {
		struct coppice_seq *second = client_open_seq(f, f->lane, 100);

		assert_int_equal(coppice_seq_wait_async(second, i % 2 ? 0 : COPPICE_FOREVER), 0);
		if (i % 3 == 0)
			assert_int_equal(count_seqs(f), 2);
		coppice_seq_close(second);
	}
	assert_int_equal(count_seqs(f), 1);
	assert_int_equal(readable(coppice_fd(f->c), 0), 0);
	coppice_seq_close(first);
}

static void the_daemons_end_answers_a_question(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 100);
	struct coppice_seq *second = client_open_seq(f, f->lane, 100);
	struct coppice_match match;

	(void)first;
	assert_int_equal(coppice_seq_wait_async(second, COPPICE_FOREVER), 0);
	assert_int_equal(coppice_seq_wait_poll(second, &match), -EAGAIN);
	assert_true(coppice_fd(f->c) >= 0);
	daemon_stop(f);
	assert_int_equal(await_answer(f, second, &match), -ECONNRESET);
	assert_explained(f, "the daemon is gone");
}

#define N_ASKING 4

struct asking {
	struct fixture *f;
	uint64_t salt;
	unsigned bad;
};

/* Each has a lane and a question of its own, and all sleep on the one descriptor. */
static void *ask_again_and_again(void *arg)
{
	struct asking *a = arg;
	struct coppice *c = a->f->c;
	struct coppice_lane *lane = NULL;

	a->bad += coppice_lane_new(c, &lane) != 0;
	for (int i = 0; lane && i < 30; i++) {
		struct coppice_seq *seqs[2];
		struct coppice_match match;
		const struct coppice_prompt prompt = {a->f->model, 50, a->f->ids, a->salt};
		const struct coppice_prompt prompts[2] = {prompt, prompt};
		int r = coppice_seq_open_many(lane, prompts, 2, seqs, NULL);

		a->bad += r != 0 || coppice_seq_wait_async(seqs[1], COPPICE_SECONDS(20)) != 0;
		if (a->bad)
			break;
		coppice_seq_close(seqs[0]); /* its claim passes to the other */
		while ((r = coppice_seq_wait_poll(seqs[1], &match)) == -EAGAIN)
			a->bad += readable(coppice_fd(c), 20000) != 1;
		a->bad += r != 0 || match.pending != 0;
		coppice_seq_close(seqs[1]);
	}
	coppice_lane_free(lane);
	return NULL;
}

static void threads_ask_over_one_connection(void **state)
{
	struct fixture *f = *state;
	struct asking asking[N_ASKING];
	pthread_t threads[N_ASKING];

	for (unsigned i = 0; i < N_ASKING; i++) {
		asking[i] = (struct asking){.f = f, .salt = 100 + i};
		assert_int_equal(pthread_create(&threads[i], NULL, ask_again_and_again, &asking[i]),
				 0);
	}
	for (unsigned i = 0; i < N_ASKING; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(asking[i].bad, 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_setup, client_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_sequence_grows_by_what_is_computed),
		TEST(a_draft_counts_once_it_is_accepted),
		TEST(a_failed_step_leaves_the_length_to_trim_to),
		TEST(a_prompt_that_the_daemon_cannot_take_yet_is_asked_again),
		TEST(a_prompt_that_the_daemon_cannot_take_is_refused_after_a_second),
		TEST(a_prompt_has_its_second_behind_one_that_is_asked_again),
		TEST(many_are_opened_in_their_order),
		TEST(many_long_prompts_are_opened),
		TEST(all_are_opened_or_none),
		TEST(prompts_that_make_no_sense_are_named),
		TEST(an_answer_is_polled_for),
		TEST(an_answer_that_is_late_is_waited_for),
		TEST(an_answer_that_another_call_has_read_is_told_of),
		TEST(a_descriptor_comes_with_what_is_there),
		TEST(a_question_goes_with_its_sequence),
		TEST(the_daemons_end_answers_a_question),
		TEST(threads_ask_over_one_connection),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return 2;
	}
	client_daemon = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
