/*
 * agent_test.c - coppice-agent with the trained model against a real daemon: company changes
 * nothing in what it says, nor does who computes its layers. argv[1] is the daemon's program.
 */
#include "agent_fixture.h"
#include "element.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_AGENTS 8u
#define N_TOKENS 24u
#define TRIES 4000 /* of 5 ms */

static const json_t *sequence_of(const json_t *report, size_t i)
{
	const json_t *sequence = json_array_get(json_object_get(report, "sequences"), i);

	assert_non_null(sequence);
	return sequence;
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

static void start_one(struct agent *a, const struct harness *h, unsigned i, enum way way,
		      const char *company)
{
	char seed[16];

	snprintf(seed, sizeof(seed), "%u", i + 1);
	agent_start(a, h,
		    WORDS("--document", DOCUMENT, "--prompt", prompts[i], "--tokens", "24",
			  "--temperature", i % 2 ? "0.8" : "0", "--top-k", "40", "--seed", seed,
			  "--json", "--layers", ways[way], company));
}

static void eight_at_once(struct harness *h, enum way way, json_t *ret[N_AGENTS])
{
	static struct agent agents[N_AGENTS];
	json_int_t n_prefilled = 0, n_prompts = 0;

	for (unsigned i = 0; i < N_AGENTS; i++)
		start_one(&agents[i], h, i, way, "--json");
	for (unsigned i = 0; i < N_AGENTS; i++) {
		agent_end(&agents[i]);
		ret[i] = agent_report(&agents[i]);
		n_prefilled += number_of(ret[i], "tokens_prefilled");
		n_prompts += (json_int_t)strlen(prompts[i]);
	}
	/* One computes the document, each its own prompt. */
	assert_true(n_prefilled <= N_DOCUMENT + n_prompts);
}

static void one_alone(struct harness *h, unsigned i, enum way way, const json_t *expected)
{
	static struct agent alone;
	json_t *report;

	start_one(&alone, h, i, way, "--private");
	agent_end(&alone);
	report = agent_report(&alone);
	assert_int_equal(number_of(report, "tokens_prefilled"), N_DOCUMENT + strlen(prompts[i]));
	assert_same_ids(sequence_of(expected, 0), sequence_of(report, 0));
	json_decref(report);
}

/* They share unless the last word is --private. */
static void eight_at_once_say_what_each_says_alone(void **state)
{
	json_t *reports[N_WAYS][N_AGENTS];

	for (enum way way = AUTO; way < N_WAYS; way++)
		eight_at_once(*state, way, reports[way]);
	for (unsigned i = 0; i < N_AGENTS; i++) {
		for (enum way way = AUTO; way < N_WAYS; way++)
			one_alone(*state, i, way, reports[AUTO][i]);
		assert_same_ids(sequence_of(reports[AUTO][i], 0), sequence_of(reports[SELF][i], 0));
		for (enum way way = AUTO; way < N_WAYS; way++)
			json_decref(reports[way][i]);
	}
}

/* Draws from all logits, where the eight took the 40 likeliest. */
static json_t *two_in_one(struct harness *h, enum way way)
{
	static struct agent together;
	json_t *both;

	agent_run(&together, h,
		  WORDS("-p", prompts[0], "-p", prompts[1], "-n", "24", "--temperature", "0.9",
			"--seed", "7", "--json", "--layers", ways[way]));
	both = agent_report(&together);
	assert_int_equal(json_array_size(json_object_get(both, "sequences")), 2);
	return both;
}

static void one_of_two(struct harness *h, unsigned i, enum way way, const json_t *both)
{
	static struct agent apart;
	json_t *one;

	agent_run(&apart, h,
		  WORDS("-p", prompts[i], "-n", "24", "--temperature", "0.9", "--seed", "7",
			"--json", "--private", "--layers", ways[way]));
	one = agent_report(&apart);
	assert_same_ids(sequence_of(both, i), sequence_of(one, 0));
	json_decref(one);
}

static void two_prompts_in_one_process_are_as_in_two(void **state)
{
	for (enum way way = AUTO; way < N_WAYS; way++) {
		json_t *both = two_in_one(*state, way);

		for (unsigned i = 0; i < 2 * N_WAYS; i++)
			one_of_two(*state, i / N_WAYS, i % N_WAYS, both);
		json_decref(both);
	}
}

/* By the daemon: a sentence where it runs no programs, else none. */
static void assert_said(const struct agent *a, const json_t *report, enum way way)
{
	const char *layers = json_string_value(json_object_get(report, "layers"));

	if (way == AUTO && strcmp(layers, "self") == 0)
		assert_non_null(strstr(a->err, "This process computes the layers itself.\n"));
	else
		assert_string_equal(a->err, "");
	if (way == SELF)
		assert_string_equal(layers, "self");
	else if (!test_on_gpu())
		assert_string_equal(layers, "daemon");
}

/* A token alone reads the model's matrices once, which are most of its file. */
static void assert_weights(const json_t *report)
{
	const char *layers = json_string_value(json_object_get(report, "layers"));
	json_int_t held = number_of(report, "weights_bytes");
	double read = json_real_value(json_object_get(report, "weights_bytes_read_per_token"));

	assert_true(json_is_true(json_object_get(report, "weights_held_here")) ==
		    (strcmp(layers, "self") == 0));
	assert_true(held > 1000000);
	assert_true(read > 0.9 * (double)held && read < (double)held);
	assert_int_equal(number_of(report, "weights_bytes_read"), llround(read * (N_TOKENS - 1)));
}

static void report_adds_up(struct harness *h, enum way way)
{
	static struct agent a;
	json_t *report;
	const json_t *sequence;

	const char *dtype = test_on_gpu() ? "fp16" : "fp32";

	agent_run(&a, h,
		  WORDS("-p", prompts[2], "-n", "24", "--json", "--kv-dtype", dtype, "--layers",
			ways[way]));
	report = agent_report(&a);
	assert_said(&a, report, way);
	assert_weights(report);
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

static void the_report_adds_up(void **state)
{
	for (enum way way = AUTO; way < N_WAYS; way++)
		report_adds_up(*state, way);
}

/* Of sequences that go together each token has its part of what a pass reads. */
static void together_they_read_weights_once(void **state)
{
	for (enum way way = AUTO; way < N_WAYS; way++) {
		static struct agent a;
		json_t *report;
		double read;

		agent_run(&a, *state,
			  WORDS("-p", prompts[0], "--n-seqs", "8", "-n", "24", "--temperature", "1",
				"--json", "--layers", ways[way]));
		report = agent_report(&a);
		read = json_real_value(json_object_get(report, "weights_bytes_read_per_token"));
		assert_true(read > 0 && read * 8 <= (double)number_of(report, "weights_bytes"));
		json_decref(report);
	}
}

static json_t *greedy_report(const struct harness *h, const char *layers)
{
	static struct agent a;

	agent_run(&a, h,
		  WORDS("--document", DOCUMENT, "-p", prompts[0], "-n", "24", "--json", "--layers",
			layers));
	return agent_report(&a);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, n, file), n);
	assert_int_equal(fclose(file), 0);
}

