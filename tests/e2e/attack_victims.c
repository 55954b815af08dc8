/*
 * attack_victims.c - see attack_victims.h.
 *
 * The honest client works in windows and tells the longest step and the longest answer of each. Of
 * some windows the middle one counts: a machine that is busy with other things disturbs one or the
 * other, an attack that holds up others all of them.
 */
#include "attack_victims.h"

#include "attack_before.h"
#include "attack_fixture.h"
#include "attack_tokens.h"
#include "element.h"
#include "honest.h"
#include "proto/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HONEST_USER 65534
#define TOKENS_USER 65520
#define AGENT_USER 65519
#define AGENT_BYTES 20 /* of text, at least */
#define WINDOW_NS UINT64_C(60000000)
#define WINDOWS (TIMES_ARE_TOLD ? 7u : 3u)
#define STEPS_AN_ANSWER 8
/* Behind each answer, where times are not asked for: what holds him up does so for 50 ms and more,
 * and without a rest his steps are most of what the tests of attacks take. */
#define REST_US 1000
/* The watchdog is fed by who answers control, and if the scheduler has moved: where either is as
 * late as an answer may be, 200 ms, it has heard nothing for as long and the 100 ms between two
 * times. That is its own time, after which a service manager would end the daemon. With a load
 * of 9 on two cores 100 to 172 ms were seen, and once 295: then neighbours are measured. */
#define SILENCE_NS (WATCHDOG_US * UINT64_C(1000) / 3 + CONTROL_NS)
#define STEP_NS (TIMES_ARE_TOLD ? UINT64_C(50000000) : UINT64_C(2000000000))

/* The group's: children know it. NULL: nobody asks. */
static struct watch *times;

/* ---- the honest client ---- */

uint64_t victims_control_ns(struct client *c)
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	uint64_t start = clock_now_ns();

	assert_int_equal(client_verb(c, status, &status)->code, 0);
	return clock_now_ns() - start;
}

static void watched_step(struct honest *honest)
{
	uint64_t start = clock_now_ns();

	honest_step(honest);
	if (times)
		watch_add(times, WATCH_STEPS, clock_now_ns() - start);
}

static struct figures window(struct honest *honest, struct client *c)
{
	uint64_t end = clock_now_ns() + WINDOW_NS, took;
	struct figures f = {0};

	honest->longest_ns = 0;
	do {
		for (int i = 0; i < STEPS_AN_ANSWER; i++)
			watched_step(honest);
		took = victims_control_ns(c);
		if (times)
			watch_add(times, WATCH_CONTROL, took);
		f.control_ns = took > f.control_ns ? took : f.control_ns;
		if (!times)
			usleep(REST_US);
	} while (clock_now_ns() < end);
	f.step_ns = honest->longest_ns;
	return f;
}

static int live_honestly(const struct harness *h, int said)
{
	struct client c = client_open(h);
	struct honest honest;

	honest_start(&honest, h->socket, 1);
	if (times)
		attack_is_on(said);
	while (attack_goes_on()) {
		struct figures f = window(&honest, &c);

		if (!times && write(said, &f, sizeof(f)) != sizeof(f))
			return 1;
	}
	return 0;
}

/* ---- what he sees ---- */

static struct figures next_window(struct victims *v)
{
	struct figures f;

	assert_int_equal(read(v->honest.said, &f, sizeof(f)), sizeof(f));
	return f;
}

static void forget_windows(struct victims *v)
{
	struct figures f;

	fcntl(v->honest.said, F_SETFL, O_NONBLOCK);
	while (read(v->honest.said, &f, sizeof(f)) > 0)
		continue;
	fcntl(v->honest.said, F_SETFL, 0);
	next_window(v); /* has begun before */
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

bool figures_are_near(struct figures f, struct figures beside)
{
	return f.step_ns <= beside.step_ns + STEP_NS &&
	       f.control_ns <= beside.control_ns + CONTROL_NS &&
	       f.silence_ns <= beside.silence_ns + SILENCE_NS;
}

/* Where memory is not told no more windows than it takes to know that the middle one is near a
 * neighbour of no time at all: no attack has to last for it. */
struct figures victims_measure(struct victims *v)
{
	uint64_t steps[WINDOWS], controls[WINDOWS];
	unsigned n = 0, n_near = 0;

	forget_windows(v);
	while (n < WINDOWS && (MEMORY_IS_TOLD || n_near <= WINDOWS / 2)) {
		struct figures f = next_window(v);

		steps[n] = f.step_ns;
		controls[n++] = f.control_ns;
		n_near += figures_are_near(f, (struct figures){0});
	}
	qsort(steps, n, sizeof(*steps), compare);
	qsort(controls, n, sizeof(*controls), compare);
	return (struct figures){.step_ns = steps[n / 2], .control_ns = controls[n / 2]};
}

/* ---- whole tokens ---- */

static int live_on_tokens(const struct harness *h, int said)
{
	return attack_tokens(h, times, said);
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

void victims_start(struct victims *v, const struct harness *h, struct watch *watch)
{
	*v = (struct victims){.h = h};
	times = watch;
	write_alone(v);
	v->honest = other_start(h, HONEST_USER, live_honestly);
	if (times)
		(void)other_ready(&v->honest);
	else
		next_window(v);
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
