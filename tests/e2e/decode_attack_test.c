/*
 * decode_attack_test.c - programs that ask for more than is anybody's, and clients that are killed
 * wherever they are: others' tokens stay right, and nothing is left of them. COPPICE_SECONDS=600
 * has a thousand killed; without it as many as six seconds have room for.
 */
#include "decode_fixture.h"

#include "client/model/coppice_hf.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KILLS 1000u
#define KILL_S 6 /* as many of them as there is time for; with COPPICE_SECONDS all, within that */
#define VICTIMS 3u
#define SOON_US 10000u
#define LATE_US 60000u
#define PROMPT 80u
#define SETTLE_TRIES 200 /* of 50 ms and more */
#define FDS_LOOKS 50 /* of 1 ms */

struct decode_service service = {.options = {"--max-token-ms=10"}};

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

/* ---- who lives ------------------------------------------------------------------------------ */

/* What it says in the end is in its logits. */
static void tokens_of(struct decode_client *client)
{
	struct coppice_seq *seq = decode_anew(client, service.ids, PROMPT);

	for (uint32_t i = 0; i < 4; i++)
		decode_run(client, seq, service.ids + PROMPT + i, 1);
	coppice_seq_close(seq);
}

static void check_tokens(struct decode_client *client, const float *logits)
{
	tokens_of(client);
	decode_assert_same(client, logits);
}

/* ---- victims -------------------------------------------------------------------------------- */

/* Shared with them: of each, how many entries it has had so far. */
static _Atomic uint32_t *n_had;

/* Prompts, tokens, forks, until it is killed. */
static void victim_run(uint32_t number, uint32_t first, uint32_t n)
{
	struct decode_client client;
	struct coppice_seq *seq, *fork;

	alarm(60);
	decode_client_open(&client, &service);
	for (uint32_t turn = 0;; turn++) {
		seq = decode_anew(&client, service.ids + first, n);
		n_had[number]++;
		if (turn % 2 == 0 && coppice_seq_fork(seq, &fork) == 0)
			decode_run(&client, fork, service.ids + turn % 100, 20);
		for (uint32_t i = 0; i < 20; i++, n_had[number]++)
			decode_run(&client, seq, service.ids + first + n + i, 1);
		if (turn % 3 == 0)
			coppice_seq_close(seq);
	}
}

static pid_t victim_start(uint32_t number)
{
	uint32_t first = random_below(200), n = 1 + random_below(300);
	pid_t pid;

	n_had[number] = 0;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		victim_run(number, first, n);
		_exit(0);
	}
	return pid;
}

