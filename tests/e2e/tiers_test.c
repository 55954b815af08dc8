/*
 * tiers_test.c - the daemon as a process, with tiers below its pool: what is wrong with a tier is a
 * clear sentence and a working daemon without it. On both loops.
 */
#include "tiers_fixture.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Capacities of host memory and file as the daemon reports them; 0: no such tier. The daemon
 * serves. */
static void assert_tiers(struct tiers *t, uint64_t host_mib, uint64_t file_mib)
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c = client_open(t->h);
	const Coppice__Reply *reply = client_verb(&c, status, &status);
	uint64_t got[2] = {0};

	for (size_t i = 0; i < reply->status->n_tier; i++)
		got[!strcmp(reply->status->tier[i]->name, "file")] =
			reply->status->tier[i]->capacity_bytes >> 20;
	assert_int_equal(got[0], host_mib);
	assert_int_equal(got[1], file_mib);
	client_model(&c);
	client_arena(&c, 4096);
	client_lane(&c);
	assert_int_equal(client_seq(&c, 1, 1, 1, 100)->code, 0);
	client_close(&c);
}

static void tiers_are_reported(void **state)
{
	struct tiers t = tiers_of(state);

	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=130M");
	assert_true(harness_log_has(t.h, "lower tiers: 64 MiB of host memory, file "));
	assert_tiers(&t, 64, 96);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=1G");
	assert_tiers(&t, 64, 96); /* a file that is there keeps its size */
	tiers_done(&t);
}

static void a_file_that_is_too_small_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=4096K");
	assert_true(harness_log_has(t.h, "4096K is too little"));
	assert_tiers(&t, 64, 0);
	assert_int_not_equal(access(t.path, F_OK), 0);
}

static void a_foreign_file_is_left_alone(void **state)
{
	struct tiers t = tiers_of(state);
	struct stat st;

	tiers_put(t.path, 0, "poem", 4);
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "it is no tier file, and is left alone"));
	assert_tiers(&t, 64, 0);
	assert_int_equal(stat(t.path, &st), 0);
	assert_int_equal(st.st_size, 4);
	tiers_done(&t);
}

static void a_truncated_file_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	tiers_make_file(&t);
	assert_int_equal(truncate(t.path, 1 << 20), 0);
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "going on without it"));
	assert_tiers(&t, 64, 0);
	tiers_done(&t);
}

static void another_version_is_said(void **state)
{
	struct tiers t = tiers_of(state);
	const uint32_t version = 77;

	tiers_make_file(&t);
	tiers_put(t.path, 8, &version, sizeof(version));
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "version 77"));
	assert_tiers(&t, 64, 0);
	tiers_done(&t);
}

static void a_damaged_head_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	tiers_make_file(&t);
	tiers_put(t.path, 20, "\xff", 1);
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "going on without it"));
	assert_tiers(&t, 64, 0);
	tiers_done(&t);
}

static void a_folder_is_no_file(void **state)
{
	struct tiers t = tiers_of(state);

	assert_int_equal(mkdir(t.path, 0700), 0);
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "it is no regular file"));
	assert_tiers(&t, 64, 0);
	rmdir(t.path);
}

static void a_file_in_use_is_said(void **state)
{
	struct tiers t = tiers_of(state);
	struct harness *other;

	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	other = harness_new(t.h->loop);
	struct tiers u = {.h = other};
	memcpy(u.flag, t.flag, sizeof(u.flag));
	tiers_start_with(&u, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(other, "another process uses it"));
	assert_tiers(&u, 64, 0);
	harness_free(other);
	assert_tiers(&t, 64, 32);
	tiers_done(&t);
}

/* Files may not grow beyond 16 MiB, as where a file system is full. */
static void a_full_file_system_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	tiers_start_limited(&t, 16 << 20);
	assert_true(harness_log_has(t.h, "there is no room for "));
	assert_tiers(&t, 64, 0);
	assert_int_not_equal(access(t.path, F_OK), 0);
}

