/*
 * agent_faults_test.c - what goes wrong with coppice-agent is one sentence and a status. argv[1] is
 * the daemon's program.
 */
#include "agent_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what goes wrong ------------------------------------------------------------------------ */

/* Status 1, nothing on stdout, and one sentence that has the words. */
static void assert_refuses(const struct agent *a, const char *words)
{
	static const char name[] = "coppice-agent: ";
	const char *said = agent_said(a);

	if (a->status != 1 || !strstr(said, words))
		fail_msg("ended with %d, not saying \"%s\": %s", a->status, words, a->err);
	assert_string_equal(a->out, "");
	assert_memory_equal(said, name, strlen(name));
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

static void nobody_to_attend_is_one_sentence(void **state)
{
	static struct agent a;

	agent_run(&a, *state, WORDS("-p", "x", "--socket", "/nowhere/at/all"));
	assert_refuses(&a, "there is no socket /nowhere/at/all");
	agent_run(&a, *state, WORDS("-p", "x", "--socket", "/tmp"));
	assert_refuses(&a, "/tmp is a directory, no socket");
	agent_run(&a, *state, WORDS("-p", "x", "--socket", DOCUMENT));
	assert_refuses(&a, " is a file, no socket");
}

static void a_daemons_death_is_one_sentence(void **state)
{
	struct harness *h = *state;

	for (enum way way = AUTO; way < N_WAYS; way++) {
		static struct agent a;
		struct client watch = client_open(h);

		agent_start(&a, h,
			    WORDS("-p", "x", "-n", "8000", "--layer-sleep-us", "2000", "--json",
				  "--layers", ways[way]));
		count_becomes(&watch, 2);
		client_close(&watch);
		harness_stop(h, SIGKILL);
		agent_end(&a);
		assert_refuses(&a, "daemon");
		harness_start(h);
	}
}

static void a_model_that_is_not_there_is_one_sentence(void **state)
{
	static struct agent a;

	agent_run(&a, *state, WORDS("-p", "x", "-m", "/no/such/model"));
	assert_refuses(&a, "/no/such/model");
	agent_run(&a, *state, WORDS("-p", "x", "-m", MODEL_DIR "/fixture/trained"));
	assert_refuses(&a, "config.json");
}

static void a_prompt_that_is_not_there_is_one_sentence(void **state)
{
	static struct agent a;

	agent_run(&a, *state, WORDS("-p", "x", "-d", "/no/such/document"));
	assert_refuses(&a, "/no/such/document");
	agent_run(&a, *state, WORDS("-p", ""));
	assert_refuses(&a, "empty");
	agent_run(&a, *state, WORDS("-p", "x", "-n", "8192"));
	assert_refuses(&a, "8192 positions");
}

static void *read_whole(const char *path, size_t *ret_bytes)
{
	FILE *file = fopen(path, "re");
	void *bytes = malloc(16u << 20);

	assert_true(file && bytes);
	*ret_bytes = fread(bytes, 1, 16u << 20, file);
	assert_int_equal(fclose(file), 0);
	return bytes;
}

static void write_whole(const char *path, const void *bytes, size_t n)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, n, file), n);
	assert_int_equal(fclose(file), 0);
}

static void damaged_weights_are_one_sentence(void **state)
{
	static const struct {
		size_t at; /* of a byte that is flipped */
		size_t n_lost; /* bytes at the end */
		const char *words[N_WAYS];
	} cases[] = {
		{SIZE_MAX, 1000, {"cut off", "cut off"}},
		{SIZE_MAX, SIZE_MAX, {"too ", "too few"}},
		{8, 0, {"not a JSON object", "not a JSON object"}},
		{6, 0, {"not a safetensors file", "not a safetensors file"}},
	};
	static struct agent a;
	char folder[] = "/tmp/agent-test-XXXXXX", weights[64], config[64];
	size_t n_bytes, n_config;
	char *bytes = read_whole(MODEL_DIR "/model.safetensors", &n_bytes);
	char *text = read_whole(MODEL_DIR "/config.json", &n_config);

	assert_non_null(mkdtemp(folder));
	snprintf(weights, sizeof(weights), "%s/model.safetensors", folder);
	snprintf(config, sizeof(config), "%s/config.json", folder);
	write_whole(config, text, n_config);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t n_left = cases[i].n_lost < n_bytes ? n_bytes - cases[i].n_lost : 0;

		if (cases[i].at < n_bytes)
			bytes[cases[i].at] ^= 0x55;
		write_whole(weights, bytes, n_left);
		if (cases[i].at < n_bytes)
			bytes[cases[i].at] ^= 0x55;
		for (enum way way = AUTO; way < N_WAYS; way++) {
			agent_run(&a, *state,
				  WORDS("-p", "x", "-m", folder, "--layers", ways[way]));
			assert_refuses(&a, weights);
			assert_refuses(&a, cases[i].words[way]);
		}
	}
	unlink(weights);
	unlink(config);
	rmdir(folder);
	free(bytes);
	free(text);
}

