/*
 * attack_fixture.c - see attack_fixture.h.
 *
 * Neighbours, as many as are the attack's match, are measured where what victims wait for is more
 * than a bound; where it is too much beside theirs, attack and neighbours are measured once more,
 * until more were near each other than not. Sanitizers stretch each user's work by another factor:
 * there the figures alone are held against wide bounds.
 */
#include "attack_fixture.h"

#include "attack_before.h"
#include "attack_victims.h"
#include "attack_watch.h"
#include "honest.h"
#include "proto/clock.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTACKER 65533 /* and those below */
#define ATTACKERS_MAX 4u
#define ON_TRIES 12000 /* of 5 ms: longer than a slow disk takes for a full journal */
#define TRIES 12 /* a machine that is busy with others is so for a while */
#define MEASURED_NS (TIMES_ARE_TOLD ? UINT64_C(420000000) : UINT64_C(150000000))
#define NEIGHBOURS_MAX 4u
#define PATH_TOKENS 8192u
#define PATH_TOKEN_BYTES UINT64_C(2048)
#define JOIN_PAUSE_MS 20
#define STEP_MS (TIMES_ARE_TOLD ? 50.0 : 2000.0)
#define CONTROL_MS (TIMES_ARE_TOLD ? 200.0 : 2000.0)
/* The watchdog is fed by who answers control, and if the scheduler has moved: where either is as
 * late as an answer may be, 200 ms, it has heard nothing for as long and the 100 ms between two
 * times. That is its own time, after which a service manager would end the daemon. */
#define SILENCE_MS (WATCHDOG_US / 3e3 + CONTROL_MS)
#define STRING_OF(number) #number
#define AS_STRING(number) STRING_OF(number)

struct neighbour {
	other_life *life;
	unsigned n_users;
	struct watched watched;
};

struct attack_fixture {
	struct harness *h;
	struct victims victims;
	struct client watch; /* root's */
	struct neighbour neighbours[NEIGHBOURS_MAX]; /* by the first that have been measured */
	struct other others[ATTACKERS_MAX]; /* n_others of them live */
	unsigned n_others;
	struct before before;
	char tier[96], budget[40]; /* the flags */
};

/* The group's: children know it. */
static struct watch *watch;
static bool table_is_asked;

int attack_neighbour(const struct harness *h, int said)
{
	struct honest honest;

	honest_start(&honest, h->socket, 2);
	attack_is_on(said);
	while (attack_goes_on())
		honest_step(&honest);
	return 0;
}

/* Root joins, asks and leaves, as coppicectl does. */
static void join_once(const struct harness *h)
{
	struct watch_since since = watch_now(watch);
	struct client c = client_open(h);

	victims_ask(&c);
	client_close(&c);
	watch_add(watch, WATCH_JOINS, since);
}

static void place(enum watch_place where)
{
	if (table_is_asked)
		watch_place(where);
}

static bool is_on(struct attack_fixture *a, const struct attack *attack)
{
	return !attack->is_on || attack->is_on(&a->watch);
}

uint32_t attack_path_tokens(void)
{
	const char *tokens = getenv("ATTACK_TOKENS");

	return tokens ? (uint32_t)strtoul(tokens, NULL, 10) : PATH_TOKENS;
}

static unsigned n_users_of(const struct attack *attack)
{
	return attack->n_users ? attack->n_users : 1;
}

static void others_kill(struct attack_fixture *a)
{
	while (a->n_others > 0)
		other_kill(&a->others[--a->n_others]);
}

/* Those of a test that has failed while they lived, whatever they died of. */
static void others_forget(struct attack_fixture *a)
{
	while (a->n_others > 0) {
		struct other *other = &a->others[--a->n_others];

		kill(other->pid, SIGKILL);
		(void)harness_wait(other->pid);
		close(other->said);
	}
}

static void others_start(struct attack_fixture *a, const struct attack *attack)
{
	others_forget(a);
	while (a->n_others < n_users_of(attack)) {
		a->others[a->n_others] = other_start(a->h, ATTACKER - a->n_others, attack->life);
		a->n_others++;
	}
	for (unsigned i = 0; i < a->n_others; i++)
		(void)other_ready(&a->others[i]);
	for (int i = 0; i < ON_TRIES && !is_on(a, attack); i++)
		sleep_ms(5);
	assert_true(is_on(a, attack));
}

/* What keys allow, of all attackers. */
static uint64_t bytes_allowed(const struct attack *attack)
{
	uint32_t prompt_mib = attack->prompt_mib ? attack->prompt_mib : ATTACK_PROMPT_MIB;
	uint64_t path_bytes = (attack_path_tokens() - PATH_TOKENS) * PATH_TOKEN_BYTES;

	return n_users_of(attack) * path_bytes + 2 * prompt_mib * MIB + 6 * 64 * MIB + SLACK_BYTES;
}

