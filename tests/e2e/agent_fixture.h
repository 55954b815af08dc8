/* agent_fixture.h - coppice-agent as it stands, with the trained model, and what it said. */
#ifndef COPPICE_AGENT_FIXTURE_H
#define COPPICE_AGENT_FIXTURE_H

#include "control_harness.h"

#include <jansson.h>
#include <stdio.h>

#define DOCUMENT MODEL_DIR "/fixture/trained/prompt.bin"
#define LONG_PROMPT MODEL_DIR "/fixture/trained-long/prompt.bin" /* 8,000 bytes */
#define N_DOCUMENT 600u

/* An agent that runs, and what it said once it has ended. */
struct agent {
	uid_t uid; /* before it starts; 0: the test's own */
	pid_t pid;
	FILE *files[2]; /* owned: its stdout and stderr */
	int status; /* -signal where that ended it */
	char out[65536];
	char err[4096];
};

/* Who computes the layers. By auto it is the daemon, where its backend runs programs. */
enum way { AUTO, SELF, N_WAYS };

extern const char *const ways[N_WAYS]; /* as --layers takes them */

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Later words win, so that a test may name another socket or model. */
void agent_start(struct agent *a, const struct harness *h, const char *const *words);
void agent_end(struct agent *a);
void agent_run(struct agent *a, const struct harness *h, const char *const *words);

/* On stderr, but for the sentence that the daemon's backend runs no programs. */
const char *agent_said(const struct agent *a);
/* What it printed as JSON; the caller's. */
json_t *agent_report(const struct agent *a);
json_int_t number_of(const json_t *object, const char *name);

/* Of tests: a daemon for 32 sessions that runs; one that a test starts. */
int agent_setup(void **state);
int agent_setup_not_started(void **state);

#define AGENT_TEST(name) cmocka_unit_test_setup_teardown(name, agent_setup, harness_teardown)

#endif