static void a_prompt_longer_than_the_pool_is_one_sentence(void **state)
{
	static struct agent a;
	struct harness *h = *state;
	struct client watch;

	h->flags[0] = "--pool=4M";
	h->flags[1] = "--extent=2M";
	harness_start(h);
	/* A chunk is refused whole; a token of this model takes 2,560 bytes. */
	for (enum way way = AUTO; way < N_WAYS; way++) {
		agent_run(&a, h,
			  WORDS("--prompt-file", LONG_PROMPT, "--chunk", "2048", "--layers",
				ways[way]));
		assert_refuses(&a, "pool is full");
		agent_run(&a, h,
			  WORDS("--prompt-file", DOCUMENT, "-n", "2", "--layers", ways[way]));
		assert_int_equal(a.status, 0);
	}
	watch = client_open(h);
	count_becomes(&watch, 1);
	client_close(&watch);
}

static void bad_arguments_end_with_2(void **state)
{
	static const char *const cases[][4] = {
		{"--prompt", "x", "--kv-dtype", "fp8"}, {"--prompt", "x", "--tokens", "0"},
		{"--prompt", "x", "--tokens", "many"},	{"--prompt", "x", "--temperature", "-1"},
		{"--prompt", "x", "--top-p", "2"},	{"--prompt", "x", "--chunk", "32769"},
		{"--prompt", "x", "--n-seqs", "257"},	{"--prompt", "x", "--no-such-flag", "1"},
		{"--prompt", "x", "--layers", "most"},	{"--prompt", "x", "more", "words"},
		{"--tokens", "3", "--seed", "4"},	{"--prompt", "x", "--socket", ""},
	};
	static struct agent a;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		agent_run(&a, *state, WORDS(cases[i][0], cases[i][1], cases[i][2], cases[i][3]));
		assert_int_equal(a.status, 2);
		assert_string_equal(a.out, "");
		assert_non_null(strstr(a.err, "coppice-agent: "));
	}
}

static void what_was_meant_is_asked(void **state)
{
	static struct agent a;

	agent_run(&a, *state, WORDS("--promt", "x"));
	assert_int_equal(a.status, 2);
	assert_string_equal(a.err, "coppice-agent: --promt is no option: did you mean --prompt?\n");
	agent_run(&a, *state, WORDS("--prompt", "x", "--tok=3"));
	assert_int_equal(a.status, 2);
	assert_string_equal(a.err, "coppice-agent: --tok is no option: did you mean --tokens?\n");
}

static void help_is_in_the_order_it_is_read(void **state)
{
	static const char *const order[] = {
		"Usage: coppice-agent",
		"--model=",
		"--document=",
		"--prompt=",
		"--tokens=",
		"--temperature=",
		"--seed=",
		"--json",
		"--report=",
		"--layer-sleep-us=",
		"--help",
		"--version",
	};
	static struct agent a;
	const char *at = a.out;

	agent_run(&a, *state, WORDS("--help"));
	assert_int_equal(a.status, 0);
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		at = strstr(at, order[i]);
		if (!at)
			fail_msg("no %s, or not there: %s", order[i], a.out);
	}
	for (char *line = strtok(a.out, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80);
}

/* ---- the program ---------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(nobody_to_attend_is_one_sentence),
		AGENT_TEST(a_daemons_death_is_one_sentence),
		AGENT_TEST(a_model_that_is_not_there_is_one_sentence),
		AGENT_TEST(a_prompt_that_is_not_there_is_one_sentence),
		AGENT_TEST(damaged_weights_are_one_sentence),
		cmocka_unit_test_setup_teardown(a_prompt_longer_than_the_pool_is_one_sentence,
						agent_setup_not_started, harness_teardown),
		AGENT_TEST(bad_arguments_end_with_2),
		AGENT_TEST(what_was_meant_is_asked),
		AGENT_TEST(help_is_in_the_order_it_is_read),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
