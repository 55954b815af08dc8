/*
 * tier_file_refused_test.c - tier files that are not taken: each is a sentence, and left as it was.
 */
#include "tier_file_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_a_journal_without_heads_is_refused(void **state)
{
	struct fixture *f = *state;

	fixture_make(f);
	fixture_flip(f, TIER_HEAD_BYTES + 9);
	fixture_assert_refused(f, fixture_open(f), -EINVAL, "no area of it has a head");
}

static void test_too_small_a_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = fixture_config(f);

	config.bytes = 100000;
	fixture_assert_refused(f, fixture_open_as(f, &config), -EINVAL, "100000 is too little");
	assert_int_equal(access(f->path, F_OK), -1);
	config.bytes = UINT64_C(1) << 60;
	fixture_assert_refused(f, fixture_open_as(f, &config), -EFBIG, "1048576T is too much");
	config.typed_in = 'G';
	fixture_assert_refused(f, fixture_open_as(f, &config), -EFBIG, "1073741824G is too much");
	config.bytes = tier_head_least_bytes(UNIT, CHUNK);
	assert_int_equal(fixture_open_as(f, &config), 0);
	assert_int_equal(tier_file_catalog(f->file)->report.n_units, CHUNK);
}

static void test_units_and_chunks_that_no_file_has_are_refused(void **state)
{
	static const uint32_t sizes[][2] = {{0, CHUNK},
					    {UNIT + 512, CHUNK},
					    {512, CHUNK},
					    {UNIT, 0}};
	struct tier_head head;
	(void)state;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		assert_int_equal(tier_head_make(1 << 20, sizes[i][0], sizes[i][1], &head), -EINVAL);
	assert_int_equal(tier_head_make(1 << 20, UNIT, CHUNK, &head), 0);
}

static int n_open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Whatever there was at its name, and whether it was taken or not. */
static void test_a_file_that_is_closed_leaves_no_descriptor(void **state)
{
	struct fixture *f = *state;
	int n = n_open_fds();

	fixture_make(f);
	assert_int_equal(n_open_fds(), n);
	assert_int_equal(truncate(f->path, 0), 0);
	fixture_make(f);
	assert_int_equal(n_open_fds(), n);
	assert_int_equal(truncate(f->path, UNIT), 0);
	assert_true(fixture_open(f) < 0);
	assert_int_equal(n_open_fds(), n);
}

static void test_an_empty_file_is_filled(void **state)
{
	struct fixture *f = *state;

	close(open(f->path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(fixture_open(f), 0);
	assert_int_equal(tier_file_catalog(f->file)->report.n_images, 0);
}

static void test_a_truncated_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;

	fixture_make(f);
	assert_int_equal(truncate(f->path, 500000), 0);
	fixture_assert_refused(f, fixture_open(f), -EINVAL, "truncated: 500000 bytes of");
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), -EINVAL);
	assert_int_equal(truncate(f->path, 30), 0);
	assert_int_equal(fixture_open(f), -EINVAL);
}

static void test_a_damaged_head_is_refused(void **state)
{
	struct fixture *f = *state;

	fixture_make(f);
	fixture_flip(f, 33);
	fixture_assert_refused(f, fixture_open(f), -EINVAL, "head is damaged");
}

static void test_another_version_is_refused(void **state)
{
	struct fixture *f = *state;

	fixture_make(f);
	fixture_flip(f, 8);
	fixture_assert_refused(f, fixture_open(f), -EPROTONOSUPPORT,
			       "it has version 5, and this program knows 1");
}

static void test_a_foreign_file_is_left_alone(void **state)
{
	struct fixture *f = *state;
	char text[64] = "";
	int fd = open(f->path, O_CREAT | O_RDWR, 0600);

	assert_int_equal(write(fd, "Dear diary, ", 12), 12);
	fixture_assert_refused(f, fixture_open(f), -EINVAL, "no tier file");
	assert_int_equal(pread(fd, text, sizeof(text), 0), 12);
	assert_string_equal(text, "Dear diary, ");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(fixture_open(f), -EINVAL);
	close(fd);
}

