/*
 * hostile_test.c - attacks by name: noise, silence, deaths at the worst moment. What a client does
 * with its memory is hostile_memory_test.c's. Beside each an honest client steps on (scene.h).
 */
#include "raw_lane.h"
#include "scene.h"

#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_DOORBELLS 1000000
#define N_KILLS 8

/* ---- noise ---------------------------------------------------------------------------------- */

static void a_million_doorbells_delay_nobody(void **state)
{
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);
	uint64_t most = UINT64_MAX - 2 - N_DOORBELLS;

	for (int i = 0; i < N_DOORBELLS; i++) {
		ring_doorbell(x.doorbell_fd);
		if (i % (N_DOORBELLS / 10) == 0)
			honest_step(&s.honest);
	}
	/* Full and blocking: who writes next sleeps, and the daemon must not be that one. */
	assert_int_equal(fcntl(x.doorbell_fd, F_SETFL, 0), 0);
	assert_int_equal(write(x.doorbell_fd, &most, sizeof(most)), sizeof(most));
	scene_steps_on(&s);
	raw_close(&x);
	scene_end(&s);
}

static void a_lane_that_is_always_full_delays_nobody(void **state)
{
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);

	for (int i = 0; i < 500; i++) {
		/* The daemon may keep up for ever. */
		for (uint32_t j = 0;
		     j < 2 * ABI_LANE_SLOTS && x.ticket - ring_done(x.lane) < ABI_LANE_SLOTS; j++)
			raw_submit(&x, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
		honest_step(&s.honest);
	}
	assert_true(s.honest.longest_ns < SCENE_BOUND_NS);
	raw_close(&x);
	scene_end(&s);
}

static void a_client_that_reads_no_reply_is_cut_off(void **state)
{
	struct scene s = scene_begin(state);
	struct client c = client_open(s.h);
	uint8_t packet[64];
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;

	request.status = &status;
	size_t bytes = coppice__request__pack(&request, packet);
	int r = 0;

	for (int i = 0; i < 100000 && r != -EPIPE && r != -ECONNRESET; i++) {
		r = channel_send(c.fd, packet, bytes, NULL, MSG_DONTWAIT);
		if (r == -EAGAIN)
			honest_step(&s.honest);
	}
	assert_true(r == -EPIPE || r == -ECONNRESET);
	client_close(&c);
	scene_end(&s);
}

/* Descriptors under way count for the sender's user: they must not pile up until nobody gets
 * any. */
static void descriptors_that_nobody_takes_end_with_their_session(void **state)
{
	struct scene s = scene_begin(state);
	struct client c = client_open(s.h);
	uint8_t packets[2][64];
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__LaneNew lane_new = COPPICE__LANE_NEW__INIT;
	Coppice__LaneFree lane_free = COPPICE__LANE_FREE__INIT;

	lane_new.has_notify = lane_new.notify = true;
	lane_free.lane = 1;
	request.lane_new = &lane_new;
	size_t n_new = coppice__request__pack(&request, packets[0]);

	request.lane_new = NULL;
	request.lane_free = &lane_free;
	size_t n_free = coppice__request__pack(&request, packets[1]);
	int r = 0;

	for (int i = 0; i < 100000 && r != -EPIPE && r != -ECONNRESET; i++) {
		r = channel_send(c.fd, packets[i % 2], i % 2 ? n_free : n_new, NULL, MSG_DONTWAIT);
		if (r != -EAGAIN)
			continue;
		struct client other = client_open(s.h);

		client_lane(&other);
		client_close(&other);
		honest_step(&s.honest);
	}
	assert_true(r == -EPIPE || r == -ECONNRESET);
	client_close(&c);
	scene_end(&s);
}

