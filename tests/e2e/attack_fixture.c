/*
 * attack_fixture.c - see attack_fixture.h.
 *
 * The honest client works in windows and tells the longest step and the longest answer of each. Of
 * some windows the middle one counts: a machine that is busy with other things disturbs one or the
 * other, an attack that holds up others all of them. A neighbour is measured where the figures
 * alone say too little; where they say too much, neighbour and attack are measured once more, until
 * more were near each other than not.
 */
#include "attack_fixture.h"

#include "honest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HONEST_USER 65534
#define ATTACKER 65533 /* and those below */
#define ATTACKERS_MAX 4u
#define ON_TRIES 6000 /* of 5 ms */
#define JOIN_TRIES 8
#define WINDOW_NS UINT64_C(60000000)
#define WINDOWS 7
#define STEPS_AN_ANSWER 8
#define TRIES 12 /* a machine that is busy with others is so for a while */
#define SETTLE_TRIES 2000 /* of 5 ms */
#define STEP_NS UINT64_C(50000000)
#define CONTROL_NS UINT64_C(200000000)
#define MIB (UINT64_C(1) << 20)
/* What the C library keeps of what has been freed, and the rest of what an attacker may have. */
#define SLACK_BYTES (32 * MIB)
#define HONEST_PAGES 32

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_TOLD false /* what is freed is kept for a while */
#else
#define MEMORY_IS_TOLD true
#endif

struct figures {
	uint64_t step_ns, control_ns; /* the longest of a window */
	uint64_t join_ns; /* root's */
};

struct attack_fixture {
	struct harness *h;
	struct other honest;
	struct client watch; /* root's */
	unsigned n_fds;
	uint64_t n_bytes;
	char tier[96]; /* the flag */
};

/* ---- the honest client ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t control_ns(struct client *c)
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	uint64_t start = now_ns();

	assert_int_equal(client_verb(c, status, &status)->code, 0);
	return now_ns() - start;
}

static struct figures window(struct honest *honest, struct client *c)
{
	uint64_t end = now_ns() + WINDOW_NS, took;
	struct figures f = {0};

	honest->longest_ns = 0;
	do {
		for (int i = 0; i < STEPS_AN_ANSWER; i++)
			honest_step(honest);
		took = control_ns(c);
		f.control_ns = took > f.control_ns ? took : f.control_ns;
	} while (now_ns() < end);
	f.step_ns = honest->longest_ns;
	return f;
}

static int live_honestly(const struct harness *h, int said)
{
	struct client c = client_open(h);
	struct honest honest;

	honest_start(&honest, h->socket, 1);
	while (attack_goes_on()) {
		struct figures f = window(&honest, &c);

		if (write(said, &f, sizeof(f)) != sizeof(f))
			return 1;
	}
	return 0;
}

int attack_neighbour(const struct harness *h, int said)
{
	struct honest honest;

	honest_start(&honest, h->socket, 2);
	attack_is_on(said);
	while (attack_goes_on())
		honest_step(&honest);
	return 0;
}

/* ---- what he sees ---- */

static struct figures next_window(struct attack_fixture *a)
{
	struct figures f;

	assert_int_equal(read(a->honest.said, &f, sizeof(f)), sizeof(f));
	return f;
}

