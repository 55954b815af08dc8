/*
 * plan_ahead_random_test.c - sequences that grow, share, fork, are cut and close, in lanes that
 * keep company or not, while plans are made ahead, late, or not at all: whatever plan a batch is
 * submitted with has each token of each path where the store has it, and no other.
 */
#include "daemon/sched/round.h"
#include "oracle.h"
#include "plan_paths.h"
#include "sched_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIENTS 4u
#define SEQS 3u /* of each */
#define TOKENS_MAX PLAN_PATHS_TOKENS
#define PLANS 24u
#define ROUNDS 1500u
#define COMMON 512u /* tokens that any sequence may begin with */
#define PLAN_ROOM 32u /* tokens of a row that a plan takes in */
#define LEAST_TAKEN 20u /* plans made ahead; about a hundred are */

/* A backend that remembers plans, and loses some. */
static struct {
	struct backend_ops ops;
	struct oracle_random random; /* the scheduler's */
	struct oracle_random plans_random; /* whoever prepares */
	struct plan_paths plans[PLANS];
	uint32_t next_plan;
	struct plan_paths ahead; /* under the lock */
	pthread_mutex_t lock;
	struct sched *sched;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct plan_paths *device_plan_new(void)
{
	return &device.plans[device.next_plan++ % PLANS];
}

static struct plan_paths *plan_find(uint64_t id)
{
	struct plan_paths *p = NULL;

	for (uint32_t i = 0; i < PLANS && !p; i++)
		p = device.plans[i].id == id ? &device.plans[i] : NULL;
	pthread_mutex_lock(&device.lock);
	if (!p && device.ahead.id == id) {
		p = device_plan_new();
		*p = device.ahead;
		device.ahead.id = 0;
	}
	pthread_mutex_unlock(&device.lock);
	return p;
}

static int device_prepare(struct backend *b, const struct backend_job *job)
{
	static struct plan_paths making;

	(void)b;
	usleep(oracle_below(&device.plans_random, 3000));
	if (oracle_below(&device.plans_random, 15) == 0)
		return -ENOMEM;
	plan_paths_fill(&making, job);
	pthread_mutex_lock(&device.lock);
	device.ahead = making;
	pthread_mutex_unlock(&device.lock);
	return 0;
}

static int device_advance(struct backend *b, const struct backend_job *job)
{
	struct plan_paths *p = plan_find(job->plan_id);

	(void)b;
	if (!p)
		return -ESTALE;
	if (oracle_below(&device.random, 100) == 0 || p->n_taken == PLAN_ROOM) {
		p->id = 0;
		return oracle_below(&device.random, 2) ? -ESTALE : -ENOMEM;
	}
	plan_paths_take(p, job);
	return p->n_taken >= PLAN_ROOM / 8 ? BACKEND_SOON : 0;
}

static void check_plan(const struct backend_job *job)
{
	const struct batch *b = &device.sched->batch;
	struct plan_paths *p = plan_find(job->plan_id);
	uint32_t q = 0;

	if (!p) {
		assert_false(job->advanced);
		p = device_plan_new();
		plan_paths_fill(p, job);
	}
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		const struct batch_job *of = &b->jobs[i];

		for (uint32_t part = 0; part < of->n_parts && of->layer == job->layer; part++, q++)
			plan_paths_check(p, q, of->parts[part]->seq->store);
	}
	assert_int_equal(q, p->n_queries);
}

static int device_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];

		if (job->advanced && oracle_below(&device.random, 100) == 0) {
			plan_find(job->plan_id)->id = 0;
			return -ESTALE;
		}
		if (job->plan_id)
			check_plan(job);
	}
	return oracle_below(&device.random, 1500) ? backend_cpu.submit(b, batch, ret_id) : -ENOMEM;
}

/* ---- clients -------------------------------------------------------------------------------- */

struct seq {
	uint64_t handle;
	bool open;
	uint32_t n_tokens;
};

struct crowd {
	struct harness h;
	struct client c[CLIENTS];
	struct seq seqs[CLIENTS][SEQS];
	struct oracle_random random;
	uint32_t common[COMMON];
	uint32_t company; /* a bit for each client that decodes */
};

static void seq_close(struct crowd *w, uint32_t i, uint32_t k)
{
	struct seq *s = &w->seqs[i][k];

	if (s->open)
		assert_int_equal(client_close(&w->c[i], s->handle), 0);
	s->open = false;
}

/* The session ends it where its prompt is not computed. */
static void seq_open(struct crowd *w, uint32_t i, uint32_t k)
{
	uint32_t n = 3 + oracle_below(&w->random, 50);
	struct seq *s = &w->seqs[i][k];
	struct abi_step_seq rec;
	struct store_match match;
	bool fine;

	seq_close(w, i, k);
	assert_int_equal(client_open(&w->c[i], w->common, n, &s->handle, &match), 0);
	s->open = true;
	s->n_tokens = n;
	fine = client_extend(&w->c[i], s->handle, w->common + match.cached, n - match.cached)
		       .status == 0;
	rec = client_step_seq(&w->c[i], s->handle, n - match.cached);
	for (uint32_t layer = 0; layer < fixture_shape.n_layers && fine; layer++)
		fine = client_step(&w->c[i], &rec, layer).status == 0;
	if (!fine)
		seq_close(w, i, k);
}

