/*
 * device_test.c - device arenas and steps on streams, with a real daemon and real client processes
 * (device_stem.c).
 *
 *      device_test COPPICED            needs a GPU: without one it says so and exits with 77
 *
 * With FAKE_CUDA set, and the fake driver and module in the paths where the real ones are looked
 * for, the same without a GPU, and what a real driver cannot be made to do besides.
 */
#include "device_fixture.h"
#include "device_stem.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- steps ---------------------------------------------------------------------------------- */

static void steps_on_a_stream_with_a_device_arena_are_right(void **state)
{
	stem_run(*state, "decode", "device", NULL);
}

static void steps_on_a_stream_with_a_host_arena_are_right(void **state)
{
	stem_run(*state, "decode", "host", NULL);
}

static void steps_without_cuda_are_right(void **state)
{
	stem_run(*state, "plain", NULL, NULL);
}

static void a_graph_is_right_at_each_of_many_launches(void **state)
{
	stem_run(*state, "graph", "device", SANITIZED_THREADS ? "200" : "1000");
}

static void a_graph_over_a_host_arena_is_right(void **state)
{
	stem_run(*state, "graph", "host", "100");
}

static void tokens_that_a_graph_appends_alone_are_attended_to(void **state)
{
	stem_run(*state, "append", NULL, NULL);
}

static void mistakes_are_told_and_cost_nothing(void **state)
{
	stem_run(*state, "mistakes", NULL, NULL);
}