static void forget_windows(struct attack_fixture *a)
{
	struct figures f;

	fcntl(a->honest.said, F_SETFL, O_NONBLOCK);
	while (read(a->honest.said, &f, sizeof(f)) > 0)
		continue;
	fcntl(a->honest.said, F_SETFL, 0);
	next_window(a); /* has begun before */
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static struct figures measure(struct attack_fixture *a)
{
	uint64_t steps[WINDOWS], controls[WINDOWS];

	forget_windows(a);
	for (int i = 0; i < WINDOWS; i++) {
		struct figures f = next_window(a);

		steps[i] = f.step_ns;
		controls[i] = f.control_ns;
	}
	qsort(steps, WINDOWS, sizeof(*steps), compare);
	qsort(controls, WINDOWS, sizeof(*controls), compare);
	return (struct figures){steps[WINDOWS / 2], controls[WINDOWS / 2]};
}

/* Root joins, asks and leaves, as coppicectl does. */
static uint64_t join_once_ns(const struct harness *h)
{
	uint64_t start = now_ns();
	struct client c = client_open(h);

	(void)control_ns(&c);
	client_close(&c);
	return now_ns() - start;
}

/* One of some times soon. */
static uint64_t join_ns(const struct harness *h)
{
	uint64_t took = UINT64_MAX;

	for (int i = 0; i < JOIN_TRIES && took > CONTROL_NS; i++)
		took = join_once_ns(h);
	return took;
}

static bool is_on(struct attack_fixture *a, const struct attack *attack)
{
	return !attack->is_on || attack->is_on(&a->watch);
}

static struct figures measure_beside(struct attack_fixture *a, const struct attack *attack)
{
	unsigned n_users = attack->n_users ? attack->n_users : 1;
	uint32_t prompt_mib = attack->prompt_mib ? attack->prompt_mib : ATTACK_PROMPT_MIB;
	struct other others[ATTACKERS_MAX];
	struct figures f;

	for (unsigned i = 0; i < n_users; i++)
		others[i] = other_start(a->h, ATTACKER - i, attack->life);
	for (unsigned i = 0; i < n_users; i++)
		(void)other_ready(&others[i]);
	for (int i = 0; i < ON_TRIES && !is_on(a, attack); i++)
		sleep_ms(5);
	assert_true(is_on(a, attack));
	f = measure(a);
	f.join_ns = join_ns(a->h);
	if (attack->beside)
		attack->beside(a->h, &a->watch);
	if (MEMORY_IS_TOLD)
		assert_true(process_bytes(a->h->pid) <
			    a->n_bytes + 2 * prompt_mib * MIB + 6 * 64 * MIB + SLACK_BYTES);
	for (unsigned i = 0; i < n_users; i++)
		other_kill(&others[i]);
	return f;
}

/* ---- what is left ---- */

static const Coppice__StatusReply *status_of(struct client *c)
{
	Coppice__Status status = COPPICE__STATUS__INIT;

	return client_verb(c, status, &status)->status;
}

/* The honest client's two sessions and this one. */
static bool is_as_before(struct attack_fixture *a)
{
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	const Coppice__StatusReply *now;

	assert_int_equal(client_verb(&a->watch, evict, &evict)->code, 0);
	now = status_of(&a->watch);
	return now->n_sessions == 3 && now->n_seqs <= 1 && now->n_pages <= HONEST_PAGES &&
	       now->prompt_bytes <= sizeof(uint32_t) && now->n_pins == 0 &&
	       now->device_arena_bytes == 0 && now->tier_journal_bytes <= now->tier_journal_max &&
	       process_descriptors(a->h->pid) == a->n_fds &&
	       (!MEMORY_IS_TOLD || process_bytes(a->h->pid) <= a->n_bytes + SLACK_BYTES);
}

static void assert_as_before(struct attack_fixture *a)
{
	const Coppice__StatusReply *now;

	for (int i = 0; i < SETTLE_TRIES && !is_as_before(a); i++)
		sleep_ms(5);
	if (is_as_before(a))
		return;
	now = status_of(&a->watch);
	fail_msg("%llu sessions, %llu sequences, %llu pages, %llu bytes of prompts, %llu pins, "
		 "%llu bytes of device arenas, %u of %u descriptors, %llu of %llu MiB are left",
		 (unsigned long long)now->n_sessions, (unsigned long long)now->n_seqs,
		 (unsigned long long)now->n_pages, (unsigned long long)now->prompt_bytes,
		 (unsigned long long)now->n_pins, (unsigned long long)now->device_arena_bytes,
		 process_descriptors(a->h->pid), a->n_fds,
		 (unsigned long long)(process_bytes(a->h->pid) / MIB),
		 (unsigned long long)(a->n_bytes / MIB));
}

/* ---- attacks ---- */

bool attack_goes_on(void)
{
	return getppid() > 1;
}

void attack_is_on(int said)
{
	if (write(said, "", 1) != 1)
		_exit(98);
}

static bool are_near(struct figures f, struct figures beside)
{
	return f.step_ns <= beside.step_ns + STEP_NS &&
	       f.control_ns <= beside.control_ns + CONTROL_NS;
}

static void withstand(struct attack_fixture *a, const struct attack *neighbour,
		      const struct attack *attack)
{
	struct figures beside = {0}, f = measure_beside(a, attack);
	/* What is near a neighbour of no time at all is near any. */
	int more_near = are_near(f, beside);

	assert_as_before(a);
	for (int i = 1; i < TRIES && more_near <= 0; i++) {
		beside = measure_beside(a, neighbour);
		f = measure_beside(a, attack);
		assert_as_before(a);
		more_near += are_near(f, beside) ? 1 : -1;
	}
	print_message(
		"steps %.1f ms, beside a neighbour %.1f; answers %.1f ms, %.1f; root joins in "
		"%.1f ms, %.1f\n",
		(double)f.step_ns / 1e6, (double)beside.step_ns / 1e6, (double)f.control_ns / 1e6,
		(double)beside.control_ns / 1e6, (double)f.join_ns / 1e6,
		(double)beside.join_ns / 1e6);
	assert_true(more_near > 0);
	assert_true(f.join_ns <= CONTROL_NS);
	assert_false(harness_log_has(a->h, "has not moved"));
}

void assert_withstood(void **state, other_life *neighbour, other_life *attack)
{
	withstand(*state, &(struct attack){.life = neighbour}, &(struct attack){.life = attack});
}

void assert_attack_withstood(void **state, const struct attack *attack)
{
	withstand(*state, &(struct attack){.life = attack_neighbour}, attack);
}

/* ---- the group ---- */

static void tier_flag(const struct harness *h, char *ret, size_t bytes)
{
	snprintf(ret, bytes, "--file-tier=%s/tier", h->folder);
}

static void tier_remove(const struct harness *h)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/tier", h->folder);
	unlink(path);
}

int attack_setup_with(void **state, const char *const *flags, unsigned n)
{
	struct attack_fixture *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	a->h = harness_new("epoll");
	assert_true(n <= HARNESS_FLAGS);
	tier_flag(a->h, a->tier, sizeof(a->tier));
	for (unsigned i = 0; i < n; i++)
		a->h->flags[i] = strcmp(flags[i], "TIER") ? flags[i] : a->tier;
	a->h->watchdog_us = "6000000";
	harness_start(a->h);
	a->watch = client_open(a->h);
	a->honest = other_start(a->h, HONEST_USER, live_honestly);
	next_window(a);
	a->n_fds = process_descriptors(a->h->pid);
	a->n_bytes = process_bytes(a->h->pid);
	*state = a;
	return 0;
}

int attack_setup(void **state)
{
	static const char *const flags[] = {"--max-sessions=64", "--max-domain-sessions=6",
					    "--max-arenas=8",	 "--max-arena-bytes=64M",
					    "--max-lanes=8",	 "--domain-prompt-bytes=64M",
					    "--pool=256M",	 "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int attack_teardown(void **state)
{
	struct attack_fixture *a = *state;
	int status;

	other_kill(&a->honest);
	client_close(&a->watch);
	status = harness_stop(a->h, SIGTERM);
	tier_remove(a->h);
	harness_free(a->h);
	free(a);
	return status;
}