static void others_end(struct attack_fixture *a, const struct attack *attack)
{
	uint64_t bytes;

	if (attack->beside) {
		victims_hold_tokens(&a->victims);
		attack->beside(a->h, &a->watch);
		victims_go_on(&a->victims);
	}
	bytes = process_bytes(a->h->pid);
	others_kill(a);
	if (MEMORY_IS_TOLD)
		assert_true(bytes < a->before.n_bytes + bytes_allowed(attack));
}

/* ---- what is measured ---- */

static void watch_for_a_while(struct attack_fixture *a, struct watched *f)
{
	double seconds = watch_seconds();
	uint64_t ns = table_is_asked ? (uint64_t)(seconds * 1e9) : MEASURED_NS;
	struct watch_since begin = watch_now(watch);

	place(WATCH_VICTIMS);
	watch_begin(watch);
	for (unsigned i = 0; i < WATCH_OFTEN || watch_went_by_ns(watch, &begin) < ns; i++) {
		join_once(a->h);
		f->most_mib = fmax(f->most_mib, before_mib_beyond(&a->before));
		sleep_ms(JOIN_PAUSE_MS);
	}
	watch_end(watch, f);
	place(WATCH_OTHERS);
}

/* True: it has left what it found. */
static bool watch_once(struct attack_fixture *a, const struct attack *attack, struct watched *ret)
{
	uint64_t end;
	bool again;

	*ret = (struct watched){0};
	watch_listen(watch);
	others_start(a, attack);
	victims_write(&a->victims);
	watch_for_a_while(a, ret);
	victims_have_written(&a->victims);
	others_end(a, attack);
	end = clock_now_ns();
	ret->left_mib = before_mib_beyond(&a->before);
	again = before_is_again(&a->before);
	ret->settled_ms = (double)(clock_now_ns() - end) / 1e6;
	ret->silence_ms = fmax(ret->silence_ms, watch_silence_ms(watch));
	if (again)
		ret->left_mib = before_mib_beyond(&a->before);
	return again;
}

/* Until a round leaves what it has found. Lines of the others: what first uses cost. */
static struct watched watch_beside(struct attack_fixture *a, const struct attack *attack,
				   const char *name)
{
	struct watched f;

	for (int i = 1; !watch_once(a, attack, &f); i++) {
		char first[80];

		snprintf(first, sizeof(first), "%s, round %d", name, i);
		if (table_is_asked)
			watch_print(first, &f, NULL);
		assert_true(i < ATTACK_ROUNDS);
	}
	return f;
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

static struct attack match_of(const struct attack *neighbour, const struct attack *attack)
{
	struct attack match = *neighbour;

	match.n_users = attack->n_neighbours;
	return match;
}

/* Is it no more than a bound beyond what is waited for beside another? */
static bool is_near(const struct watched *f, const struct watched *beside)
{
	bool near = f->silence_ms <= beside->silence_ms + SILENCE_MS;

	for (int i = 0; i < WATCH_KINDS; i++) {
		const struct watch_times *t = &f->times[i], *other = &beside->times[i];
		double ms = i == WATCH_STEPS || i == WATCH_TOKENS ? STEP_MS : CONTROL_MS;

		near = near && t->held_ms <= other->held_ms + ms &&
		       t->often_ms <= other->often_ms + ms;
	}
	return near;
}

static void say(const struct watched *f, const struct watched *beside)
{
	static const char *const names[] = {"steps", "tokens", "answers", "root joins"};

	for (int i = 0; i < WATCH_KINDS; i++)
		print_message("%s %.1f, %.1f ms, beside a neighbour %.1f, %.1f; ", names[i],
			      f->times[i].held_ms, f->times[i].often_ms, beside->times[i].held_ms,
			      beside->times[i].often_ms);
	print_message("the watchdog waits %.0f ms, %.0f\n", f->silence_ms, beside->silence_ms);
}

static void withstand(struct attack_fixture *a, const struct attack *neighbour,
		      const struct attack *attack, const char *name)
{
	struct attack match = match_of(neighbour, attack);
	struct watched beside = {0}, f = watch_beside(a, attack, name);
	/* What is near a neighbour of no time at all is near any. */
	int more_near = is_near(&f, &beside);

	for (int i = 1; TIMES_ARE_TOLD && i < TRIES && more_near <= 0; i++) {
		if (i > 1)
			f = watch_beside(a, attack, name);
		beside = watch_beside(a, &match, neighbour->name);
		more_near += is_near(&f, &beside) ? 1 : -1;
		say(&f, &beside);
	}
	if (beside.times[WATCH_STEPS].n == 0)
		say(&f, &beside);
	assert_true(more_near > 0);
}

/* ---- the table ---- */

/* The first that is free, or has been measured. */
static struct neighbour *neighbour_of(struct attack_fixture *a, const struct attack *who)
{
	struct neighbour *n = a->neighbours, *end = n + NEIGHBOURS_MAX;

	while (n < end && n->life && (n->life != who->life || n->n_users != n_users_of(who)))
		n++;
	assert_true(n < end);
	return n;
}

/* Once a group. */
static const struct watched *watch_neighbour(struct attack_fixture *a, const struct attack *who)
{
	struct neighbour *n = neighbour_of(a, who);
	char name[64];

	if (!n->life) {
		*n = (struct neighbour){who->life, n_users_of(who),
					watch_beside(a, who, who->name)};
		snprintf(name, sizeof(name), "%s of %u", who->name, n->n_users);
		watch_print(n->n_users > 1 ? name : who->name, &n->watched, NULL);
	}
	return &n->watched;
}

static void watch_attack(struct attack_fixture *a, const struct attack *neighbour,
			 const struct attack *attack, const char *name)
{
	struct attack match = match_of(neighbour, attack);
	const struct watched *beside = watch_neighbour(a, &match);
	struct watched f = watch_beside(a, attack, name);

	watch_print(name, &f, beside);
}

void attack_withstand(void **state, const struct attack *neighbour, const struct attack *attack,
		      const char *name)
{
	if (table_is_asked)
		watch_attack(*state, neighbour, attack, name);
	else
		withstand(*state, neighbour, attack, name);
}

/* ---- the group ---- */

static void tier_flag(const struct harness *h, char *ret, size_t bytes)
{
	snprintf(ret, bytes, "--file-tier=%s/tier", h->folder);
}

/* NULL: as it is without one. */
static const char *budget_flag(char *ret, size_t bytes)
{
	const char *ms = getenv("ATTACK_BUDGET_MS");

	if (!ms)
		return NULL;
	snprintf(ret, bytes, "--batch-budget-ms=%s", ms);
	return ret;
}

static void tier_remove(const struct harness *h)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/tier", h->folder);
	unlink(path);
}