static void clients_at_once_are_right(void **state)
{
	struct stem stems[4];

	for (uint32_t i = 0; i < 4; i++)
		stems[i] = stem_start(*state, i % 2 ? "graph" : "decode", i < 2 ? "device" : "host",
				      i % 2 ? "50" : NULL);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(stem_end(&stems[i]), 0);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void a_client_killed_in_a_step_costs_nobody_else_anything(void **state)
{
	const struct fixture *f = *state;
	struct stem honest = stem_start(f, "graph", "device", "300");

	for (int i = 0; i < 3; i++) {
		struct stem busy = stem_start(f, "busy", NULL, NULL);

		stem_await_go(&busy);
		sleep_ms(7 * (unsigned)i);
		stem_kill(&busy);
	}
	assert_int_equal(stem_end(&honest), 0);
}

static void a_killed_clients_arena_is_free_again(void **state)
{
	const struct fixture *f = *state;
	struct stem busy = stem_start(f, "busy", NULL, NULL);
	struct client c;

	stem_await_go(&busy);
	c = client_open(f->h);
	assert_refused(arena_new(&c), -EDQUOT, "bytes", "device_arena_bytes");
	client_close(&c);
	stem_kill(&busy);
	assert_room_comes_back(f);
}

static void a_stream_goes_on_by_itself_when_the_daemon_dies(void **state)
{
	struct fixture *f = *state;
	struct stem waiter = stem_start(f, "waiter", "alone", NULL);

	stem_await_go(&waiter);
	sleep_ms(100);
	harness_stop(f->h, SIGKILL);
	assert_int_equal(stem_end(&waiter), 0);
}

static void a_sleeping_cpu_is_told_that_the_daemon_died(void **state)
{
	struct fixture *f = *state;
	struct stem sleeper = stem_start(f, "sleeper", NULL, NULL);

	stem_await_go(&sleeper);
	sleep_ms(50);
	harness_stop(f->h, SIGKILL);
	assert_int_equal(stem_end(&sleeper), 0);
}

static void the_library_lets_a_stream_go_on_when_the_daemon_dies(void **state)
{
	struct fixture *f = *state;
	struct stem waiter = stem_start(f, "waiter", "calling", NULL);

	stem_await_go(&waiter);
	harness_stop(f->h, SIGKILL);
	stem_go(&waiter);
	assert_int_equal(stem_end(&waiter), 0);
}

static void a_daemon_that_stops_lets_streams_go_on(void **state)
{
	struct fixture *f = *state;
	struct stem waiter = stem_start(f, "waiter", "stopped", NULL);

	stem_await_go(&waiter);
	assert_int_equal(harness_stop(f->h, SIGTERM), 0);
	assert_int_equal(stem_end(&waiter), 0);
}

/* Under MPS (COPPICE_TEST_MPS says so) it is everybody's fault: then the daemon says what happened
 * and ends. */
static void a_clients_own_fault_is_its_own(void **state)
{
	struct fixture *f = *state;
	bool mps = getenv("COPPICE_TEST_MPS") != NULL;

	stem_run(f, "fault", NULL, NULL);
	if (!mps) {
		stem_run(f, "decode", "device", NULL);
		return;
	}
	assert_int_equal(harness_wait_for(f->h->pid, "the daemon"), 1);
	f->h->pid = 0;
	assert_int_equal(count_in_log(f, "under MPS a fatal fault"), 1);
	harness_start(f->h);
	stem_run(f, "decode", "device", NULL);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void an_arena_is_zero_whoever_had_the_memory(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct stem stem =
			stem_start(*state, "hold", i % 2 ? "165" : "90", i < 2 ? "tidy" : "gone");

		stem_await_go(&stem);
		stem_go(&stem);
		assert_int_equal(stem_end(&stem), 0);
	}
}

static void sessions_do_not_see_each_others_arenas(void **state)
{
	const struct fixture *f = *state;
	struct stem one = stem_start(f, "hold", "17", "tidy"), other;
	struct client two = client_open(f->h);

	for (uint32_t i = 1; i <= 4; i++)
		assert_int_equal(arena_new_of(&two, i > 1)->arena->arena, i);
	stem_await_go(&one);
	other = stem_start(f, "hold", "34", "tidy");
	stem_await_go(&other);
	stem_run(f, "thief", NULL, NULL);
	stem_go(&one);
	stem_go(&other);
	assert_int_equal(stem_end(&one), 0);
	assert_int_equal(stem_end(&other), 0);
	for (uint32_t i = 1; i <= 4; i++)
		arena_free(&two, i);
	client_close(&two);
}

static void a_view_keeps_device_memory_open(void **state)
{
	stem_run(*state, "view", NULL, NULL);
	assert_room_comes_back(*state);
}

/* Who refers to the only weights there are. */
static uint32_t count_weights_users(struct client *c)
{
	Coppice__WeightsList m = COPPICE__WEIGHTS_LIST__INIT;
	const Coppice__WeightsListReply *list = client_verb(c, weights_list, &m)->weights_list;

	assert_int_equal(list->n_weights, 1);
	return list->weights[0]->n_users;
}

static void weights_stay_until_who_has_them_open_is_gone(void **state)
{
	const struct fixture *f = *state;
	struct stem stem;
	struct client watch;

	if (getenv("COPPICE_TEST_DEVICES"))
		skip(); /* several hold no weights */
	stem = stem_start(f, "weights", NULL, NULL);
	watch = client_open(f->h);
	stem_await_go(&stem);
	count_becomes(&watch, 1);
	sleep_ms(50);
	assert_int_equal(count_weights_users(&watch), 1);
	stem_go(&stem);
	assert_int_equal(stem_end(&stem), 0);
	for (int i = 0; i < 500 && count_weights_users(&watch) > 0; i++)
		sleep_ms(10);
	assert_int_equal(count_weights_users(&watch), 0);
	client_close(&watch);
}

static void what_is_freed_under_a_step_is_named(void **state)
{
	stem_run(*state, "cancelled", "arena", NULL);
	stem_run(*state, "cancelled", "seq", NULL);
}

static void who_lies_about_closing_sees_nothing_of_others(void **state)
{
	const struct fixture *f = *state;
	struct stem liar = stem_start(f, "liar", "51", NULL), honest;

	stem_await_go(&liar);
	honest = stem_start(f, "hold", "51", "tidy");
	stem_await_go(&honest);
	stem_go(&liar);
	assert_int_equal(stem_end(&liar), 0);
	stem_go(&honest);
	assert_int_equal(stem_end(&honest), 0);
}

/* Others have had arenas since, and some have them still. */
static void a_kept_descriptor_opens_no_other_arena(void **state)
{
	const struct fixture *f = *state;
	struct stem keeper = stem_start(f, "keeper", "52", NULL), others[3];

	stem_await_go(&keeper);
	for (int i = 0; i < 3; i++) {
		others[i] = stem_start(f, "hold", "52", "tidy");
		stem_await_go(&others[i]);
	}
	stem_go(&keeper);
	assert_int_equal(stem_end(&keeper), 0);
	for (int i = 0; i < 3; i++) {
		stem_go(&others[i]);
		assert_int_equal(stem_end(&others[i]), 0);
	}
}

static void arenas_that_are_given_back_leave_no_descriptor(void **state)
{
	stem_run(*state, "tidy", NULL, NULL);
}

static uint64_t kept_bytes(struct client *c)
{
	Coppice__Status m = COPPICE__STATUS__INIT;

	return client_verb(c, status, &m)->status->kept_arena_bytes;
}

/* Each is free as soon as it is closed. */
static void what_is_freed_and_kept_counts_until_it_is_closed(void **state)
{
	const struct fixture *f = *state;
	struct client a = client_open(f->h), b = client_open(f->h);
	int kept[4];

	for (int i = 0; i < 4; i++) {
		assert_int_equal(arena_new(&a)->code, 0);
		kept[i] = dup(a.fds[0]);
		arena_free(&a, a.reply->arena->arena);
	}
	client_close(&a);
	assert_refused(arena_new(&b), -EDQUOT, "bytes", "(device_arena_bytes)");
	assert_int_equal(kept_bytes(&b), 8u << 20);
	close(kept[0]);
	assert_int_equal(arena_new(&b)->code, 0);
	assert_refused(arena_new(&b), -EDQUOT, "bytes", "(device_arena_bytes)");
	for (int i = 1; i < 4; i++)
		close(kept[i]);
	assert_int_equal(kept_bytes(&b), 0);
	arena_free(&b, 1);
	client_close(&b);
	assert_room_comes_back(f);
}

static void an_arena_comes_by_a_descriptor_and_names_its_device(void **state)
{
	const struct fixture *f = *state;
	struct client c = client_open(f->h);

	for (int i = 0; i < 24; i++) {
		assert_int_equal(arena_new(&c)->code, 0);
		assert_int_equal(c.n_fds, 1);
		assert_int_equal(c.reply->arena->device.len, 16);
		arena_free(&c, c.reply->arena->arena);
	}
	client_close(&c);
}

static void device_memory_has_limits(void **state)
{
	const struct fixture *f = *state;
	struct client a = client_open(f->h), b = client_open(f->h);

	for (int i = 0; i < 3; i++)
		assert_int_equal(arena_new(&a)->code, 0);
	assert_refused(arena_new(&a), -EDQUOT, "bytes", "(max_device_arena_bytes)");
	assert_int_equal(arena_new(&b)->code, 0);
	assert_refused(arena_new(&b), -EDQUOT, "bytes", "(device_arena_bytes)");
	arena_free(&a, 1);
	assert_int_equal(arena_new(&b)->code, 0);
	arena_free(&a, 2);
	arena_free(&a, 3);
	arena_free(&b, 1);
	arena_free(&b, 2);
	client_close(&a);
	client_close(&b);
}

/* This process is the client, and lives. */
static void memory_stays_with_who_hangs_up_and_may_have_it_open(void **state)
{
	const struct fixture *f = *state;
	struct client a = client_open(f->h), b = client_open(f->h);
	Coppice__Leave leave = COPPICE__LEAVE__INIT;
	Coppice__Request request = COPPICE__REQUEST__INIT;

	assert_int_equal(arena_new(&a)->code, 0);
	request.leave = &leave;
	client_send(&a, &request);
	assert_true(client_is_cut_off(&a));
	assert_room_comes_back(f);
	client_close(&a);
	a = client_open(f->h);
	assert_int_equal(arena_new(&a)->code, 0);
	client_close(&a);
	count_becomes(&b, 1);
	sleep_ms(50);
	assert_refused(arena_new(&b), -EDQUOT, "bytes", "device_arena_bytes");
	client_close(&b);
}

static void token_ids_do_not_lie_in_device_memory(void **state)
{
	const struct fixture *f = *state;
	struct client c = client_open(f->h);
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;
	Coppice__SeqOpen seq = COPPICE__SEQ_OPEN__INIT;
	uint32_t lane = client_lane(&c);

	m.name = "m";
	m.n_layers = m.n_q_heads = m.n_kv_heads = 1;
	m.head_dim = 64;
	m.dtype = 1;
	assert_int_equal(client_verb(&c, model_open, &m)->code, 0);
	assert_int_equal(arena_new(&c)->code, 0);
	seq.model = 1;
	seq.lane = lane;
	seq.arena = 1;
	seq.n_tokens = 4;
	assert_refused(client_verb(&c, seq_open, &seq), -EINVAL, "arena", "device memory");
	arena_free(&c, 1);
	client_close(&c);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void refused_with(const struct fixture *f, const char *variable, const char *words)
{
	struct stem stem = stem_start_with(f, variable, "refused", words, NULL);

	assert_int_equal(stem_end(&stem), 0);
}

static void a_client_that_sees_no_gpu_is_told_so(void **state)
{
	refused_with(*state, fake ? "FAKE_CUDA_DEVICES=0" : "CUDA_VISIBLE_DEVICES=-1",
		     fake ? "sees no GPU" : "the NVIDIA driver");
}

static void a_client_without_a_driver_is_told_so(void **state)
{
	refused_with(*state, "LD_LIBRARY_PATH=/nonexistent", "no NVIDIA driver");
}

static void a_client_on_another_device_is_told_so(void **state)
{
	refused_with(*state, "FAKE_CUDA_DEVICE=other",
		     "GPU-636f7070-6963-6520-6661-6b6520677075 is not among");
}

static void a_daemon_without_a_device_says_so(void **state)
{
	refused_with(*state, NULL, "a daemon with backend = cuda");
}

static void a_driver_that_refuses_is_explained(void **state)
{
	refused_with(*state, "FAKE_CUDA_REFUSES=1", "both or neither under MPS");
	assert_room_comes_back(*state);
}

/* As in two containers, in each of which the first program has the same pid. */
static void a_client_of_the_daemons_pid_has_device_memory_too(void **state)
{
	const struct fixture *f = *state;
	const char *argv[] = {program, coppiced, f->h->socket, "decode", "device", NULL};
	struct stem stem = stem_exec_as(argv, NULL, f->h->pid);

	if (stem.pid < 0) {
		print_message("skipped: no PID namespace to be had here\n");
		return;
	}
	assert_int_equal(stem_end(&stem), 0);
}

static void clients_without_mps_are_warned_of_once(void **state)
{
	struct fixture *f = *state;

	stem_run(f, "plain", NULL, NULL);
	assert_int_equal(count_in_log(f, "no MPS"), 0);
	assert_room_comes_back(f);
	assert_room_comes_back(f);
	assert_int_equal(count_in_log(f, "296 us measured"), getenv("FAKE_CUDA_MPS") ? 0 : 1);
}

static void a_device_that_fails_ends_the_daemon_with_a_reason(void **state)
{
	struct fixture *f = *state;
	struct stem waiter = stem_start(f, "waiter", "failed", NULL);
	int fault;

	stem_await_go(&waiter);
	fault = open(f->fault, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fault >= 0);
	close(fault);
	assert_int_equal(harness_wait_for(f->h->pid, "the daemon"), 1);
	f->h->pid = 0;
	stem_go(&waiter);
	assert_int_equal(stem_end(&waiter), 0);
	assert_int_equal(count_in_log(f, "the fake device burns"), 1);
	assert_int_equal(count_in_log(f, "to be started anew"), 1);
}

/* ---- main ----------------------------------------------------------------------------------- */

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define WITH(how, name) cmocka_unit_test_setup_teardown(name, setup_##how, teardown)

static const struct CMUnitTest tests[] = {
	CASE(steps_on_a_stream_with_a_device_arena_are_right),
	CASE(steps_on_a_stream_with_a_host_arena_are_right),
	CASE(steps_without_cuda_are_right),
	CASE(a_graph_is_right_at_each_of_many_launches),
	CASE(a_graph_over_a_host_arena_is_right),
	CASE(tokens_that_a_graph_appends_alone_are_attended_to),
	CASE(mistakes_are_told_and_cost_nothing),
	CASE(clients_at_once_are_right),
	CASE(a_client_killed_in_a_step_costs_nobody_else_anything),
	WITH(one_arena, a_killed_clients_arena_is_free_again),
	CASE(a_stream_goes_on_by_itself_when_the_daemon_dies),
	CASE(a_sleeping_cpu_is_told_that_the_daemon_died),
	CASE(the_library_lets_a_stream_go_on_when_the_daemon_dies),
	CASE(a_daemon_that_stops_lets_streams_go_on),
	CASE(an_arena_is_zero_whoever_had_the_memory),
	CASE(sessions_do_not_see_each_others_arenas),
	CASE(a_view_keeps_device_memory_open),
	CASE(weights_stay_until_who_has_them_open_is_gone),
	CASE(what_is_freed_under_a_step_is_named),
	CASE(who_lies_about_closing_sees_nothing_of_others),
	CASE(a_kept_descriptor_opens_no_other_arena),
	CASE(an_arena_comes_by_a_descriptor_and_names_its_device),
	CASE(arenas_that_are_given_back_leave_no_descriptor),
	WITH(four_arenas, device_memory_has_limits),
	WITH(four_arenas, what_is_freed_and_kept_counts_until_it_is_closed),
	WITH(one_arena, memory_stays_with_who_hangs_up_and_may_have_it_open),
	CASE(token_ids_do_not_lie_in_device_memory),
	CASE(a_client_that_sees_no_gpu_is_told_so),
};

static const struct CMUnitTest real_tests[] = {
	CASE(a_clients_own_fault_is_its_own),
};

static const struct CMUnitTest fake_tests[] = {
	CASE(a_client_without_a_driver_is_told_so),
	CASE(a_client_on_another_device_is_told_so),
	CASE(a_driver_that_refuses_is_explained),
	CASE(a_client_of_the_daemons_pid_has_device_memory_too),
	WITH(without_device, a_daemon_without_a_device_says_so),
	CASE(clients_without_mps_are_warned_of_once),
	CASE(a_device_that_fails_ends_the_daemon_with_a_reason),
};

/* 0, or why there is nothing to test. */
static int find_device(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl(program, program, coppiced, "none", "probe", (char *)NULL);
		_exit(98);
	}
	return harness_wait_for(pid, "the process");
}

int main(int argc, char **argv)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int r;

	if (argc > 3)
		return stem_main(argv[2], argc - 3, argv + 3);
	r = harness_init(argc, argv);
	if (r || n < 0)
		return 1;
	self[n] = 0;
	program = self;
	coppiced = argv[1];
	fake = getenv("FAKE_CUDA") != NULL;
	r = find_device();
	if (r)
		return r;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	if (fake)
		return r + cmocka_run_group_tests(fake_tests, NULL, NULL);
	return r + cmocka_run_group_tests(real_tests, NULL, NULL);
}
