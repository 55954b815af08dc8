/*
 * decode_attack_test.c - programs that ask for more than is anybody's, and clients that are killed
 * wherever they are: others' tokens stay right, and nothing is left of them.
 */
#include "decode_fixture.h"

#include "client/model/coppice_hf.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KILLS 1000u
#define KILL_S 6 /* or as many as there is time for; COPPICE_SECONDS: that long */
#define VICTIMS 3u
#define PROMPT 80u

struct decode_service service = {.options = {"--max-token-ms=10", "--weights=96M"}};

/* ---- programs ------------------------------------------------------------------------------- */

static void expect_words(struct decode_client *client, int r, int error, const char *words)
{
	assert_int_equal(r, error);
	if (!strstr(coppice_explain(client->c), words))
		fail_msg("\"%s\" does not say \"%s\"", coppice_explain(client->c), words);
}

static void a_program_whose_tokens_take_too_long_is_refused(void **state)
{
	struct coppice_hf_program *program;
	struct coppice_program_info info;
	struct decode_client client;
	uint32_t model;

	(void)state;
	decode_client_open(&client, &service);
	program = decode_program(&client);
	info = decode_deep_program(program);
	expect_words(&client, coppice_program_new(client.c, client.weights, &info, &model), -E2BIG,
		     "max_token_ms");
	coppice_hf_free(program);
	decode_prompt(&client, service.ids, 40);
	decode_client_close(&client);
}

/* Each program has memory of its own for rows: it counts as its weights do. */
static void programs_take_no_more_memory_than_there_is_for_weights(void **state)
{
	struct coppice_hf_program *program;
	struct coppice_program_info info;
	struct decode_client client;
	uint32_t model, n = 0;
	int r;

	(void)state;
	decode_client_open(&client, &service);
	program = decode_program(&client);
	info = program->info;
	do {
		info.eps += 1e-6f;
		r = coppice_program_new(client.c, client.weights, &info, &model);
	} while (r == 0 && n++ < 15);
	expect_words(&client, r, -EDQUOT, "domain_weights");
	decode_prompt(&client, service.ids, 40);
	decode_client_close(&client);
	decode_client_open(&client, &service);
	info.eps += 1e-6f;
	assert_int_equal(coppice_program_new(client.c, client.weights, &info, &model), 0);
	coppice_hf_free(program);
	decode_client_close(&client);
}

static void how_long_a_path_may_be_is_each_programs_own(void **state)
{
	struct coppice_hf_program *program;
	struct coppice_match match;
	struct decode_client client;
	struct coppice_seq *seq;
	uint64_t ticket;

	(void)state;
	decode_client_open(&client, &service);
	program = decode_program(&client);
	decode_prompt(&client, service.ids, 30);
	program->info.max_positions = 20;
	assert_int_equal(coppice_program_new(client.c, client.weights, &program->info,
					     &client.model),
			 0);
	seq = decode_open(&client, service.ids, 10, &match);
	assert_int_equal(match.cached, 9);
	decode_run(&client, seq, service.ids + 9, 11);
	const struct coppice_decode_seq part = {seq, service.ids, 1, 0, NULL};
	const struct coppice_decode decode = {.seqs = &part, .n_seqs = 1};

	assert_int_equal(coppice_decode(client.lane, &decode, &ticket), 0);
	assert_int_equal(coppice_wait(client.lane, ticket, COPPICE_SECONDS(10)), -E2BIG);
	coppice_hf_free(program);
	decode_client_close(&client);
}

/* ---- kills ---------------------------------------------------------------------------------- */

static uint32_t random_below(uint32_t n)
{
	static uint64_t state;

	if (!state) {
		const char *seed = getenv("COPPICE_SEED");

		state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
		print_message("COPPICE_SEED=%llu\n", (unsigned long long)state);
		state |= 1;
	}
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(state >> 33) % n;
}

