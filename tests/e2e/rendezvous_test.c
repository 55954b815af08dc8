/*
 * rendezvous_test.c - daemons that a list names find each other before they serve, or say who is
 * missing and end. argv[1] is the daemon's program; each daemon stands for one of a host.
 */
#include "control_harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 3u

/* Daemons of one list, of paths in a folder. */
struct hosts {
	char folder[64];
	struct harness *h[N];
	char list[N * 80], rank[N][16];
};

static struct hosts hosts_new(void)
{
	struct hosts hosts = {.folder = "/tmp/joined-XXXXXX"};

	assert_non_null(mkdtemp(hosts.folder));
	snprintf(hosts.list, sizeof(hosts.list), "--ranks=%s/a, %s/b,%s/c", hosts.folder,
		 hosts.folder, hosts.folder);
	for (uint32_t i = 0; i < N; i++)
		hosts.h[i] = harness_new("auto");
	return hosts;
}

/* The list's text must outlive them. */
static void hosts_tell(struct hosts *hosts, const char *timeout)
{
	for (uint32_t i = 0; i < N; i++) {
		snprintf(hosts->rank[i], sizeof(hosts->rank[i]), "--rank=%u", i);
		hosts->h[i]->flags[0] = hosts->list;
		hosts->h[i]->flags[1] = hosts->rank[i];
		hosts->h[i]->flags[2] = timeout;
	}
}

static void hosts_free(struct hosts *hosts)
{
	for (uint32_t i = 0; i < N; i++) {
		void *state = hosts->h[i];

		harness_teardown(&state);
	}
	assert_int_equal(rmdir(hosts->folder), 0); /* they leave nothing there */
}

static void daemons_that_a_list_names_find_each_other_and_serve(void **state)
{
	struct hosts hosts = hosts_new();
	(void)state;

	hosts_tell(&hosts, "--ranks-timeout-ms=20000");
	for (uint32_t i = N; i-- > 1;)
		hosts.h[i]->pid = harness_spawn(hosts.h[i]);
	harness_start(hosts.h[0]);
	for (uint32_t i = 0; i < N; i++) {
		char words[64];
		struct client c;

		for (uint32_t k = 0; k < 1000 && access(hosts.h[i]->socket, F_OK) != 0; k++)
			usleep(5000);
		c = client_open(hosts.h[i]);
		snprintf(words, sizeof(words), "rank %u of 3: all have joined", i);
		assert_true(harness_log_has(hosts.h[i], words));
		client_close(&c);
	}
	hosts_free(&hosts);
}

/* Two come. Returns whether it is the third that the first one misses after so long. */
static bool the_third_is_missed(unsigned after_ms)
{
	struct hosts hosts = hosts_new();
	char flag[64], words[64];
	pid_t pids[2];
	bool is_missed;

	snprintf(flag, sizeof(flag), "--ranks-timeout-ms=%u", after_ms);
	snprintf(words, sizeof(words), "has not called for %u ms", after_ms);
	hosts_tell(&hosts, flag);
	for (uint32_t i = 0; i < 2; i++)
		pids[i] = harness_spawn(hosts.h[i]);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(harness_wait(pids[i]), 1);
	is_missed = harness_log_has(hosts.h[0], "ranks: rank 2 of ");
	assert_true(harness_log_has(hosts.h[0], words));
	hosts_free(&hosts);
	return is_missed;
}

/* Where the second is as late, as on a machine that is busy with others, it is missed first. */
static void a_daemon_that_never_comes_is_named_in_time(void **state)
{
	(void)state;
	assert_true(the_third_is_missed(400) || the_third_is_missed(10000));
}

static void daemons_that_differ_say_in_what(void **state)
{
	struct hosts hosts = hosts_new();
	pid_t pids[N];
	(void)state;

	hosts_tell(&hosts, "--ranks-timeout-ms=20000");
	hosts.h[1]->flags[3] = "--page-tokens=64";
	for (uint32_t i = 0; i < N; i++)
		pids[i] = harness_spawn(hosts.h[i]);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(harness_wait(pids[i]), 1);
	assert_true(harness_log_has(hosts.h[0],
				    "rank 1 has 64 for page_tokens, this one, rank 0, has 32"));
	assert_true(harness_log_has(hosts.h[1],
				    "rank 0 has 32 for page_tokens, this one, rank 1, has 64"));
	hosts_free(&hosts);
}

static void a_daemon_that_waits_for_others_can_be_ended(void **state)
{
	struct hosts hosts = hosts_new();
	char path[80];
	(void)state;

	hosts_tell(&hosts, "--ranks-timeout-ms=3600000");
	hosts.h[0]->pid = harness_spawn(hosts.h[0]);
	snprintf(path, sizeof(path), "%s/a", hosts.folder);
	for (uint32_t k = 0; k < 2000 && access(path, F_OK) != 0; k++)
		usleep(5000);
	assert_int_equal(harness_stop(hosts.h[0], SIGTERM), -SIGTERM);
	assert_int_equal(unlink(path), 0); /* the next one takes its place */
	hosts_free(&hosts);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(daemons_that_a_list_names_find_each_other_and_serve),
		cmocka_unit_test(a_daemon_that_never_comes_is_named_in_time),
		cmocka_unit_test(daemons_that_differ_say_in_what),
		cmocka_unit_test(a_daemon_that_waits_for_others_can_be_ended),
	};

	return harness_init(argc, argv) || cmocka_run_group_tests(tests, NULL, NULL);
}
