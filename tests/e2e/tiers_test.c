/*
 * tiers_test.c - the daemon as a process, with tiers below its pool: what is wrong with a tier is a clear sentence and a
 * working daemon without it, what is wrong in a file a sentence and right answers. On both loops.
 */
#include "element.h"
#include "tier_documents.h"

#include "kvstore/tier_catalog.h"
#include "kvstore/tier_head.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct tiers {
	struct harness *h;
	char path[128], flag[160];
};

static struct tiers tiers_of(void **state)
{
	struct tiers t = {.h = *state};

	snprintf(t.path, sizeof(t.path), "%s/tier", t.h->folder);
	snprintf(t.flag, sizeof(t.flag), "--file-tier=%s", t.path);
	return t;
}

static void start_with(struct tiers *t, const char *host, const char *file_bytes)
{
	t->h->flags[0] = host;
	t->h->flags[1] = t->flag;
	t->h->flags[2] = file_bytes;
	harness_start(t->h);
}

/* Capacities of host memory and file as the daemon reports them; 0: no such tier. The daemon serves. */
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

static void done(struct tiers *t)
{
	unlink(t->path);
}

static void tiers_are_reported(void **state)
{
	struct tiers t = tiers_of(state);

	start_with(&t, "--host-tier=64M", "--file-tier-bytes=130M");
	assert_true(harness_log_has(t.h, "lower tiers: 64 MiB of host memory, file "));
	assert_tiers(&t, 64, 96);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=1G");
	assert_tiers(&t, 64, 96); /* a file that is there keeps its size */
	done(&t);
}

static void a_file_that_is_too_small_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	start_with(&t, "--host-tier=64M", "--file-tier-bytes=4M");
	assert_true(harness_log_has(t.h, "4194304 bytes are too few"));
	assert_tiers(&t, 64, 0);
	assert_int_not_equal(access(t.path, F_OK), 0);
}

static void get(const char *path, off_t at, void *ret, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, ret, n, at), (ssize_t)n);
	close(fd);
}

static void put(const char *path, off_t at, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
	close(fd);
}

static void a_foreign_file_is_left_alone(void **state)
{
	struct tiers t = tiers_of(state);
	struct stat st;

	put(t.path, 0, "poem", 4);
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "it is no tier file, and is left alone"));
	assert_tiers(&t, 64, 0);
	assert_int_equal(stat(t.path, &st), 0);
	assert_int_equal(st.st_size, 4);
	done(&t);
}

/* A file of a daemon that was, with something done to it. */
static void a_file(struct tiers *t)
{
	start_with(t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_int_equal(harness_stop(t->h, SIGTERM), 0);
}

static void a_truncated_file_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	a_file(&t);
	assert_int_equal(truncate(t.path, 1 << 20), 0);
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "going on without it"));
	assert_tiers(&t, 64, 0);
	done(&t);
}

static void another_version_is_said(void **state)
{
	struct tiers t = tiers_of(state);
	const uint32_t version = 77;

	a_file(&t);
	put(t.path, 8, &version, sizeof(version));
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "version 77"));
	assert_tiers(&t, 64, 0);
	done(&t);
}

static void a_damaged_head_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	a_file(&t);
	put(t.path, 20, "\xff", 1);
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "going on without it"));
	assert_tiers(&t, 64, 0);
	done(&t);
}

static void a_folder_is_no_file(void **state)
{
	struct tiers t = tiers_of(state);

	assert_int_equal(mkdir(t.path, 0700), 0);
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "it is no regular file"));
	assert_tiers(&t, 64, 0);
	rmdir(t.path);
}

static void a_file_in_use_is_said(void **state)
{
	struct tiers t = tiers_of(state);
	struct harness *other;

	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	other = harness_new(t.h->loop);
	struct tiers u = {.h = other};
	memcpy(u.flag, t.flag, sizeof(u.flag));
	start_with(&u, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(other, "another process uses it"));
	assert_tiers(&u, 64, 0);
	harness_free(other);
	assert_tiers(&t, 64, 32);
	done(&t);
}

/* A daemon that writes nothing to a file beyond so many bytes of it. */
static void start_limited(struct tiers *t, rlim_t bytes)
{
	struct rlimit before, small;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){bytes, before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	start_with(t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* Files may not grow beyond 16 MiB, as where a file system is full. */
static void a_full_file_system_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	start_limited(&t, 16 << 20);
	assert_true(harness_log_has(t.h, "there is no room for "));
	assert_tiers(&t, 64, 0);
	assert_int_not_equal(access(t.path, F_OK), 0);
}

static void a_file_system_without_direct_io_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	strcpy(t.flag, "--file-tier=/proc/self/comm");
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "its file system has no direct I/O (O_DIRECT)"));
	assert_tiers(&t, 64, 0);
}

