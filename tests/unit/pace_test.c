/*
 * pace_test.c - agents that start at random moments fall into step by themselves: a simulation
 * by events around a real scheduler, with a clock of the test's own and a backend that takes as
 * long as a GPU would.
 *
 * A step that is complete is followed by the next after the agent's think time; a token's first
 * layer takes longer. Times are in nanoseconds.
 */
#include "sched_harness.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define N_PROMPT 64
#define N_AGENTS 8
#define N_LAYERS 8
#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define START_NS (50 * MS) /* agents start within so many */
#define FIXED_NS (45 * US) /* of a job */
#define COST_NS (30 * US) /* what the backend says of it */
#define HICCUP_NS (150 * US)
#define ROW_NS (1 * US)
#define TOKEN_NS (60 * US) /* of thinking more between two tokens */
/* Of a new plan, and of a submission under a known one: nothing is looked at meanwhile. */
#define PLAN_NS (200 * US)
#define SUBMIT_NS (10 * US)

static const struct work_shape SHAPE = {.n_layers = N_LAYERS,
					.n_q_heads = 1,
					.n_kv_heads = 1,
					.head_dim = 16,
					.page_tokens = 16,
					.dtype = WORK_FP32};

/* ---- time ----------------------------------------------------------------------------------- */

static uint64_t now_ns, backend_done_ns, backend_id;
static bool slow; /* the backend takes its time */
static uint64_t plan_ids[64]; /* that were seen */
static uint64_t n_plans;

static uint64_t fake_clock(void)
{
	return now_ns;
}

static bool is_new_plan(uint64_t id)
{
	for (uint64_t i = 0; i < n_plans && i < 64; i++) {
		if (plan_ids[i] == id)
			return false;
	}
	plan_ids[n_plans++ % 64] = id;
	return true;
}

static int slow_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	int r = backend_cpu.submit(b, batch, &backend_id);

	for (uint32_t i = 0; slow && i < batch->n_jobs; i++)
		now_ns += is_new_plan(batch->jobs[i].plan_id) ? PLAN_NS : SUBMIT_NS;
	backend_done_ns = now_ns;
	for (uint32_t i = 0; slow && i < batch->n_jobs; i++)
		backend_done_ns += FIXED_NS + ROW_NS * batch->jobs[i].tree->n_queries;
	*ret_id = backend_id;
	return r;
}

static int slow_completed(struct backend *b, uint64_t *ret_id)
{
	int r;

	if (now_ns < backend_done_ns) {
		*ret_id = backend_id - 1;
		return 0;
	}
	do
		r = backend_cpu.completed(b, ret_id);
	while (r == 0 && *ret_id < backend_id);
	return r;
}

static void slow_cost(struct backend *b, const struct work_shape *shape, struct backend_cost *ret)
{
	(void)b;
	(void)shape;
	*ret = (struct backend_cost){.fixed_ns = (double)COST_NS};
}

/* ---- agents --------------------------------------------------------------------------------- */

struct agent {
	struct client c;
	uint64_t seq;
	uint32_t layer; /* of the next step */
	uint64_t think_ns, jitter_ns, hiccups; /* one of so many steps has one */
	uint64_t due_ns; /* of the next step; 0: one is under way */
	uint64_t n_steps;
};

struct fixture {
	struct harness h;
	struct backend_ops ops;
	struct agent agents[N_AGENTS];
	uint64_t seed;
};

static uint64_t draw(struct fixture *f, uint64_t below)
{
	f->seed = f->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return below ? (f->seed >> 33) % below : 0;
}

static void step(struct agent *a)
{
	struct abi_step_seq rec = client_step_seq(&a->c, a->seq, 1);
	uint32_t id = (uint32_t)a->seq * 10000 + (uint32_t)a->c.ticket;

	if (a->layer == 0)
		client_submit(&a->c,
			      (struct abi_entry){.kind = ABI_EXTEND, .seq = a->seq, .count = 1},
			      &id, 4);
	client_submit(&a->c, (struct abi_entry){.kind = ABI_STEP, .count = 1, .layer = a->layer},
		      &rec, sizeof(rec));
	a->layer = (a->layer + 1) % N_LAYERS;
	a->due_ns = 0;
}

static bool is_done(const struct agent *a)
{
	return ring_done(a->c.lane) == a->c.ticket;
}

/* What has happened by now. */
static void go(struct fixture *f)
{
	for (struct agent *a = f->agents; a < f->agents + N_AGENTS; a++) {
		if (a->due_ns && a->due_ns <= now_ns)
			step(a);
	}
	while (sched_round(f->h.sched))
		continue;
	for (struct agent *a = f->agents; a < f->agents + N_AGENTS; a++) {
		if (a->due_ns || !is_done(a))
			continue;
		a->n_steps++;
		a->due_ns = now_ns + a->think_ns + draw(f, a->jitter_ns) +
			    (a->layer == 0 ? TOKEN_NS : 0) + (draw(f, a->hiccups) ? 0 : HICCUP_NS);
	}
}

static uint64_t next_event_ns(const struct fixture *f)
{
	const struct sched *s = f->h.sched;
	uint64_t next = s->batch.in_flight ? UINT64_MAX : window_deadline_ns(&s->window);

	for (const struct agent *a = f->agents; a < f->agents + N_AGENTS; a++) {
		if (a->due_ns && a->due_ns < next)
			next = a->due_ns;
	}
	if (s->batch.in_flight && backend_done_ns < next)
		next = backend_done_ns;
	return next > now_ns ? next : now_ns + 1;
}

