/*
 * agents.c - coppice-bench agents: real coppice-agent processes over one document, and how they
 * keep company.
 *
 *   pace         eight agents started at random moments: sessions a decode job, counted by the
 *                daemon from when each has done 64 layers of decode until the first is done
 *   slow_ninth   the same with and without a ninth that sleeps in each layer, in turn: what it
 *                costs the eight
 */
#include "bench.h"
#include "daemon.h"

#include <err.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_AGENTS 8
#define LAYERS_BEFORE 64
#define LOOK_US 20000
#define PATIENCE_LOOKS 15000
#define PAIRS_MAX 1000u
#define SLEEP_MAX_US 60000000u /* as coppice-agent has it */

static struct options {
	const char *model, *document;
	const char *tokens, *sleep_us;
	uint32_t pairs, seed;
} options = {.model = BENCH_SOURCE_DIR "/tests/model",
	     .tokens = "2000",
	     .sleep_us = "5000",
	     .pairs = 3,
	     .seed = 1};

enum { KEY_SLEEP = 256, KEY_PAIRS, KEY_SEED };

static const struct args_option option_table[] = {
	{"model", 'm', "DIR", "The agents' model (default: tests/model)"},
	{"document", 'd', "FILE", "The document they share (required)"},
	{"tokens", 'n', "N", "Tokens that each writes (default 2000)"},
	{"sleep-us", KEY_SLEEP, "US", "The ninth's sleep in each layer (default 5000)"},
	{"pairs", KEY_PAIRS, "N", "Runs with and without the ninth (default 3)"},
	{"seed", KEY_SEED, "N", "Of the moments at which agents start (default 1)"},
	{0},
};

/* What an agent is told as it stands. */
static int take_text(struct args *args, uint32_t min, uint32_t max, const char **ret)
{
	uint32_t n;
	int r = bench_take_whole(args, min, max, &n);

	if (r == 0)
		*ret = args->value;
	return r;
}

static int parse_option(struct args *args, int key, void *to)
{
	(void)to;
	switch (key) {
	case 'm':
		options.model = args->value;
		break;
	case 'd':
		options.document = args->value;
		break;
	case 'n':
		return take_text(args, 1, BENCH_TOKENS_MAX, &options.tokens);
	case KEY_SLEEP:
		return take_text(args, 0, SLEEP_MAX_US, &options.sleep_us);
	case KEY_PAIRS:
		return bench_take_whole(args, 0, PAIRS_MAX, &options.pairs);
	case KEY_SEED:
		return bench_take_whole(args, 0, UINT32_MAX, &options.seed);
	}
	return 0;
}

static int check_options(struct args *args, void *to)
{
	(void)to;
	return options.document ? 0 : args_fail(args, "--document is required");
}

/* ---- agents --------------------------------------------------------------------------------- */

struct crowd {
	struct bench_daemon daemon;
	pid_t agents[N_AGENTS + 1];
	uint32_t n;
};

static void become_agent(const struct bench_daemon *d, uint32_t i, uint32_t delay_ms, bool slow)
{
	char path[512], seed[16], delay[16], report[128], prompt[64];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bench_program("client/agent", "coppice-agent", path, sizeof(path));
	snprintf(seed, sizeof(seed), "%u", i + 1);
	snprintf(delay, sizeof(delay), "%u", delay_ms);
	snprintf(report, sizeof(report), "%s/%u.json", d->dir, i);
	snprintf(prompt, sizeof(prompt), " And the %u said unto him,", i + 1);
	if (!freopen("/dev/null", "w", stdout))
		err(1, "/dev/null");
	execl(path, path, "--socket", d->socket, "--model", options.model, "--document",
	      options.document, "--prompt", prompt, "--tokens", options.tokens, "--temperature",
	      "0.6", "--seed", seed, "--start-delay-ms", delay, "--report", report, "--layers",
	      "self", "--layer-sleep-us", slow ? options.sleep_us : "0", NULL);
	err(127, "%s", path);
}

static void crowd_start(struct crowd *crowd, uint32_t n)
{
	static const char *const flags[] = {
		"--pool", "256M", "--batch-window", "always", "--batch-window-max-us",
		"10000",  NULL};

	bench_daemon_start(&crowd->daemon, -1, flags);
	crowd->n = n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t delay_ms = (uint32_t)random() % 1000;

		crowd->agents[i] = fork();
		if (crowd->agents[i] == 0)
			become_agent(&crowd->daemon, i, delay_ms, i == N_AGENTS);
	}
}