/* Prompts, tokens, forks, until it is killed. */
static void victim_run(uint32_t first, uint32_t n)
{
	struct decode_client client;
	struct coppice_seq *seq, *fork;

	alarm(60);
	decode_client_open(&client, &service);
	for (uint32_t turn = 0;; turn++) {
		seq = decode_anew(&client, service.ids + first, n);
		if (turn % 2 == 0 && coppice_seq_fork(seq, &fork) == 0)
			decode_run(&client, fork, service.ids + turn % 100, 20);
		for (uint32_t i = 0; i < 20; i++)
			decode_run(&client, seq, service.ids + first + n + i, 1);
		if (turn % 3 == 0)
			coppice_seq_close(seq);
	}
}

static pid_t victim_start(void)
{
	uint32_t first = random_below(200), n = 1 + random_below(300);
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		victim_run(first, n);
		_exit(0);
	}
	return pid;
}

static void victim_end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static uint32_t n_fds(void)
{
	struct dirent *entry;
	uint32_t n = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)service.pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n++;
	closedir(dir);
	return n;
}

/* A number that coppicectl tells in its status. */
static unsigned long long status_of(const char *key)
{
	const char *text = decode_listing("--json status"), *at;
	char words[64];

	snprintf(words, sizeof(words), "\"%s\":", key);
	at = strstr(text, words);
	if (!at)
		fail_msg("no %s in %s", key, text);
	return strtoull(at + strlen(words), NULL, 10);
}

static void settle(const char *key, unsigned long long value)
{
	for (int i = 0; i < 1000 && status_of(key) != value; i++)
		usleep(10000);
	assert_int_equal(status_of(key), value);
}

static void check_tokens(struct decode_client *client, float *logits, bool first)
{
	struct coppice_seq *seq = decode_anew(client, service.ids, PROMPT);

	for (uint32_t i = 0; i < 4; i++)
		decode_run(client, seq, service.ids + PROMPT + i, 1);
	if (first)
		memcpy(logits, decode_logits(client), DECODE_VOCAB * sizeof(*logits));
	assert_memory_equal(decode_logits(client), logits, DECODE_VOCAB * sizeof(*logits));
	coppice_seq_close(seq);
}

static void killed_clients_leave_nothing_and_others_tokens_right(void **state)
{
	struct decode_client client;
	float logits[DECODE_VOCAB];
	pid_t pids[VICTIMS];
	unsigned long long n_seqs, weights_bytes;
	uint32_t n = 0, fds;
	const char *seconds = getenv("COPPICE_SECONDS");
	time_t end = time(NULL) + (seconds ? atoi(seconds) : KILL_S);

	(void)state;
	decode_client_open(&client, &service);
	check_tokens(&client, logits, true);
	n_seqs = status_of("n_seqs");
	weights_bytes = status_of("weights_bytes");
	fds = n_fds();
	for (uint32_t i = 0; i < VICTIMS; i++)
		pids[i] = victim_start();
	for (; n < KILLS && time(NULL) < end; n++) {
		usleep(random_below(10000));
		victim_end(pids[n % VICTIMS]);
		pids[n % VICTIMS] = victim_start();
		if (n % 8 == 0)
			check_tokens(&client, logits, false);
	}
	for (uint32_t i = 0; i < VICTIMS; i++)
		victim_end(pids[i]);
	print_message("%u kills\n", n + VICTIMS);
	check_tokens(&client, logits, false);
	settle("n_seqs", n_seqs);
	settle("weights_bytes", weights_bytes);
	for (int i = 0; i < 1000 && n_fds() > fds; i++)
		usleep(10000);
	assert_true(n_fds() <= fds);
	decode_client_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_whose_tokens_take_too_long_is_refused),
		cmocka_unit_test(programs_take_no_more_memory_than_there_is_for_weights),
		cmocka_unit_test(how_long_a_path_may_be_is_each_programs_own),
		cmocka_unit_test(killed_clients_leave_nothing_and_others_tokens_right),
	};

	return cmocka_run_group_tests(tests, decode_setup, decode_teardown);
}