static void a_file_system_without_direct_io_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	strcpy(t.flag, "--file-tier=/proc/self/comm");
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "its file system has no direct I/O (O_DIRECT)"));
	assert_tiers(&t, 64, 0);
}

/* Files of the kernel's that nobody may write to stand for a file system that is mounted so. */
static void a_file_that_cannot_be_written_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	strcpy(t.flag, "--file-tier=/proc/version");
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "tier file /proc/version: it"));
	assert_true(harness_log_has(t.h, "going on without it"));
	assert_tiers(&t, 64, 0);
}

/* Nor is there a stage then, whose memory goes back. */
static void memory_that_cannot_be_had_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	t.h->flags[3] = "--stage=32M";
	tiers_start_with(&t, "--host-tier=4096G", "--file-tier-bytes=64M");
	assert_true(
		harness_log_has(t.h,
				"host tier: 4096G of host memory cannot be had or not be pinned"));
	assert_tiers(&t, 0, 0);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	t.h->flags[4] = "--check-config";
	assert_int_equal(harness_wait(harness_spawn(t.h)), 0);
	assert_true(harness_log_has(t.h, "left of the machine's: a daemon would go on without"));
	tiers_done(&t);
}

static void without_io_uring_there_is_no_file(void **state)
{
	struct tiers t = tiers_of(state);

	t.h->loop = "auto";
	t.h->refuse_uring = true;
	tiers_start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "io_uring is refused: Operation not permitted"));
	assert_tiers(&t, 64, 0);
	tiers_done(&t);
}

static void a_file_needs_host_memory(void **state)
{
	struct tiers t = tiers_of(state);

	t.h->flags[0] = t.flag;
	assert_int_equal(harness_wait(harness_spawn(t.h)), 2);
	assert_true(harness_log_has(t.h, "file_tier: it needs host_tier"));
	t.h->flags[0] = "--host-tier=1M";
	assert_int_equal(harness_wait(harness_spawn(t.h)), 2);
	assert_true(harness_log_has(t.h, "one extent (32M) or more"));
}

static void a_file_is_verified(void **state)
{
	struct tiers t = tiers_of(state);

	tiers_make_file(&t);
	assert_int_equal(tiers_verify(&t), 0);
	tiers_put(t.path, 8, "\xff", 1);
	assert_int_equal(tiers_verify(&t), 1);
	tiers_done(&t);
	assert_int_equal(tiers_verify(&t), 1);
	assert_true(harness_log_has(t.h, "it cannot be opened: No such file or directory"));
}

#define CASES(loop) \
	{ \
		HARNESS_BARE(loop, tiers_are_reported), \
			HARNESS_BARE(loop, a_file_that_is_too_small_is_said), \
			HARNESS_BARE(loop, a_foreign_file_is_left_alone), \
			HARNESS_BARE(loop, a_truncated_file_is_said), \
			HARNESS_BARE(loop, another_version_is_said), \
			HARNESS_BARE(loop, a_damaged_head_is_said), \
			HARNESS_BARE(loop, a_folder_is_no_file), \
			HARNESS_BARE(loop, a_file_in_use_is_said), \
			HARNESS_BARE(loop, a_full_file_system_is_said), \
			HARNESS_BARE(loop, a_file_system_without_direct_io_is_said), \
			HARNESS_BARE(loop, a_file_that_cannot_be_written_is_said), \
			HARNESS_BARE(loop, memory_that_cannot_be_had_is_said), \
			HARNESS_BARE(loop, without_io_uring_there_is_no_file), \
			HARNESS_BARE(loop, a_file_needs_host_memory), \
			HARNESS_BARE(loop, a_file_is_verified), \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest epoll[] = CASES(epoll);
	const struct CMUnitTest uring[] = CASES(uring);
	int r = tiers_init(argc, argv);

	if (r)
		return r;
	r = cmocka_run_group_tests_name("tiers, epoll", epoll, NULL, NULL);
	r += cmocka_run_group_tests_name("tiers, io_uring", uring, NULL, NULL);
	return r;
}