/* What nobody's neighbour costs. */
static void watch_alone(struct attack_fixture *a)
{
	struct watched f = {0};

	watch_print_head();
	watch_listen(watch);
	watch_for_a_while(a, &f);
	watch_print("nobody", &f, NULL);
}

static void listen_to(struct harness *h)
{
	watch = watch_new();
	table_is_asked = watch_seconds() > 0;
	h->watchdog_us = AS_STRING(WATCHDOG_US);
	h->notify_path = watch_notify_path(watch);
}

int attack_setup_with(void **state, const char *const *flags, unsigned n)
{
	struct attack_fixture *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	a->h = harness_new("epoll");
	assert_true(n < HARNESS_FLAGS);
	tier_flag(a->h, a->tier, sizeof(a->tier));
	for (unsigned i = 0; i < n; i++)
		a->h->flags[i] = strcmp(flags[i], "TIER") ? flags[i] : a->tier;
	a->h->flags[n] = budget_flag(a->budget, sizeof(a->budget));
	listen_to(a->h);
	place(WATCH_DAEMON);
	harness_start(a->h);
	watch_daemon(watch, a->h->pid);
	place(WATCH_VICTIMS);
	a->watch = client_open(a->h);
	a->before = (struct before){.h = a->h, .root = &a->watch};
	before_anybody(&a->before);
	victims_start(&a->victims, a->h, watch);
	place(WATCH_OTHERS);
	a->before.n_tokens = a->victims.has_tokens ? 1 : 0;
	before_take(&a->before);
	if (table_is_asked)
		watch_alone(a);
	*state = a;
	return 0;
}

int attack_setup(void **state)
{
	static char pool[32];
	const char *const flags[] = {"--max-sessions=64",
				     "--max-domain-sessions=6",
				     "--max-arenas=8",
				     "--max-arena-bytes=64M",
				     "--max-lanes=8",
				     "--domain-prompt-bytes=64M",
				     pool,
				     "--extent=2M"};

	snprintf(pool, sizeof(pool), "--pool=%uM", attack_path_tokens() / PATH_TOKENS * 256);
	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int attack_teardown(void **state)
{
	struct attack_fixture *a = *state;
	int status;
	bool left;

	others_forget(a);
	victims_end(&a->victims);
	left = !before_nothing_is_left(&a->before);
	client_close(&a->watch);
	status = harness_stop(a->h, SIGTERM);
	watch_free(watch);
	tier_remove(a->h);
	harness_free(a->h);
	free(a);
	return left ? 1 : status;
}