/* Files of the kernel's that nobody may write to stand for a file system that is mounted so. */
static void a_file_that_cannot_be_written_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	strcpy(t.flag, "--file-tier=/proc/version");
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "tier file /proc/version: it"));
	assert_true(harness_log_has(t.h, "going on without it"));
	assert_tiers(&t, 64, 0);
}

/* Nor is there a stage then, whose memory goes back. */
static void memory_that_cannot_be_had_is_said(void **state)
{
	struct tiers t = tiers_of(state);

	t.h->flags[3] = "--stage=32M";
	start_with(&t, "--host-tier=4T", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "of host memory cannot be had or not be pinned"));
	assert_tiers(&t, 0, 0);
	done(&t);
}

static void without_io_uring_there_is_no_file(void **state)
{
	struct tiers t = tiers_of(state);

	t.h->loop = "auto";
	t.h->refuse_uring = true;
	start_with(&t, "--host-tier=64M", "--file-tier-bytes=64M");
	assert_true(harness_log_has(t.h, "io_uring is refused: Operation not permitted"));
	assert_tiers(&t, 64, 0);
	done(&t);
}

static void a_file_needs_host_memory(void **state)
{
	struct tiers t = tiers_of(state);

	t.h->flags[0] = t.flag;
	assert_int_equal(harness_wait(harness_spawn(t.h)), 1);
	assert_true(harness_log_has(t.h, "file_tier: it needs host_tier"));
	t.h->flags[0] = "--host-tier=1M";
	assert_int_equal(harness_wait(harness_spawn(t.h)), 1);
	assert_true(harness_log_has(t.h, "one extent (33554432) or more"));
}

static int verify(const struct tiers *t)
{
	char flag[160];

	snprintf(flag, sizeof(flag), "--verify-tier=%s", t->path);
	t->h->flags[0] = flag;
	t->h->flags[1] = NULL;
	return harness_wait(harness_spawn(t->h));
}

static void a_file_is_verified(void **state)
{
	struct tiers t = tiers_of(state);

	a_file(&t);
	assert_int_equal(verify(&t), 0);
	put(t.path, 8, "\xff", 1);
	assert_int_equal(verify(&t), 1);
	done(&t);
	assert_int_equal(verify(&t), 1);
	assert_true(harness_log_has(t.h, "it cannot be opened: No such file or directory"));
}

/* ---- documents -------------------------------------------------------------------------------------------------- */

#define DOC 3u
#define BEFORE 5u /* pages of the document before what is altered */
#define PAGE_TOKENS (DOCUMENT_TOKENS / DOCUMENT_PAGES)

/* Its right answers; returns how many tokens were there. */
static uint32_t document_ask(struct tiers *t)
{
	struct reader r;
	int n_cached;

	reader_open(&r, t->h);
	n_cached = document_use(&r, DOC, DOCUMENT_TOKENS);
	reader_close(&r);
	assert_true(n_cached >= 0);
	return (uint32_t)n_cached;
}

static void start(struct tiers *t)
{
	start_with(t, "--host-tier=64M", "--file-tier-bytes=64M");
}

/* A file that has the document, and the daemon that wrote it has ended. */
static void a_written_file(struct tiers *t)
{
	start(t);
	assert_int_equal(document_ask(t), 0);
	assert_int_equal(harness_stop(t->h, SIGTERM), 0);
}

static struct tier_head head_of(const struct tiers *t)
{
	struct tier_head head;

	get(t->path, 0, &head, sizeof(head));
	return head;
}

static void flip(const struct tiers *t, uint64_t at)
{
	uint8_t byte;

	get(t->path, (off_t)at, &byte, 1);
	byte ^= 16;
	put(t->path, (off_t)at, &byte, 1);
}

/* A byte of the page after the first five. They lie one after the other, in whole units. */
static void flip_page(const struct tiers *t)
{
	struct tier_head head = head_of(t);
	uint64_t page_bytes = 2 * 2 * PAGE_TOKENS * 64 * element_bytes(), at = 0;

	while (at < BEFORE * page_bytes)
		at += (page_bytes + head.unit_bytes - 1) / head.unit_bytes * head.unit_bytes;
	flip(t, head.data_at + at + 1000);
}