/* Where tests run from a folder of their own the target's path is relative. */
static void link_file(const char *folder, const char *name, const char *target)
{
	char path[96], whole[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_non_null(realpath(target, whole));
	assert_int_equal(symlink(whole, path), 0);
}

/* The model as an index with two shards, of which the second has a tensor that nobody needs. */
static void make_shards(const char *folder)
{
	static const char index[] = "{\"weight_map\": {\"model.norm.weight\": \"1.safetensors\", "
				    "\"more\": \"2.safetensors\"}}";
	static const char more[] =
		"\x40\0\0\0\0\0\0\0{\"more\": {\"dtype\": \"F32\", \"shape\": [1], "
		"\"data_offsets\": [0, 4]}}\0\0\0";

	write_file(folder, "model.safetensors.index.json", index, sizeof(index) - 1);
	write_file(folder, "2.safetensors", more, sizeof(more));
	link_file(folder, "1.safetensors", MODEL_DIR "/model.safetensors");
	link_file(folder, "config.json", MODEL_DIR "/config.json");
}

static void remove_shards(const char *folder)
{
	static const char *const names[] = {"model.safetensors.index.json", "1.safetensors",
					    "2.safetensors", "config.json"};
	char path[96];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(folder), 0);
}

static void shards_of_an_index_say_what_one_file_says(void **state)
{
	char folder[] = "/tmp/agent-test-XXXXXX";
	json_t *one = greedy_report(*state, ways[SELF]);

	assert_non_null(mkdtemp(folder));
	make_shards(folder);
	for (enum way way = AUTO; way < N_WAYS; way++) {
		static struct agent a;
		json_t *report;

		agent_run(&a, *state,
			  WORDS("-m", folder, "--document", DOCUMENT, "-p", prompts[0], "-n", "24",
				"--json", "--layers", ways[way]));
		report = agent_report(&a);
		assert_said(&a, report, way);
		assert_same_ids(sequence_of(one, 0), sequence_of(report, 0));
		json_decref(report);
	}
	json_decref(one);
	remove_shards(folder);
}