/* Decode seconds that agent i reports. */
static double report_decode_s(const struct crowd *crowd, uint32_t i)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%u.json", crowd->daemon.dir, i);
	json_t *report = json_load_file(path, 0, NULL);
	double s = json_number_value(json_object_get(report, "decode_s"));

	if (!report || s <= 0)
		errx(1, "%s: no report of an agent", path);
	json_decref(report);
	unlink(path);
	return s;
}

/* Waits for the eight, then ends the ninth. Returns the median decode time of the eight. */
static double crowd_finish(struct crowd *crowd)
{
	double s[N_AGENTS];
	int status;

	for (uint32_t i = 0; i < N_AGENTS; i++) {
		if (waitpid(crowd->agents[i], &status, 0) < 0 || status)
			errx(1, "agent %u failed", i);
	}
	if (crowd->n > N_AGENTS) {
		char path[128];

		kill(crowd->agents[N_AGENTS], SIGKILL);
		waitpid(crowd->agents[N_AGENTS], &status, 0);
		snprintf(path, sizeof(path), "%s/%u.json", crowd->daemon.dir, N_AGENTS);
		unlink(path);
	}
	for (uint32_t i = 0; i < N_AGENTS; i++)
		s[i] = report_decode_s(crowd, i);
	bench_daemon_stop(&crowd->daemon);
	return bench_median(s, N_AGENTS);
}

/* ---- what the daemon counts ----------------------------------------------------------------- */

struct company {
	double jobs, sessions;
};

static struct company company(const struct bench_daemon *d)
{
	json_t *status = bench_daemon_ask(d, "status");
	struct company c = {json_number_value(json_object_get(status, "decode_jobs")),
			    json_number_value(json_object_get(status, "decode_sessions"))};

	json_decref(status);
	return c;
}

/* Sessions that have done enough layers of decode. */
static uint32_t n_warm(const struct bench_daemon *d)
{
	json_t *answer = bench_daemon_ask(d, "sessions"),
	       *sessions = json_object_get(answer, "sessions"), *session;
	size_t i;
	uint32_t n = 0;

	json_array_foreach(sessions, i, session) n +=
		json_number_value(json_object_get(session, "decode_steps")) >= LAYERS_BEFORE;
	json_decref(answer);
	return n;
}

static void measure_pace(void)
{
	struct crowd crowd;
	struct company first, last, now;
	uint32_t looks = 0;

	crowd_start(&crowd, N_AGENTS);
	while (n_warm(&crowd.daemon) < N_AGENTS) {
		if (looks++ > PATIENCE_LOOKS)
			errx(1, "the agents never decoded together: more --tokens?");
		usleep(LOOK_US);
	}
	first = last = company(&crowd.daemon);
	for (;;) {
		now = company(&crowd.daemon);
		if (n_warm(&crowd.daemon) < N_AGENTS)
			break;
		last = now;
		usleep(LOOK_US);
	}
	crowd_finish(&crowd);
	if (last.jobs <= first.jobs)
		errx(1, "the agents were done before they could be looked at: more --tokens?");
	bench_print("agents", "pace", "jobs", last.jobs - first.jobs, "jobs");
	bench_print("agents", "pace", "sessions_a_job",
		    (last.sessions - first.sessions) / (last.jobs - first.jobs), "sessions");
}

static void measure_slow_ninth(void)
{
	double *with = calloc(options.pairs, sizeof(*with)),
	       *without = calloc(options.pairs, sizeof(*without));

	for (uint32_t i = 0; i < options.pairs; i++) {
		struct crowd crowd;

		crowd_start(&crowd, N_AGENTS);
		without[i] = crowd_finish(&crowd);
		crowd_start(&crowd, N_AGENTS + 1);
		with[i] = crowd_finish(&crowd);
	}
	double eight = bench_median(without, options.pairs),
	       nine = bench_median(with, options.pairs);

	bench_print("agents", "slow_ninth", "without_s", eight, "s");
	bench_print("agents", "slow_ninth", "with_s", nine, "s");
	bench_print("agents", "slow_ninth", "cost", nine / eight - 1, "ratio");
	free(with);
	free(without);
}

int agents_main(int argc, char **argv)
{
	const struct bench_options of_agents = {
		.table = option_table,
		.take = parse_option,
		.check = check_options,
		.doc = "Eight coppice-agent processes over one document, and whether they keep "
		       "pace.",
	};
	int r = bench_read(&of_agents, argc, argv);

	if (r >= 0)
		return r;
	srandom(options.seed);
	measure_pace();
	if (options.pairs)
		measure_slow_ninth();
	return 0;
}
