/*
 * tiers_kill_test.c - a daemon that is killed while KV is on its way to its tier file, again and
 * again on the same file.
 *
 * A client computes documents, many more than the pool has room for; at a random moment the daemon
 * is killed. Of the next one some documents are asked for each time, a part of each and then the
 * whole, others at random; what attention gives is compared with what it gives here
 * (tier_documents.h). COPPICE_SEED repeats the moments, COPPICE_KILLS sets how many.
 */
#include "tier_documents.h"
#include "tiers_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_DOCS 12u /* that are asked for each time */
#define N_OTHERS (4 * N_DOCS)
#define MAX_DELAY_US 20000u
#define MAX_DOCS 60u /* before that; the pool has room for 20 */

static uint64_t random_state;

static uint32_t draw(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(random_state >> 33) % n;
}

/* A document that a daemon before may have left; returns how much of it was there. */
static uint64_t document_ask(struct reader *r, uint32_t doc)
{
	int part = document_use(r, doc, 1 + draw(DOCUMENT_TOKENS));
	int whole = document_use(r, doc, DOCUMENT_TOKENS);

	assert_true(part >= 0 && whole >= 0);
	return (uint64_t)part;
}

static int other_use(struct reader *r)
{
	return document_use(r, N_DOCS + draw(N_OTHERS), DOCUMENT_TOKENS);
}

static uint64_t bytes_in_file(const struct harness *h)
{
	struct client root = client_open(h);
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__Reply *reply = client_verb(&root, status, &m);
	uint64_t bytes = 0;

	assert_int_equal(reply->code, 0);
	for (size_t i = 0; i < reply->status->n_tier; i++) {
		const Coppice__TierStatus *tier = reply->status->tier[i];

		bytes += strcmp(tier->name, "file") == 0 ? tier->bytes_in : 0;
	}
	client_close(&root);
	return bytes;
}

/* What is asked for each time goes first: it has not been used for longest. */
static void fill_until_the_file_has_some(struct reader *r, const struct harness *h)
{
	for (uint32_t doc = 0; doc < N_DOCS; doc++)
		assert_true(document_use(r, doc, DOCUMENT_TOKENS) >= 0);
	while (bytes_in_file(h) == 0)
		assert_true(other_use(r) >= 0);
}

/* Kills the daemon some time from now. */
static pid_t kill_later(pid_t daemon)
{
	pid_t pid = fork();

	if (pid == 0) {
		usleep(1000 + draw(MAX_DELAY_US));
		kill(daemon, SIGKILL);
		_exit(0);
	}
	return pid;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void what_a_killed_daemon_leaves_is_right(void **state)
{
	struct harness *h = *state;
	uint64_t n_kills = number_from("COPPICE_KILLS", 25);
	uint64_t seed = number_from("COPPICE_SEED", (uint64_t)time(NULL)), n_found = 0;

	setenv("COPPICE_TEST_TIERS", "1", 1);
	random_state = seed;
	print_message("COPPICE_SEED=%lu COPPICE_KILLS=%lu\n", seed, n_kills);
	for (uint64_t i = 0; i < n_kills; i++) {
		struct reader r;

		harness_start(h);
		reader_open(&r, h);
		if (i == 0)
			fill_until_the_file_has_some(&r, h);
		for (uint32_t doc = 0; doc < N_DOCS && i > 0; doc++)
			n_found += document_ask(&r, doc);
		for (uint32_t n = draw(MAX_DOCS); n > 0; n--)
			assert_true(other_use(&r) >= 0);
		pid_t killer = kill_later(h->pid);
		while (other_use(&r) >= 0)
			;
		reader_close(&r);
		assert_int_equal(harness_wait(killer), 0);
		assert_int_equal(harness_wait(h->pid), -SIGKILL);
		h->pid = 0;
	}
	print_message("%lu tokens were found in all\n", n_found);
	assert_true(n_kills < 2 || n_found > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_BARE(epoll, what_a_killed_daemon_leaves_is_right),
	};
	int r = tiers_init(argc, argv);

	if (r)
		return r;
	return cmocka_run_group_tests_name("kills", tests, NULL, NULL);
}
