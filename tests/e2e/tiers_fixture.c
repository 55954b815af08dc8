/*
 * tiers_fixture.c - the daemon's flags for its tiers, with a limit to its files too, and bytes of
 * the tier file read, written and verified.
 */
#include "tiers_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int tiers_init(int argc, char **argv)
{
	if (harness_init(argc, argv) < 0)
		return 1;
	if (harness_has_uring())
		return 0;
	print_message("no io_uring here, and so no file\n");
	return 77;
}

struct tiers tiers_of(void **state)
{
	struct tiers t = {.h = *state};

	snprintf(t.path, sizeof(t.path), "%s/tier", t.h->folder);
	snprintf(t.flag, sizeof(t.flag), "--file-tier=%s", t.path);
	return t;
}

void tiers_start_with(struct tiers *t, const char *host, const char *file_bytes)
{
	t->h->flags[0] = host;
	t->h->flags[1] = t->flag;
	t->h->flags[2] = file_bytes;
	harness_start(t->h);
}

void tiers_done(struct tiers *t)
{
	unlink(t->path);
}

void tiers_get(const char *path, off_t at, void *ret, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, ret, n, at), (ssize_t)n);
	close(fd);
}

void tiers_put(const char *path, off_t at, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
	close(fd);
}

void tiers_start_limited(struct tiers *t, uint64_t bytes)
{
	struct rlimit before, small;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){bytes, before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	tiers_start_with(t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

int tiers_verify(const struct tiers *t)
{
	char flag[160];

	snprintf(flag, sizeof(flag), "--verify-tier=%s", t->path);
	t->h->flags[0] = flag;
	t->h->flags[1] = NULL;
	int status = harness_wait(harness_spawn(t->h));
	t->h->flags[0] = NULL;
	return status;
}

void tiers_make_file(struct tiers *t)
{
	tiers_start_with(t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_int_equal(harness_stop(t->h, SIGTERM), 0);
}