static void a_full_completion_socket_blocks_nobody(void **state)
{
	static char junk[4096];
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);

	/* Both directions: what it does not read, and what the daemon never reads. */
	while (send(x.notify_fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		continue;
	assert_int_equal(fcntl(x.notify_fd, F_SETFL, 0), 0);
	for (int i = 0; i < 3000; i++) {
		atomic_store(&x.lane->notify, 1);
		raw_submit(&x, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
		while (x.ticket - ring_done(x.lane) >= ABI_LANE_SLOTS / 2)
			sleep_ms(1);
	}
	raw_wait(&x);
	scene_steps_on(&s);
	raw_close(&x);
	scene_end(&s);
}

/* ---- processes that end or stop ------------------------------------------------------------- */

/* Steps for ever as an honest client of the family; the parent ends it. Returns once it steps. */
static pid_t stepper(struct scene *s, uint32_t family)
{
	int pipe_fds[2];
	char byte;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		struct honest h;

		alarm(60);
		honest_start(&h, s->h->socket, family);
		assert_int_equal(write(pipe_fds[1], "", 1), 1);
		for (;;)
			honest_step(&h);
	}
	close(pipe_fds[1]);
	assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
	close(pipe_fds[0]);
	return pid;
}

/* Of one family: the daemon holds batches open for them together. */
static void a_client_killed_in_a_step_is_not_waited_for(void **state)
{
	struct scene s = scene_begin(state);

	for (int i = 0; i < N_KILLS; i++) {
		pid_t pid = stepper(&s, s.honest.family);

		assert_true(honest_run(&s.honest, 40) < SCENE_BOUND_NS);
		kill(pid, SIGKILL);
		scene_steps_on(&s);
		harness_wait(pid);
	}
	scene_end(&s);
}

static void a_stopped_client_is_not_waited_for(void **state)
{
	struct scene s = scene_begin(state);
	pid_t pid = stepper(&s, s.honest.family);

	for (int i = 0; i < N_KILLS; i++) {
		assert_true(honest_run(&s.honest, 40) < SCENE_BOUND_NS);
		kill(pid, SIGSTOP);
		scene_steps_on(&s);
		kill(pid, SIGCONT);
	}
	kill(pid, SIGKILL);
	harness_wait(pid);
	scene_end(&s);
}

#define N_TOKENS 40

/* Both have gone the same way, and the other's next token took the place behind it first. */
static void a_token_that_is_only_begun_is_in_nobodys_way(void **state)
{
	struct scene s = scene_begin(state);
	struct honest other;

	honest_start(&other, s.h->socket, s.honest.family);
	honest_step(&other);
	for (int i = 0; i < N_TOKENS; i++) {
		assert_int_equal(other.n, s.honest.n);
		honest_extend(&other);
		honest_step(&s.honest);
		honest_compute(&other);
	}
	honest_end(&other);
	scene_end(&s);
}

/* ---- crowds --------------------------------------------------------------------------------- */

static void sessions_up_to_the_limit_are_refused_in_a_sentence(void **state)
{
	struct scene s = scene_begin(state);
	struct client crowd[40];
	unsigned n = 0, n_refused = 0;

	for (; n < 40; n++) {
		Coppice__Hello hello = COPPICE__HELLO__INIT;
		Coppice__Request request = COPPICE__REQUEST__INIT;
		uint8_t packet[64];

		hello.abi_version = ABI_VERSION;
		request.hello = &hello;
		crowd[n] = client_connect(s.h);
		size_t bytes = coppice__request__pack(&request, packet);

		/* Even the connections may be too many. */
		if (channel_send(crowd[n].fd, packet, bytes, NULL, 0) < 0)
			continue;
		const Coppice__Reply *reply = client_receive(&crowd[n]);

		if (!reply || !reply->code)
			continue;
		assert_refused(reply, -EUSERS, NULL, "as many sessions");
		n_refused++;
	}
	assert_true(n_refused > 0);
	scene_steps_on(&s);
	while (n--)
		client_close(&crowd[n]);
	scene_end(&s);
}

/* Connections that say nothing. */
static void silent_connections_keep_nobody_out_who_is_in(void **state)
{
	struct scene s = scene_begin(state);
	struct client crowd[60];

	for (int i = 0; i < 60; i++)
		crowd[i] = client_connect(s.h);
	scene_steps_on(&s);
	for (int i = 0; i < 60; i++)
		client_close(&crowd[i]);
	scene_end(&s);
}

/* ---- claims --------------------------------------------------------------------------------- */

/* Opens the prompt 1, 2, ..., 64 in a process of its own and stays; *ret_claimed: the prompt is its
 * to compute. */
static pid_t prompt_holder(struct scene *s, bool *ret_claimed)
{
	int pipe_fds[2];
	char byte;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		struct raw x = raw_open(s->h);
		const Coppice__Reply *reply = client_seq(&x.c, x.model, 1, x.arena, 64);

		alarm(60);
		byte = (char)reply->seq->claimed;
		assert_int_equal(write(pipe_fds[1], &byte, 1), 1);
		for (;;)
			pause();
	}
	close(pipe_fds[1]);
	assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
	close(pipe_fds[0]);
	*ret_claimed = byte;
	return pid;
}