static void an_altered_page_is_said_and_computed_anew(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	flip_page(&t);
	start(&t);
	assert_true(harness_log_has(t.h, "tier: 384 tokens are there"));
	assert_false(harness_log_has(t.h, "altered"));
	assert_int_equal(document_ask(&t), BEFORE * PAGE_TOKENS);
	assert_true(harness_log_has(t.h, "tier: 1 pages of it came back altered, or not at all, "
					 "since the start; what they held is computed anew"));
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	assert_false(harness_log_has(t.h, "tier: 2 pages"));
	start(&t);
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1); /* it is in the file again */
	done(&t);
}

/* Where the record of the image after the first five lies, in a journal that has no other but the model's. */
static uint64_t record_at(void)
{
	const uint64_t head_bytes = 16;
	uint64_t image = head_bytes + sizeof(struct tier_image) + PAGE_TOKENS * sizeof(uint32_t);

	return TIER_HEAD_BYTES + TIER_JOURNAL_BLOCK + head_bytes + sizeof(struct tier_model) +
	       BEFORE * image;
}

static void an_altered_journal_is_said_and_holds_up_to_there(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	flip(&t, record_at() + 70);
	start(&t);
	assert_true(harness_log_has(t.h, "tier: its journal ends in the middle of a record; what "
					 "came before it holds"));
	assert_true(harness_log_has(t.h, "tier: 160 tokens are there"));
	assert_int_equal(document_ask(&t), BEFORE * PAGE_TOKENS);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	start(&t);
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1); /* what was lost is there again */
	done(&t);
}

/* What the status says of it; empty: nothing. */
static void tier_error(const struct tiers *t, char *ret, size_t bytes)
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c = client_open(t->h);
	const Coppice__Reply *reply = client_verb(&c, status, &status);

	snprintf(ret, bytes, "%s", reply->status->tier_error ? reply->status->tier_error : "");
	client_close(&c);
}

/* What nobody uses leaves the pool, and is written to the file. */
static void evict(const struct tiers *t)
{
	Coppice__Evict all = COPPICE__EVICT__INIT;
	struct client c = client_open(t->h);

	assert_int_equal(client_verb(&c, evict, &all)->code, 0);
	client_close(&c);
}

/* Its journal can be written, its pages cannot. */
static void a_file_that_takes_no_more_is_said_once(void **state)
{
	struct tiers t = tiers_of(state);
	char why[64];

	a_file(&t);
	start_limited(&t, head_of(&t).data_at);
	assert_int_equal(document_ask(&t), 0);
	evict(&t);
	for (int i = 0; i < 1000 && !harness_log_has(t.h, "is written to it any more"); i++)
		sleep_ms(5);
	assert_true(
		harness_log_has(t.h, "tier: nothing is written to it any more: File too large"));
	tier_error(&t, why, sizeof(why));
	assert_string_equal(why, "File too large");
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	start(&t);
	assert_true(harness_log_has(t.h, "tier: 0 tokens are there"));
	tier_error(&t, why, sizeof(why));
	assert_string_equal(why, "");
	done(&t);
}

static void altered_pages_are_counted_by_a_verification(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	assert_int_equal(verify(&t), 0);
	assert_true(harness_log_has(t.h, "  pages      12 of 1 models, 384 tokens\n"));
	assert_true(harness_log_has(t.h, "  altered    0 pages whose bytes"));
	flip_page(&t);
	assert_int_equal(verify(&t), 1);
	assert_true(harness_log_has(t.h,
				    "  altered    1 pages whose bytes are not what was written\n"));
	done(&t);
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
			HARNESS_BARE(loop, an_altered_page_is_said_and_computed_anew), \
			HARNESS_BARE(loop, an_altered_journal_is_said_and_holds_up_to_there), \
			HARNESS_BARE(loop, a_file_that_takes_no_more_is_said_once), \
			HARNESS_BARE(loop, altered_pages_are_counted_by_a_verification), \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest epoll[] = CASES(epoll);
	const struct CMUnitTest uring[] = CASES(uring);
	int failures;

	if (harness_init(argc, argv) < 0)
		return 1;
	if (!harness_has_uring()) {
		print_message("no io_uring here, and so no file\n");
		return 77;
	}
	failures = cmocka_run_group_tests_name("tiers, epoll", epoll, NULL, NULL);
	failures += cmocka_run_group_tests_name("tiers, io_uring", uring, NULL, NULL);
	return failures;
}
