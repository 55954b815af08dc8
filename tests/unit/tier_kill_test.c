/*
 * tier_kill_test.c - a process that is killed while it writes to its tier file, again and again on
 * the same file.
 *
 * A child (this program with arguments) computes, evicts and promotes documents without a pause;
 * after a random time it is killed. Then the file is opened here: every byte of every document that
 * is found must be right, whatever the moment. COPPICE_SEED repeats the documents and times,
 * COPPICE_KILLS sets how many.
 */
#include "tier_world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_DOCUMENTS 24u
#define MAX_LETTERS 80u
#define MAX_DELAY_NS 12000000u

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 11;
}

/* Documents of three families: each begins as its family does, and goes on alone. */
static void document_of(uint32_t i, char *ret)
{
	uint64_t state = 2 * i + 12345;
	uint32_t n = 20 + (uint32_t)(random_next(&state) % (MAX_LETTERS - 20));
	uint32_t n_common = 5 + i * 7 % 31;

	for (uint32_t j = 0; j < n; j++)
		ret[j] = j < n_common ? (char)('a' + (i % 3 * 5 + j) % 26)
				      : (char)('A' + random_next(&state) % 26);
	ret[n] = 0;
}

/* Two documents find room on the device, whatever part they share. */
static struct tier_world_options options_of(const char *path)
{
	return (struct tier_world_options){
		.device_pages = 48, .host_pages = 24, .file_pages = 160, .path = path, .depth = 8};
}

/* Until killed. */
static int child(const char *path, uint64_t seed)
{
	struct tier_world w;
	char error[256], document[MAX_LETTERS + 1];
	uint64_t state = seed * 2 + 1;

	if (tier_world_open(&w, options_of(path), error, sizeof(error))) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	if (write(STDOUT_FILENO, "", 1) != 1)
		return 1;
	for (;;) {
		document_of((uint32_t)(random_next(&state) % N_DOCUMENTS), document);
		tier_world_leave(&w, document);
		for (uint64_t i = random_next(&state) % 6; i > 0; i--)
			store_tiers_poll(w.store, ++w.now_ns);
		if (random_next(&state) % 8 == 0)
			store_evict(w.store, NULL, 20, 20);
		if (random_next(&state) % 64 == 0)
			store_tiers_flush(w.store);
	}
}

static pid_t child_start(const char *path, uint64_t seed)
{
	char number[32], byte;
	int ends[2];

	snprintf(number, sizeof(number), "%lu", seed);
	assert_int_equal(pipe(ends), 0);
	pid_t pid = vfork(); /* this program is large, most of all under ASan: nothing is copied */
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execl("/proc/self/exe", "tier_kill_test", path, number, NULL);
		_exit(1);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	return pid;
}

static void child_kill(pid_t pid, uint64_t after_ns)
{
	struct timespec time = {.tv_nsec = (long)after_ns};
	int status;

	nanosleep(&time, NULL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("the child ended by itself: status %x", status);
}

struct totals {
	uint64_t n_images, n_tokens, n_served, n_torn, n_lost, n_bad;
};

/* All of what the file holds is compared. */
static void file_check(const char *path, struct totals *totals)
{
	static const struct tier_world_key any;
	struct tier_world w;
	char error[256], document[MAX_LETTERS + 1];

	if (tier_world_open(&w, options_of(path), error, sizeof(error)))
		fail_msg("%s", error);
	for (uint32_t i = 0; i < N_DOCUMENTS; i++) {
		document_of(i, document);
		totals->n_served += tier_world_cached(&w, any, document);
	}
	totals->n_images += w.report.n_images;
	totals->n_tokens += w.found.n_tokens;
	totals->n_torn += w.report.journal_torn;
	totals->n_lost += w.found.n_lost;
	totals->n_bad += tier_world_stats(&w).images_bad;
	tier_world_close(&w);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void test_kills_at_random_moments_leave_only_what_is_right(void **state)
{
	char directory[] = "tier_kill_test.XXXXXX", path[64];
	uint64_t seed = number_from("COPPICE_SEED", (uint64_t)time(NULL));
	uint64_t n_kills = number_from("COPPICE_KILLS", 200), random = seed * 2 + 1;
	struct totals totals = {0};

	(void)state;
	printf("COPPICE_SEED=%lu COPPICE_KILLS=%lu\n", seed, n_kills);
	fflush(stdout);
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/kv", directory);
	file_check(path, &totals);
	for (uint64_t i = 0; i < n_kills; i++) {
		pid_t pid = child_start(path, seed + i);
		child_kill(pid, random_next(&random) % MAX_DELAY_NS);
		file_check(path, &totals);
	}
	printf("found %lu images, %lu tokens; served %lu tokens, all right; lost: %lu torn "
	       "journals, "
	       "%lu images without their path, %lu altered\n",
	       totals.n_images, totals.n_tokens, totals.n_served, totals.n_torn, totals.n_lost,
	       totals.n_bad);
	assert_true(totals.n_served > 0 || n_kills < 20);
	unlink(path);
	assert_int_equal(rmdir(directory), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kills_at_random_moments_leave_only_what_is_right),
	};

	if (argc == 3)
		return child(argv[1], strtoull(argv[2], NULL, 0));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
