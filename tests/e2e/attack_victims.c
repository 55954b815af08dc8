/*
 * attack_victims.c - processes that live honestly until they are told to end; each step of theirs
 * and each answer is timed.
 */
#include "attack_victims.h"

#include "attack_before.h"
#include "attack_fixture.h"
#include "attack_tokens.h"
#include "element.h"
#include "honest.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HONEST_USER 65534
#define TOKENS_USER 65520
#define AGENT_USER 65519
#define AGENT_BYTES 20 /* of text, at least */
#define STEPS_AN_ANSWER 8
/* Behind each answer, where no table is asked for: without a rest his steps are most of what the
 * tests of attacks take. */
#define REST_US 1000

/* The group's: children know it. */
static struct watch *watch;

/* ---- the honest client ---- */

void victims_ask(struct client *c)
{
	Coppice__Status status = COPPICE__STATUS__INIT;

	assert_int_equal(client_verb(c, status, &status)->code, 0);
}

static void step_and_ask(struct honest *honest, struct client *c)
{
	struct watch_since since;

	for (int i = 0; i < STEPS_AN_ANSWER; i++) {
		since = watch_now(watch);
		honest_step(honest);
		watch_add(watch, WATCH_STEPS, since);
	}
	since = watch_now(watch);
	victims_ask(c);
	watch_add(watch, WATCH_CONTROL, since);
	if (watch_seconds() == 0)
		usleep(REST_US);
}

static int live_honestly(const struct harness *h, int said)
{
	struct client c = client_open(h);
	struct honest honest;

	honest_start(&honest, h->socket, 1);
	step_and_ask(&honest, &c);
	attack_is_on(said);
	while (attack_goes_on())
		step_and_ask(&honest, &c);
	return 0;
}

/* ---- whole tokens ---- */

static int live_on_tokens(const struct harness *h, int said)
{
	return attack_tokens(h, watch, said);
}

/* Several devices hold no weights. */
static bool holds_weights(const struct harness *h)
{
	for (int i = 0; i < HARNESS_FLAGS && h->flags[i]; i++)
		if (!strncmp(h->flags[i], "--devices=", 10))
			return false;
	return true;
}

void victims_hold_tokens(struct victims *v)
{
	if (v->has_tokens)
		kill(v->tokens.pid, SIGSTOP);
}

void victims_go_on(struct victims *v)
{
	if (v->has_tokens)
		kill(v->tokens.pid, SIGCONT);
}

/* ---- an agent ---- */

/* Where the daemon holds no weights it computes its layers itself. */
void victims_write(struct victims *v)
{
	v->agent.uid = AGENT_USER;
	agent_start(&v->agent, v->h,
		    WORDS("-p", "And the LORD said", "-n", "24", "--temperature", "0.8", "--seed",
			  "7"));
}

static void agent_has_ended(struct agent *a)
{
	agent_end(a);
	if (a->status != 0)
		fail_msg("an agent ended with %d: %s", a->status, a->err);
	assert_true(strlen(a->out) >= AGENT_BYTES);
}

/* A GPU rounds rows otherwise that go together otherwise: there another text may be as right. */
void victims_have_written(struct victims *v)
{
	agent_has_ended(&v->agent);
	if (!test_on_gpu())
		assert_string_equal(v->agent.out, v->text);
}

static void write_alone(struct victims *v)
{
	victims_write(v);
	agent_has_ended(&v->agent);
	v->text = strdup(v->agent.out);
	assert_non_null(v->text);
}

/* ---- all of them ---- */

void victims_start(struct victims *v, const struct harness *h, struct watch *w)
{
	*v = (struct victims){.h = h};
	watch = w;
	write_alone(v);
	v->honest = other_start(h, HONEST_USER, live_honestly);
	(void)other_ready(&v->honest);
	v->has_tokens = holds_weights(h);
	if (!v->has_tokens)
		return;
	v->tokens = other_start(h, TOKENS_USER, live_on_tokens);
	(void)other_ready(&v->tokens);
}

void victims_end(struct victims *v)
{
	other_kill(&v->honest);
	if (v->has_tokens)
		other_kill(&v->tokens);
	free(v->text);
}