static void run_until(struct fixture *f, uint64_t end_ns)
{
	while (now_ns < end_ns) {
		go(f);
		now_ns = next_event_ns(f);
	}
}

struct figures {
	double sessions_a_job;
	double steps[N_AGENTS];
};

static struct figures run(struct fixture *f, uint64_t warm_ns, uint64_t measured_ns)
{
	const struct sched_status *stats = &f->h.sched->core.stats;
	uint64_t steps[N_AGENTS], jobs, sessions;
	struct figures ret;

	run_until(f, now_ns + warm_ns);
	for (int i = 0; i < N_AGENTS; i++)
		steps[i] = f->agents[i].n_steps;
	jobs = stats->decode_jobs;
	sessions = stats->decode_sessions;
	run_until(f, now_ns + measured_ns);
	ret.sessions_a_job =
		(double)(stats->decode_sessions - sessions) / (double)(stats->decode_jobs - jobs);
	for (int i = 0; i < N_AGENTS; i++)
		ret.steps[i] = (double)(f->agents[i].n_steps - steps[i]);
	return ret;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void open_agent(struct fixture *f, struct agent *a)
{
	uint32_t prompt[N_PROMPT];
	struct store_match match;

	for (uint32_t i = 0; i < N_PROMPT; i++)
		prompt[i] = i + 100;
	client_start(&a->c, &f->h, 1000, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&a->c, prompt, N_PROMPT, &a->seq, &match), 0);
	if (N_PROMPT - match.cached > 16)
		client_compute(&a->c, a->seq, prompt + match.cached, N_PROMPT - match.cached);
	a->think_ns = 20 * US;
	a->jitter_ns = 40 * US;
	a->hiccups = 50;
}

static uint64_t seed(void)
{
	const char *given = getenv("COPPICE_SEED");

	return given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->seed = seed();
	printf("seed %llu\n", (unsigned long long)f->seed);
	f->ops = backend_cpu;
	f->ops.submit = slow_submit;
	f->ops.completed = slow_completed;
	f->ops.cost = slow_cost;
	now_ns = 1000 * MS;
	backend_done_ns = backend_id = 0;
	slow = false;
	harness_init(&f->h);
	f->h.ops = &f->ops;
	f->h.config.n_threads = 1;
	f->h.stepped = true;
	harness_start(&f->h);
	f->h.sched->core.clock = fake_clock;
	for (int i = 0; i < N_AGENTS; i++)
		open_agent(f, &f->agents[i]);
	for (int i = 0; i < N_AGENTS; i++)
		f->agents[i].due_ns = now_ns + 1 + draw(f, START_NS);
	slow = true;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	slow = false;
	now_ns = backend_done_ns;
	for (int i = 0; i < N_AGENTS; i++)
		client_end(&f->agents[i].c);
	harness_stop(&f->h);
	free(f);
	return 0;
}

static void show(const char *name, const struct figures *of)
{
	printf("%s: %.2f sessions a job; steps:", name, of->sessions_a_job);
	for (int i = 0; i < N_AGENTS; i++)
		printf(" %.0f", of->steps[i]);
	printf("\n");
}

static void who_starts_at_random_falls_into_step(void **state)
{
	struct figures of = run(*state, START_NS + 20 * MS, 100 * MS);

	show("random", &of);
	assert_true(of.sessions_a_job >= 7.5);
}

/* Streams of a GPU are alike: chance brings nobody together. */
static void who_are_alike_fall_into_step(void **state)
{
	struct fixture *f = *state;
	struct figures of;

	for (struct agent *a = f->agents; a < f->agents + N_AGENTS; a++) {
		a->think_ns = 40 * US;
		a->jitter_ns = 3 * US;
		a->hiccups = 5000;
	}
	of = run(f, START_NS + 50 * MS, 100 * MS);
	show("alike", &of);
	assert_true(of.sessions_a_job >= 7.5);
}

/* The last agent thinks for so long; the others are to be as fast as they are without it, or
 * nearly. */
static void check_slow(struct fixture *f, uint64_t think_ns)
{
	struct agent *last = &f->agents[N_AGENTS - 1];
	struct figures of;

	last->think_ns = think_ns;
	last->jitter_ns = think_ns / 4;
	of = run(f, START_NS + 20 * MS, 100 * MS);
	show("slow", &of);
	/* its step alone, and at most two jobs of others before it */
	double own = 100.0 * MS / (double)(think_ns * 9 / 8 + 3 * FIXED_NS + 20 * US);

	assert_true(of.steps[N_AGENTS - 1] > 0.8 * own);
	assert_true(of.steps[0] >
		    100.0 * MS / (double)(60 * US + TOKEN_NS / 8 + 2 * FIXED_NS + 20 * US) * 0.9);
}

static void a_slow_one_neither_holds_the_others_nor_starves(void **state)
{
	check_slow(*state, 400 * US);
}

static void a_very_slow_one_neither_holds_the_others_nor_starves(void **state)
{
	check_slow(*state, 5 * MS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(who_starts_at_random_falls_into_step),
		TEST(who_are_alike_fall_into_step),
		TEST(a_slow_one_neither_holds_the_others_nor_starves),
		TEST(a_very_slow_one_neither_holds_the_others_nor_starves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
