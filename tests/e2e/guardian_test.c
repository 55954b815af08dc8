/*
 * guardian_test.c - coppiced --guardian: what it does when the daemon dies, ends, comes back, and
 * what it holds meanwhile.
 *
 * The words are looked at from the CPU; to a stream that waits for them they are the same.
 */
#include "control_harness.h"

#include "proto/ring.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TRIES 1000 /* of 5 ms */

static const char *coppiced;

struct fixture {
	struct harness *h;
	struct client c;
	char flag[136], socket[112];
	pid_t guardian;
	struct abi_lane *lane; /* owned mapping */
};

static pid_t guardian_start(const struct fixture *f)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(coppiced, coppiced, "--guardian", "--config=/dev/null", f->flag,
		      (char *)NULL);
		_exit(98);
	}
	for (int i = 0; i < TRIES && access(f->socket, F_OK) < 0; i++)
		sleep_ms(5);
	assert_int_equal(access(f->socket, F_OK), 0);
	return pid;
}

static void guardian_stop(struct fixture *f, int signal)
{
	kill(f->guardian, signal);
	assert_int_equal(harness_wait(f->guardian), signal == SIGTERM ? 0 : -signal);
	f->guardian = 0;
	if (signal != SIGTERM)
		unlink(f->socket);
}

/* How many lanes the guardian has mapped. */
static unsigned guardian_lanes(const struct fixture *f)
{
	char path[64], line[512];
	unsigned n = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", f->guardian);
	maps = fopen(path, "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "coppice-lane") != NULL;
	fclose(maps);
	return n;
}

static void assert_keeps(const struct fixture *f, unsigned n)
{
	for (int i = 0; i < TRIES && guardian_lanes(f) != n; i++)
		sleep_ms(5);
	assert_int_equal(guardian_lanes(f), n);
}

static void lane_make(struct fixture *f)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	void *map;

	assert_int_equal(client_verb(&f->c, lane_new, &m)->code, 0);
	assert_int_equal(channel_segment_map(f->c.fds[0], f->c.reply->lane->bytes, 1, &map), 0);
	f->lane = map;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->h = harness_new("auto");
	snprintf(f->socket, sizeof(f->socket), "%s/keep", f->h->folder);
	snprintf(f->flag, sizeof(f->flag), "--guardian-socket=%s", f->socket);
	f->h->flags[0] = f->flag;
	f->guardian = guardian_start(f);
	harness_start(f->h);
	f->c = client_open(f->h);
	lane_make(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	client_close(&f->c);
	munmap(f->lane, sizeof(*f->lane));
	if (f->h->pid)
		assert_int_equal(harness_stop(f->h, SIGTERM), 0);
	if (f->guardian)
		guardian_stop(f, SIGTERM);
	harness_free(f->h);
	free(f);
	return 0;
}

static bool is_released(const struct fixture *f)
{
	return atomic_load(&f->lane->done) & ABI_RELEASED;
}

static void assert_released(const struct fixture *f)
{
	for (int i = 0; i < TRIES && !(is_released(f) && atomic_load(&f->lane->done_words[0])); i++)
		sleep_ms(1);
	assert_true(is_released(f));
	for (uint32_t i = 0; i < ABI_LANE_WORDS; i++)
		assert_int_equal(atomic_load(&f->lane->done_words[i]), 1);
}

/* ---- the daemon dies ------------------------------------------------------------------------ */

static void a_daemons_death_releases_all_streams(void **state)
{
	struct fixture *f = *state;

	assert_keeps(f, 1);
	f->lane->entries[0] = (struct abi_entry){.ticket = 1, .kind = ABI_NOP};
	ring_publish(f->lane, 1);
	ring_bell(f->c.fds[1]);
	assert_false(is_released(f));
	harness_stop(f->h, SIGKILL);
	assert_released(f);
	/* As a stream compares: all that was submitted is done, and so is what is submitted after
	 * the death. */
	assert_true((int64_t)(atomic_load(&f->lane->done) - (1 + ABI_LANE_SLOTS)) >= 0);
}

static void a_word_that_a_queued_replay_takes_back_comes_again(void **state)
{
	struct fixture *f = *state;

	assert_keeps(f, 1);
	harness_stop(f->h, SIGKILL);
	for (int replay = 0; replay < 5; replay++) {
		assert_released(f);
		atomic_store(&f->lane->done_words[0], 0);
	}
	assert_released(f);
	assert_true(atomic_load(&f->lane->done) < 2 * ABI_RELEASED);
}

static void a_daemon_that_stops_needs_no_release(void **state)
{
	struct fixture *f = *state;

	assert_keeps(f, 1);
	assert_int_equal(harness_stop(f->h, SIGTERM), 0);
	assert_keeps(f, 0);
	assert_false(is_released(f));
}

/* ---- what the guardian holds ---------------------------------------------------------------- */

static void lanes_that_go_are_forgotten(void **state)
{
	struct fixture *f = *state;
	Coppice__LaneFree m = COPPICE__LANE_FREE__INIT;

	assert_keeps(f, 1);
	m.lane = client_lane(&f->c);
	assert_keeps(f, 2);
	assert_int_equal(client_verb(&f->c, lane_free, &m)->code, 0);
	assert_keeps(f, 1);
	client_close(&f->c);
	assert_keeps(f, 0);
	f->c = client_open(f->h);
}

static void a_guardian_that_comes_back_is_told_all(void **state)
{
	struct fixture *f = *state;

	guardian_stop(f, SIGKILL);
	client_lane(&f->c);
	f->guardian = guardian_start(f);
	assert_keeps(f, 2);
	assert_true(harness_log_has(f->h, "no guardian at"));
	harness_stop(f->h, SIGKILL);
	assert_released(f);
}

static void a_daemon_works_without_its_guardian(void **state)
{
	struct fixture *f = *state;

	guardian_stop(f, SIGKILL);
	harness_stop(f->h, SIGTERM);
	client_close(&f->c);
	harness_start(f->h);
	f->c = client_open(f->h);
	assert_true(harness_log_has(f->h, "no guardian at"));
}

static void a_daemon_started_anew_has_lanes_of_its_own(void **state)
{
	struct fixture *f = *state;

	assert_keeps(f, 1);
	harness_stop(f->h, SIGKILL);
	assert_released(f);
	munmap(f->lane, sizeof(*f->lane));
	client_close(&f->c);
	harness_start(f->h);
	f->c = client_open(f->h);
	lane_make(f);
	assert_keeps(f, 2); /* the dead one's for some seconds more */
	sleep_ms(100);
	assert_false(is_released(f));
	assert_int_equal(atomic_load(&f->lane->done_words[0]), 0);
	harness_stop(f->h, SIGKILL);
	assert_released(f);
}

static void a_guardian_needs_a_socket(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		freopen("/dev/null", "w", stderr);
		execl(coppiced, coppiced, "--guardian", "--config=/dev/null", (char *)NULL);
		_exit(98);
	}
	assert_int_equal(harness_wait(pid), 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_daemons_death_releases_all_streams),
		CASE(a_word_that_a_queued_replay_takes_back_comes_again),
		CASE(a_daemon_that_stops_needs_no_release),
		CASE(lanes_that_go_are_forgotten),
		CASE(a_guardian_that_comes_back_is_told_all),
		CASE(a_daemon_works_without_its_guardian),
		CASE(a_daemon_started_anew_has_lanes_of_its_own),
		cmocka_unit_test(a_guardian_needs_a_socket),
	};
	int r = harness_init(argc, argv);

	coppiced = argv[1];
	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