/* By a token, or a few: its own, or what others have too. */
static bool seq_extend(struct crowd *w, uint32_t i, uint32_t k, struct abi_step_seq *ret)
{
	struct seq *s = &w->seqs[i][k];
	uint32_t n = oracle_below(&w->random, 300) ? 1 : 2 + oracle_below(&w->random, 2);
	uint32_t own = 1000 + 10 * i + k, ids[3] = {own, own, own};

	if (!s->open || s->n_tokens + n > TOKENS_MAX)
		seq_open(w, i, k);
	if (!s->open)
		return false;
	if (s->n_tokens < COMMON && oracle_below(&w->random, 200) == 0)
		ids[0] = w->common[s->n_tokens];
	if (client_extend(&w->c[i], s->handle, ids, n).status) {
		seq_close(w, i, k);
		return false;
	}
	s->n_tokens += n;
	*ret = client_step_seq(&w->c[i], s->handle, n);
	return true;
}

static void decode(struct crowd *w)
{
	struct abi_step_seq recs[CLIENTS][SEQS];
	uint32_t n[CLIENTS] = {0};
	uint64_t tickets[CLIENTS];

	for (uint32_t i = 0; i < CLIENTS; i++) {
		for (uint32_t k = 0; k < SEQS && w->company >> i & 1; k++)
			n[i] += seq_extend(w, i, k, &recs[i][n[i]]);
	}
	for (uint32_t layer = 0; layer < fixture_shape.n_layers; layer++) {
		for (uint32_t i = 0; i < CLIENTS; i++) {
			struct abi_entry step = {.kind = ABI_STEP, .count = n[i], .layer = layer};

			if (n[i])
				tickets[i] = client_submit(&w->c[i], step, recs[i],
							   n[i] * (uint32_t)sizeof(recs[i][0]));
		}
		for (uint32_t i = 0; i < CLIENTS; i++) {
			if (n[i] == 0 || client_wait(&w->c[i], tickets[i]).status == 0)
				continue;
			n[i] = 0;
			for (uint32_t k = 0; k < SEQS; k++)
				seq_close(w, i, k);
		}
	}
}

static void cut(struct crowd *w, uint32_t i, uint32_t k)
{
	struct seq *s = &w->seqs[i][k];
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = s->handle};

	if (!s->open)
		return;
	trim.arg = s->n_tokens - oracle_below(&w->random, s->n_tokens < 20 ? s->n_tokens : 20);
	s->n_tokens = (uint32_t)trim.arg;
	if (client_do(&w->c[i], trim, NULL, 0).status)
		seq_close(w, i, k);
}

static void fork_first(struct crowd *w, uint32_t i)
{
	struct seq *s = w->seqs[i];
	struct abi_completion fork;

	if (!s[0].open)
		return;
	fork = client_do(&w->c[i], (struct abi_entry){.kind = ABI_FORK, .seq = s[0].handle}, NULL,
			 0);
	if (fork.status)
		return;
	seq_close(w, i, 1);
	s[1] = (struct seq){fork.value, true, s[0].n_tokens};
}

static void come_anew(struct crowd *w, uint32_t i)
{
	client_end(&w->c[i]);
	memset(w->seqs[i], 0, sizeof(w->seqs[i]));
	client_start(&w->c[i], &w->h, 1000, &fixture_shape, 1 << 20);
}

/* Else it comes late. */
static void await_plan(struct crowd *w)
{
	while (atomic_load(&w->h.sched->batch.plans.ahead.state) == PLAN_AHEAD_MAKING)
		usleep(100);
}

static void do_something(struct crowd *w)
{
	uint32_t i = oracle_below(&w->random, CLIENTS), k = oracle_below(&w->random, SEQS);

	switch (oracle_below(&w->random, 150)) {
	case 0:
		cut(w, i, k);
		break;
	case 1:
		fork_first(w, i);
		break;
	case 2:
		seq_open(w, i, k);
		break;
	case 3:
		come_anew(w, i);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
		w->company = oracle_below(&w->random, 2)
				     ? (1u << CLIENTS) - 1
				     : 1 + oracle_below(&w->random, (1u << CLIENTS) - 1);
		break;
	default:
		if (oracle_below(&w->random, 2))
			await_plan(w);
	}
}

static void every_plan_has_the_paths_as_they_are(void **state)
{
	static struct crowd w;

	(void)state;
	w.random = oracle_seed(__func__);
	device.random = oracle_seed("device");
	device.plans_random = oracle_seed("plans");
	device.ops = backend_cpu;
	device.ops.advance = device_advance;
	device.ops.prepare = device_prepare;
	device.ops.submit = device_submit;
	for (uint32_t i = 0; i < COMMON; i++)
		w.common[i] = i / 3;
	harness_init(&w.h);
	w.h.stepped = true;
	w.h.config.pool_bytes = 256u << 20;
	w.h.config.n_threads = 1;
	harness_start(&w.h);
	w.h.sched->core.ops = &device.ops;
	device.sched = w.h.sched;
	w.company = (1u << CLIENTS) - 1;
	for (uint32_t i = 0; i < CLIENTS; i++)
		client_start(&w.c[i], &w.h, 1000, &fixture_shape, 1 << 20);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		decode(&w);
		do_something(&w);
	}
	assert_true(w.h.sched->core.stats.plans_ahead >= LEAST_TAKEN);
	for (uint32_t i = 0; i < CLIENTS; i++)
		client_end(&w.c[i]);
	harness_stop(&w.h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_plan_has_the_paths_as_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