static void a_killed_follower_leaves_the_claim_where_it_is(void **state)
{
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);
	const Coppice__Reply *reply = client_seq(&x.c, x.model, 1, x.arena, 64);
	Coppice__SeqWait wait = COPPICE__SEQ_WAIT__INIT;
	bool claimed;

	assert_true(reply->seq->claimed);
	wait.seq = reply->seq->seq;
	wait.timeout_ns = 1;
	for (int i = 0; i < N_KILLS; i++) {
		pid_t pid = prompt_holder(&s, &claimed);

		assert_false(claimed);
		kill(pid, SIGKILL);
		harness_wait(pid);
		honest_step(&s.honest);
	}
	reply = client_verb(&x.c, seq_wait, &wait);
	assert_int_equal(reply->code, 0);
	assert_true(reply->seq->claimed);
	raw_close(&x);
	scene_end(&s);
}

static void a_killed_claimant_leaves_the_claim_to_who_waits(void **state)
{
	struct scene s = scene_begin(state);
	Coppice__SeqWait wait = COPPICE__SEQ_WAIT__INIT;
	bool claimed;
	pid_t pid = prompt_holder(&s, &claimed);

	assert_true(claimed);
	struct raw x = raw_open(s.h);
	const Coppice__Reply *reply = client_seq(&x.c, x.model, 1, x.arena, 64);

	assert_false(reply->seq->claimed);
	assert_int_equal(reply->seq->pending, 63); /* the last is its own to compute */
	wait.seq = reply->seq->seq;
	wait.timeout_ns = SCENE_BOUND_NS;
	kill(pid, SIGKILL);
	reply = client_verb(&x.c, seq_wait, &wait);
	assert_int_equal(reply->code, 0);
	assert_true(reply->seq->claimed);
	harness_wait(pid);
	raw_close(&x);
	scene_end(&s);
}

/* ---- other versions ------------------------------------------------------------------------- */

static void other_versions_of_the_abi_are_turned_away(void **state)
{
	static const uint32_t versions[] = {0, ABI_VERSION - 1, ABI_VERSION + 1, UINT32_MAX};
	struct scene s = scene_begin(state);

	for (int i = 0; i < 200; i++) {
		struct client c = client_connect(s.h);
		Coppice__Hello hello = COPPICE__HELLO__INIT;

		hello.abi_version = versions[i % 4];
		assert_refused(client_verb(&c, hello, &hello), -EPROTO, "abi_version", "version");
		assert_int_equal(c.n_fds, 0);
		assert_true(client_is_cut_off(&c));
		client_close(&c);
	}
	scene_end(&s);
}

#define CASES(loop) \
	HARNESS_CASE(loop, a_million_doorbells_delay_nobody), \
		HARNESS_CASE(loop, a_lane_that_is_always_full_delays_nobody), \
		HARNESS_CASE(loop, a_client_that_reads_no_reply_is_cut_off), \
		HARNESS_CASE(loop, descriptors_that_nobody_takes_end_with_their_session), \
		HARNESS_CASE(loop, a_full_completion_socket_blocks_nobody), \
		HARNESS_CASE(loop, a_client_killed_in_a_step_is_not_waited_for), \
		HARNESS_CASE(loop, a_stopped_client_is_not_waited_for), \
		HARNESS_CASE(loop, a_token_that_is_only_begun_is_in_nobodys_way), \
		HARNESS_CASE(loop, sessions_up_to_the_limit_are_refused_in_a_sentence), \
		HARNESS_CASE(loop, silent_connections_keep_nobody_out_who_is_in), \
		HARNESS_CASE(loop, a_killed_follower_leaves_the_claim_where_it_is), \
		HARNESS_CASE(loop, a_killed_claimant_leaves_the_claim_to_who_waits), \
		HARNESS_CASE(loop, other_versions_of_the_abi_are_turned_away)

int main(int argc, char **argv)
{
	const struct CMUnitTest on_uring[] = {CASES(uring)}, on_epoll[] = {CASES(epoll)};
	int failed = harness_init(argc, argv);

	if (failed < 0)
		return 2;
	if (harness_has_uring())
		failed += cmocka_run_group_tests(on_uring, NULL, NULL);
	return failed + cmocka_run_group_tests(on_epoll, NULL, NULL);
}
