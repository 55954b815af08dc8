/*
 * agent_test.c - coppice-agent with the trained model against a real daemon: company changes
 * nothing in what it says, and what goes wrong is one sentence and a status. argv[1] is the
 * daemon's program.
 */
#include "control_harness.h"
#include "element.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DOCUMENT MODEL_DIR "/fixture/trained/prompt.bin"
#define LONG_PROMPT MODEL_DIR "/fixture/trained-long/prompt.bin" /* 8,000 bytes */
#define N_DOCUMENT 600u
#define N_AGENTS 8u
#define N_TOKENS 24u
#define MAX_ARGS 24u
#define LIFE_S 100 /* no agent lives longer */
#define TRIES 4000 /* of 5 ms */

/* An agent that runs, and what it said once it has ended. */
struct agent {
	pid_t pid;
	FILE *files[2]; /* owned: its stdout and stderr */
	int status; /* -signal where that ended it */
	char out[65536];
	char err[4096];
};

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- agents --------------------------------------------------------------------------------- */

/* Later words win, so that a test may name another socket or model. */
static void agent_start(struct agent *a, const struct harness *h, const char *const *words)
{
	const char *args[MAX_ARGS + 6] = {"coppice-agent", "--socket", h->socket, "--model",
					  MODEL_DIR};

	for (size_t i = 0; words[i]; i++) {
		assert_true(i < MAX_ARGS);
		args[5 + i] = words[i];
	}
	for (int i = 0; i < 2; i++)
		assert_non_null(a->files[i] = tmpfile());
	a->pid = fork();
	assert_true(a->pid >= 0);
	if (a->pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(LIFE_S);
	dup2(fileno(a->files[0]), STDOUT_FILENO);
	dup2(fileno(a->files[1]), STDERR_FILENO);
	execv(AGENT_PATH, (char **)args);
	_exit(127);
}

static void read_file(FILE *file, char *ret, size_t bytes)
{
	rewind(file);
	ret[fread(ret, 1, bytes - 1, file)] = 0;
	fclose(file);
}

static void agent_end(struct agent *a)
{
	a->status = harness_wait(a->pid);
	read_file(a->files[0], a->out, sizeof(a->out));
	read_file(a->files[1], a->err, sizeof(a->err));
}

static void agent_run(struct agent *a, const struct harness *h, const char *const *words)
{
	agent_start(a, h, words);
	agent_end(a);
}

/* What it printed as JSON; the caller's. */
static json_t *agent_report(const struct agent *a)
{
	json_error_t error;
	json_t *object = json_loads(a->out, JSON_REJECT_DUPLICATES, &error);

	if (a->status != 0)
		fail_msg("ended with %d: %s", a->status, a->err);
	if (!object)
		fail_msg("%s: %s", error.text, a->out);
	return object;
}

static const json_t *sequence_of(const json_t *report, size_t i)
{
	const json_t *sequence = json_array_get(json_object_get(report, "sequences"), i);

	assert_non_null(sequence);
	return sequence;
}

static json_int_t number_of(const json_t *object, const char *name)
{
	const json_t *number = json_object_get(object, name);

	assert_true(json_is_integer(number));
	return json_integer_value(number);
}

static void assert_same_ids(const json_t *a, const json_t *b)
{
	const json_t *ids = json_object_get(a, "ids");

	assert_int_equal(json_array_size(ids), N_TOKENS);
	assert_true(json_equal(ids, json_object_get(b, "ids")));
}

/* ---- company -------------------------------------------------------------------------------- */

static const char *const prompts[N_AGENTS] = {
	"And the LORD said", "Then came",   "In those days", "Woe unto",
	"Behold, I",	     "The word of", "Hear ye",	     "And it shall come",
};

static void start_one(struct agent *a, const struct harness *h, unsigned i, const char *company)
{
	char seed[16];

	snprintf(seed, sizeof(seed), "%u", i + 1);
	agent_start(a, h,
		    WORDS("--document", DOCUMENT, "--prompt", prompts[i], "--tokens", "24",
			  "--temperature", i % 2 ? "0.8" : "0", "--top-k", "40", "--seed", seed,
			  "--json", company));
}

/* They share unless the last word is --private. */
static void eight_at_once_say_what_each_says_alone(void **state)
{
	static struct agent agents[N_AGENTS], alone;
	json_t *reports[N_AGENTS];
	json_int_t n_prefilled = 0, n_prompts = 0;

	for (unsigned i = 0; i < N_AGENTS; i++)
		start_one(&agents[i], *state, i, "--json");
	for (unsigned i = 0; i < N_AGENTS; i++) {
		agent_end(&agents[i]);
		reports[i] = agent_report(&agents[i]);
		n_prefilled += number_of(reports[i], "tokens_prefilled");
		n_prompts += (json_int_t)strlen(prompts[i]);
	}
	/* One computes the document, each its own prompt. */
	assert_true(n_prefilled <= N_DOCUMENT + n_prompts);
	for (unsigned i = 0; i < N_AGENTS; i++) {
		start_one(&alone, *state, i, "--private");
		agent_end(&alone);
		json_t *report = agent_report(&alone);

		assert_int_equal(number_of(report, "tokens_prefilled"),
				 N_DOCUMENT + strlen(prompts[i]));
		assert_same_ids(sequence_of(reports[i], 0), sequence_of(report, 0));
		json_decref(report);
		json_decref(reports[i]);
	}
}

static void two_prompts_in_one_process_are_as_in_two(void **state)
{
	static struct agent together, apart;
	json_t *both;

	agent_run(&together, *state,
		  WORDS("-p", prompts[0], "-p", prompts[1], "-n", "24", "--temperature", "0.9",
			"--seed", "7", "--json"));
	both = agent_report(&together);
	assert_int_equal(json_array_size(json_object_get(both, "sequences")), 2);
	for (unsigned i = 0; i < 2; i++) {
		agent_run(&apart, *state,
			  WORDS("-p", prompts[i], "-n", "24", "--temperature", "0.9", "--seed", "7",
				"--json", "--private"));
		json_t *one = agent_report(&apart);

		assert_same_ids(sequence_of(both, i), sequence_of(one, 0));
		json_decref(one);
	}
	json_decref(both);
}

static void the_report_adds_up(void **state)
{
	static struct agent a;
	json_t *report;
	const json_t *sequence;

	const char *dtype = test_on_gpu() ? "fp16" : "fp32";

	agent_run(&a, *state, WORDS("-p", prompts[2], "-n", "24", "--json", "--kv-dtype", dtype));
	assert_string_equal(a.err, "");
	report = agent_report(&a);
	sequence = sequence_of(report, 0);
	assert_string_equal(json_string_value(json_object_get(report, "kv_dtype")), dtype);
	assert_int_equal(number_of(report, "tokens_generated"), N_TOKENS);
	assert_int_equal(number_of(sequence, "prompt_tokens"), strlen(prompts[2]));
	assert_int_equal(number_of(sequence, "cached") + number_of(sequence, "waited") +
				 number_of(sequence, "prefilled"),
			 strlen(prompts[2]));
	assert_true(json_is_string(json_object_get(sequence, "text")));
	json_decref(report);
}

/* ---- devices -------------------------------------------------------------------------------- */

static json_t *greedy_report(const struct harness *h)
{
	static struct agent a;

	agent_run(&a, h, WORDS("--document", DOCUMENT, "-p", prompts[0], "-n", "24", "--json"));
	return agent_report(&a);
}

static void restart_with(struct harness *h, const char *devices, const char *split)
{
	harness_stop(h, SIGTERM);
	h->flags[0] = devices;
	h->flags[1] = split;
	h->flags[2] = "--extent=2M";
	harness_start(h);
}

static void four_devices_say_what_one_says(void **state)
{
	static const char *const splits[] = {"--split=tokens", "--split=auto"};
	const char *names = getenv("COPPICE_TEST_GROUP");
	struct harness *h = *state;
	json_t *one = greedy_report(h);
	char devices[128];

	if (!names)
		names = test_on_gpu() ? "0,0,0,0" : "cpu,cpu,cpu,cpu";
	snprintf(devices, sizeof(devices), "--devices=%s", names);
	for (size_t i = 0; i < 2; i++) {
		restart_with(h, devices, splits[i]);
		json_t *report = greedy_report(h);

		assert_same_ids(sequence_of(one, 0), sequence_of(report, 0));
		json_decref(report);
	}
	json_decref(one);
}

static void heads_that_devices_do_not_divide_are_one_sentence(void **state)
{
	static struct agent a;
	struct harness *h = *state;

	restart_with(h, test_on_gpu() ? "--devices=0,0,0" : "--devices=cpu,cpu,cpu",
		     "--split=heads");
	agent_run(&a, h, WORDS("-p", "x", "-n", "2"));
	assert_int_equal(a.status, 1);
	assert_non_null(strstr(a.err, "cannot be shared out evenly to 3 devices"));
}

/* ---- signals -------------------------------------------------------------------------------- */

static void control_c_ends_it_and_its_session(void **state)
{
	static struct agent a;
	struct client watch = client_open(*state);
	Coppice__Sessions m = COPPICE__SESSIONS__INIT;
	uint64_t n_steps = 0;

	agent_start(&a, *state, WORDS("-p", prompts[3], "-n", "8000", "--layer-sleep-us", "2000"));
	for (int i = 0; i < TRIES && n_steps == 0; i++) {
		sleep_ms(5);
		assert_int_equal(client_verb(&watch, sessions, &m)->code, 0);
		for (size_t s = 0; s < watch.reply->sessions->n_session; s++)
			n_steps += watch.reply->sessions->session[s]->decode_steps;
	}
	assert_true(n_steps > 0);
	kill(a.pid, SIGINT);
	agent_end(&a);
	assert_int_equal(a.status, 130);
	assert_string_equal(a.err, "coppice-agent: interrupted\n");
	count_becomes(&watch, 1);
	client_close(&watch);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

/* Status 1, nothing on stdout, and one sentence that has the words. */
static void assert_refuses(const struct agent *a, const char *words)
{
	static const char name[] = "coppice-agent: ";

	if (a->status != 1 || !strstr(a->err, words))
		fail_msg("ended with %d, not saying \"%s\": %s", a->status, words, a->err);
	assert_string_equal(a->out, "");
	assert_memory_equal(a->err, name, strlen(name));
	assert_ptr_equal(strchr(a->err, '\n'), a->err + strlen(a->err) - 1);
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
	static struct agent a;
	struct harness *h = *state;
	struct client watch = client_open(h);

	agent_start(&a, h, WORDS("-p", "x", "-n", "8000", "--layer-sleep-us", "2000", "--json"));
	count_becomes(&watch, 2);
	client_close(&watch);
	harness_stop(h, SIGKILL);
	agent_end(&a);
	assert_refuses(&a, "daemon");
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
		const char *words;
	} cases[] = {
		{SIZE_MAX, 1000, "cut off"},
		{SIZE_MAX, SIZE_MAX, "too few"},
		{8, 0, "not a JSON object"},
		{6, 0, "not a safetensors file"},
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
		agent_run(&a, *state, WORDS("-p", "x", "-m", folder));
		assert_refuses(&a, weights);
		assert_refuses(&a, cases[i].words);
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
	agent_run(&a, h, WORDS("--prompt-file", LONG_PROMPT, "--chunk", "2048"));
	assert_refuses(&a, "pool is full");
	agent_run(&a, h, WORDS("--prompt-file", DOCUMENT, "-n", "2"));
	assert_int_equal(a.status, 0);
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
		{"--prompt", "x", "more", "words"},	{"--tokens", "3", "--seed", "4"},
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

static int setup(void **state)
{
	struct harness *h = harness_new("auto");

	h->flags[0] = "--max-sessions=32";
	h->flags[1] = "--max-domain-sessions=32";
	harness_start(h);
	*state = h;
	return 0;
}

static int setup_not_started(void **state)
{
	*state = harness_new("auto");
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, harness_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(eight_at_once_say_what_each_says_alone),
		TEST(two_prompts_in_one_process_are_as_in_two),
		TEST(the_report_adds_up),
		TEST(four_devices_say_what_one_says),
		TEST(heads_that_devices_do_not_divide_are_one_sentence),
		TEST(control_c_ends_it_and_its_session),
		TEST(nobody_to_attend_is_one_sentence),
		TEST(a_daemons_death_is_one_sentence),
		TEST(a_model_that_is_not_there_is_one_sentence),
		TEST(a_prompt_that_is_not_there_is_one_sentence),
		TEST(damaged_weights_are_one_sentence),
		cmocka_unit_test_setup_teardown(a_prompt_longer_than_the_pool_is_one_sentence,
						setup_not_started, harness_teardown),
		TEST(bad_arguments_end_with_2),
		TEST(what_was_meant_is_asked),
		TEST(help_is_in_the_order_it_is_read),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