static void test_a_file_without_direct_io_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = fixture_config(f);

	config.path = "/proc/self/comm";
	fixture_assert_refused(f, fixture_open_as(f, &config), -EOPNOTSUPP, "no direct I/O");
}

static void test_what_is_no_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = fixture_config(f);

	config.path = f->directory;
	assert_int_equal(fixture_open_as(f, &config), -EINVAL);
	config.path = "/nowhere/at/all";
	assert_int_equal(fixture_open_as(f, &config), -ENOENT);
}

/* Memory file systems know before they begin that they have not as much. */
static void test_a_full_file_system_is_refused(void **state)
{
	struct fixture *f = *state;
	char folder[] = "/dev/shm/coppice-tier-XXXXXX", path[sizeof(folder) + 8];
	struct tier_file_config config = fixture_config(f);
	struct statvfs fs;

	if (statvfs("/dev/shm", &fs) || fs.f_blocks == 0 || !mkdtemp(folder))
		skip();
	snprintf(path, sizeof(path), "%s/tier", folder);
	config.path = path;
	config.bytes = (fs.f_blocks + 1) * fs.f_frsize * 2;
	fixture_assert_refused(f, fixture_open_as(f, &config), -ENOSPC, "there is no room for");
	assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
}

static void test_a_read_only_file_is_refused(void **state)
{
	struct fixture *f = *state;

	fixture_make(f);
	assert_int_equal(chmod(f->path, 0444), 0);
	assert_int_equal(chmod(f->directory, 0755), 0);
	bool was_root = geteuid() == 0;
	if (was_root)
		assert_int_equal(seteuid(65534), 0);
	int r = fixture_open(f);
	if (was_root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(r, -EACCES);
	assert_non_null(strstr(f->error, "Permission denied"));
}

static void test_a_file_in_use_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;
	struct tier_file_config config = fixture_config(f);
	struct tier_file *other;

	assert_int_equal(fixture_open(f), 0);
	assert_int_equal(tier_file_open(&config, &other, f->error, sizeof(f->error)), -EBUSY);
	assert_non_null(strstr(f->error, "another process uses it"));
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), -EBUSY);
}

static void test_a_pipe_is_no_file(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;

	assert_int_equal(mkfifo(f->path, 0600), 0);
	fixture_assert_refused(f, fixture_open(f), -EINVAL, "it is no regular file");
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), -EINVAL);
	assert_non_null(strstr(f->error, "it is no regular file"));
}

/* In a process of its own, as filters stay. */
static int open_without_io_uring(struct fixture *f)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 77;
	struct tier_file_config config = fixture_config(f);
	int r = fixture_open_as(f, &config);
	return r == -EPERM && strstr(f->error, "io_uring is refused") ? 0 : 1;
}

static void test_a_refused_io_uring_is_a_sentence(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(open_without_io_uring(f));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_journal_without_heads_is_refused),
		TEST(test_too_small_a_file_is_refused),
		TEST(test_units_and_chunks_that_no_file_has_are_refused),
		TEST(test_a_file_that_is_closed_leaves_no_descriptor),
		TEST(test_an_empty_file_is_filled),
		TEST(test_a_truncated_file_is_refused),
		TEST(test_a_damaged_head_is_refused),
		TEST(test_another_version_is_refused),
		TEST(test_a_foreign_file_is_left_alone),
		TEST(test_a_file_without_direct_io_is_refused),
		TEST(test_what_is_no_file_is_refused),
		TEST(test_a_full_file_system_is_refused),
		TEST(test_a_read_only_file_is_refused),
		TEST(test_a_file_in_use_is_refused),
		TEST(test_a_pipe_is_no_file),
		TEST(test_a_refused_io_uring_is_a_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