/* ---- devices -------------------------------------------------------------------------------- */

/* Both ways; where there are several devices both are by the process. */
static json_t *greedy_reports(const struct harness *h)
{
	json_t *report = greedy_report(h, ways[AUTO]), *self = greedy_report(h, ways[SELF]);

	assert_same_ids(sequence_of(report, 0), sequence_of(self, 0));
	json_decref(self);
	return report;
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
	json_t *one = greedy_reports(h);
	char devices[128];

	if (!names)
		names = test_on_gpu() ? "0,0,0,0" : "cpu,cpu,cpu,cpu";
	snprintf(devices, sizeof(devices), "--devices=%s", names);
	for (size_t i = 0; i < 2; i++) {
		restart_with(h, devices, splits[i]);
		json_t *report = greedy_reports(h);

		assert_same_ids(sequence_of(one, 0), sequence_of(report, 0));
		json_decref(report);
	}
	json_decref(one);
}

static void daemons_that_run_no_programs_are_one_sentence(void **state)
{
	static struct agent a;
	struct harness *h = *state;
	json_t *report;

	restart_with(h, test_on_gpu() ? "--devices=0,0" : "--devices=cpu,cpu", "--split=tokens");
	agent_run(&a, h, WORDS("-p", "x", "-n", "2", "--layers", "daemon"));
	assert_int_equal(a.status, 1);
	assert_string_equal(a.out, "");
	assert_non_null(strstr(a.err, "holds no weights"));
	agent_run(&a, h, WORDS("-p", "x", "-n", "2", "--json"));
	assert_non_null(strstr(a.err, "holds no weights"));
	assert_ptr_equal(strchr(a.err, '\n'), a.err + strlen(a.err) - 1);
	report = agent_report(&a);
	assert_string_equal(json_string_value(json_object_get(report, "layers")), "self");
	json_decref(report);
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

static void await_decode_steps(struct client *watch)
{
	Coppice__Sessions m = COPPICE__SESSIONS__INIT;
	uint64_t n_steps = 0;

	for (int i = 0; i < TRIES && n_steps == 0; i++) {
		sleep_ms(5);
		assert_int_equal(client_verb(watch, sessions, &m)->code, 0);
		for (size_t s = 0; s < watch->reply->sessions->n_session; s++)
			n_steps += watch->reply->sessions->session[s]->decode_steps;
	}
	assert_true(n_steps > 0);
}

static void control_c_ends_it_and_its_session(void **state)
{
	for (enum way way = AUTO; way < N_WAYS; way++) {
		static struct agent a;
		struct client watch = client_open(*state);

		agent_start(&a, *state,
			    WORDS("-p", prompts[3], "-n", "8000", "--layer-sleep-us", "2000",
				  "--layers", ways[way]));
		await_decode_steps(&watch);
		kill(a.pid, SIGINT);
		agent_end(&a);
		assert_int_equal(a.status, 130);
		assert_string_equal(agent_said(&a), "coppice-agent: interrupted\n");
		count_becomes(&watch, 1);
		client_close(&watch);
	}
}

/* ---- the program ---------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(eight_at_once_say_what_each_says_alone),
		AGENT_TEST(two_prompts_in_one_process_are_as_in_two),
		AGENT_TEST(the_report_adds_up),
		AGENT_TEST(together_they_read_weights_once),
		AGENT_TEST(shards_of_an_index_say_what_one_file_says),
		AGENT_TEST(four_devices_say_what_one_says),
		AGENT_TEST(daemons_that_run_no_programs_are_one_sentence),
		AGENT_TEST(heads_that_devices_do_not_divide_are_one_sentence),
		AGENT_TEST(control_c_ends_it_and_its_session),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