static void victim_end(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

struct kills {
	uint32_t n, n_at_work; /* of which some had tokens of theirs by then */
};

/* One after the other, some as they begin and some while they decode. */
static void kill_many(struct decode_client *client, const float *logits, uint32_t most,
		      struct kills *ret)
{
	const char *seconds = getenv("COPPICE_SECONDS");
	time_t end = time(NULL) + (seconds ? atoi(seconds) : KILL_S);
	pid_t pids[VICTIMS];

	*ret = (struct kills){0};
	for (uint32_t i = 0; i < VICTIMS; i++)
		pids[i] = victim_start(i);
	for (; ret->n < most - VICTIMS && time(NULL) < end; ret->n++) {
		uint32_t i = ret->n % VICTIMS;

		usleep(random_below(ret->n % 2 ? SOON_US : LATE_US));
		victim_end(pids[i]);
		ret->n_at_work += n_had[i] > 0;
		pids[i] = victim_start(i);
		if (ret->n % 8 == 0)
			check_tokens(client, logits);
	}
	for (uint32_t i = 0; i < VICTIMS; i++, ret->n++) {
		victim_end(pids[i]);
		ret->n_at_work += n_had[i] > 0;
	}
	if (seconds)
		assert_int_equal(ret->n, most);
}

/* ---- what is left --------------------------------------------------------------------------- */

/* What a client takes, by the daemon's own count: once what nobody uses has been evicted, that of
 * those who live. */
static const char *const counted[] = {
	"n_sessions",  "n_lanes",	   "n_seqs",	    "n_nodes",	    "n_tokens",
	"n_pages",     "pool_bytes_used",  "n_claims",	    "n_pins",	    "prompt_bytes",
	"arena_bytes", "kept_arena_bytes", "weights_bytes", "memory_bytes", "weight_names_bytes",
	"n_loads",     "passes_under_way", "n_input_waits", "n_unread_fds", "n_fds",
};
#define N_COUNTED (sizeof(counted) / sizeof(counted[0]))

struct left {
	unsigned long long of[N_COUNTED];
	unsigned long long n_fds; /* of the process */
};

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

/* Those of coppicectl's own session go a moment after it has ended. */
static uint32_t least_fds(void)
{
	uint32_t least = n_fds();

	for (int i = 0; i < FDS_LOOKS; i++) {
		uint32_t n = n_fds();

		least = n < least ? n : least;
		usleep(1000);
	}
	return least;
}

/* A number that coppicectl has told in its status. */
static unsigned long long number_in(const char *text, const char *key)
{
	char words[64];
	const char *at;

	snprintf(words, sizeof(words), "\"%s\":", key);
	at = strstr(text, words);
	if (!at)
		fail_msg("no %s in %s", key, text);
	return strtoull(at + strlen(words), NULL, 10);
}

static unsigned long long left_of(const struct left *left, const char *key)
{
	size_t i = 0;

	while (strcmp(counted[i], key) != 0)
		i++;
	return left->of[i];
}

/* Once there is nobody but the client that lives, and coppicectl; or after a long while. */
static struct left look(void)
{
	struct left left;

	for (int i = 0; i < SETTLE_TRIES; i++) {
		const char *text;

		decode_listing("evict");
		text = decode_listing("--json status");
		for (size_t k = 0; k < N_COUNTED; k++)
			left.of[k] = number_in(text, counted[k]);
		left.n_fds = least_fds();
		if (left_of(&left, "n_sessions") == 2)
			break;
	}
	return left;
}

/* Some of it goes a while after the session. */
static void assert_left(const struct left *before)
{
	struct left now = look();

	for (int i = 0; i < SETTLE_TRIES && memcmp(&now, before, sizeof(now)) != 0; i++)
		now = look();
	for (size_t i = 0; i < N_COUNTED; i++)
		if (now.of[i] != before->of[i])
			fail_msg("%s is %llu, and was %llu", counted[i], now.of[i], before->of[i]);
	assert_int_equal(now.n_fds, before->n_fds);
}

/* ---- kills ---------------------------------------------------------------------------------- */

static void killed_clients_leave_nothing_and_others_tokens_right(void **state)
{
	struct decode_client client;
	float logits[DECODE_VOCAB];
	struct left before;
	struct kills kills;

	(void)state;
	decode_client_open(&client, &service);
	n_had = mmap(NULL, VICTIMS * sizeof(*n_had), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(n_had != MAP_FAILED);
	tokens_of(&client);
	memcpy(logits, decode_logits(&client), sizeof(logits));
	before = look();
	kill_many(&client, logits, KILLS, &kills);
	print_message("%u kills, %u of who had had tokens\n", kills.n, kills.n_at_work);
	assert_true(kills.n_at_work > 0);
	check_tokens(&client, logits);
	assert_left(&before);
	check_tokens(&client, logits);
	munmap(n_had, VICTIMS * sizeof(*n_had));
	decode_client_close(&client);
}

/* A program takes 45 MB on a GPU, most of it memory for its products. */
static int setup(void **state)
{
	service.options[1] = decode_on_gpu() ? "--weights=256M" : "--weights=96M";
	return decode_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_whose_tokens_take_too_long_is_refused),
		cmocka_unit_test(programs_take_no_more_memory_than_there_is_for_weights),
		cmocka_unit_test(how_long_a_path_may_be_is_each_programs_own),
		cmocka_unit_test(killed_clients_leave_nothing_and_others_tokens_right),
	};

	return cmocka_run_group_tests(tests, setup, decode_teardown);
}
