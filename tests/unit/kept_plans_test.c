/*
 * kept_plans_test.c - sequences that go the same way for a while, and then another, by plans that
 * are kept from token to token as on a GPU (kept_plans.h): each attends to its own tokens and to no
 * other's, in whosever page these come to lie.
 *
 * A value is made of its path, so that those of one path are the same whoever computes them. Scores
 * are all 0: an output is the mean of the values.
 */
#include "kept_plans.h"
#include "oracle.h"
#include "sched_harness.h"

#include "daemon/sched/verbs/scheduler.h"

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 2u
#define DIM 64u
#define PAGE_TOKENS 16u
#define WALKERS 5u
#define TOKENS_MOST 200u
#define TOGETHER 100u /* tokens */
#define ROUNDS 10000u
#define POOL_BYTES (2u << 20) /* of 256 pages: what was used longest ago goes */
#define HOST_BYTES (8u << 20)
#define TOLERANCE 1e-3 /* of fp16, of values up to a half */

static const struct work_shape shape = {LAYERS, 1, 1, DIM, PAGE_TOKENS, WORK_FP16, 0.125f, 0, 0};

/* A client with a sequence. */
struct walker {
	struct client c;
	uint64_t seq; /* 0: none */
	uint32_t ids[TOKENS_MOST];
	uint32_t n; /* tokens, the live one among them */
	uint64_t hash; /* of the path */
	double sum[LAYERS][DIM]; /* of values */
	uint32_t layer; /* the next of the last token; LAYERS: it has all */
	bool draft; /* that token waits for an answer */
};

static uint64_t mix(uint64_t hash, uint32_t id)
{
	hash = (hash ^ (id + 1)) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

static float value_of(const struct walker *w, uint32_t layer, uint32_t d)
{
	return (float)(mix(w->hash, d + 1000 * (layer + 1)) >> 40) / (1 << 24) - 0.5f;
}

/* As they are rounded. */
static void values_of(const struct walker *w, uint32_t layer, float *ret)
{
	uint16_t rounded[DIM];

	for (uint32_t d = 0; d < DIM; d++)
		ret[d] = value_of(w, layer, d);
	oracle_encode(WORK_FP16, rounded, ret, DIM);
	oracle_decode(WORK_FP16, ret, rounded, DIM);
}

static void add_values(struct walker *w, uint32_t layer)
{
	float v[DIM];

	values_of(w, layer, v);
	for (uint32_t d = 0; d < DIM; d++)
		w->sum[layer][d] += v[d];
}

static void add_id(struct walker *w, uint32_t id)
{
	w->ids[w->n++] = id;
	w->hash = mix(w->hash, id);
}

/* The first n tokens are there, with all their layers, and no others. */
static void keep(struct walker *w, uint32_t n)
{
	memset(w->sum, 0, sizeof(w->sum));
	w->hash = 1;
	for (w->n = 0; w->n < n;) {
		add_id(w, w->ids[w->n]);
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			add_values(w, layer);
	}
	w->layer = LAYERS;
	w->draft = false;
}

static struct abi_completion ask(struct walker *w, struct abi_entry entry, const uint32_t *body)
{
	struct abi_completion done;

	entry.seq = w->seq;
	done = client_do(&w->c, entry, body, body ? sizeof(*body) : 0);
	assert_int_equal(done.status, 0);
	return done;
}

static void extend(struct walker *w, uint32_t id, bool draft)
{
	(void)ask(w,
		  (struct abi_entry){.kind = ABI_EXTEND,
				     .count = 1,
				     .flags = draft ? ABI_EXTEND_DRAFT : 0},
		  &id);
	add_id(w, id);
	w->layer = 0;
	w->draft = draft;
}

/* The next layer of the live token: its ticket. */
static uint64_t begin_step(struct walker *w)
{
	struct abi_step_seq rec = client_step_seq(&w->c, w->seq, 1);
	float q[DIM] = {0}, k[DIM], v[DIM];

	for (uint32_t d = 0; d < DIM; d++)
		k[d] = value_of(w, w->layer, d + DIM);
	values_of(w, w->layer, v);
	add_values(w, w->layer);
	oracle_encode(WORK_FP16, w->c.arena + rec.q, q, DIM);
	oracle_encode(WORK_FP16, w->c.arena + rec.k, k, DIM);
	oracle_encode(WORK_FP16, w->c.arena + rec.v, v, DIM);
	return client_submit(&w->c,
			     (struct abi_entry){.kind = ABI_STEP, .count = 1, .layer = w->layer},
			     &rec, sizeof(rec));
}

static void end_step(struct walker *w, uint64_t ticket)
{
	struct abi_step_seq rec = client_step_seq(&w->c, w->seq, 1);
	float o[DIM];

	assert_int_equal(client_wait(&w->c, ticket).status, 0);
	oracle_decode(WORK_FP16, o, w->c.arena + rec.o, DIM);
	for (uint32_t d = 0; d < DIM; d++)
		assert_true(fabs(o[d] - w->sum[w->layer][d] / w->n) < TOLERANCE);
	w->layer++;
}

static void begin(struct walker *w)
{
	struct store_match match;
	uint32_t first = 7;

	assert_int_equal(client_open(&w->c, &first, 1, &w->seq, &match), 0);
	keep(w, 0);
	extend(w, first, false);
}

static void begin_anew(struct walker *w)
{
	assert_int_equal(client_close(&w->c, w->seq), 0);
	begin(w);
}

/* In place of itself. */
static void fork_it(struct walker *w)
{
	uint64_t was = w->seq;

	w->seq = ask(w, (struct abi_entry){.kind = ABI_FORK}, NULL).value;
	assert_int_equal(client_close(&w->c, was), 0);
}

static void trim(struct walker *w, uint32_t n)
{
	(void)ask(w, (struct abi_entry){.kind = ABI_TRIM, .arg = n}, NULL);
	keep(w, n);
}

static void answer_draft(struct walker *w, bool yes)
{
	const uint32_t first = 0;

	(void)ask(w, (struct abi_entry){.kind = ABI_ACCEPT, .count = yes}, yes ? &first : NULL);
	keep(w, w->n - !yes);
}

/* As somebody else who has come as far on the same way, mostly. */
static uint32_t draw_id(const struct walker *all, const struct walker *w,
			struct oracle_random *random)
{
	const struct walker *other = &all[oracle_below(random, WALKERS)];

	if (other->n > w->n && memcmp(other->ids, w->ids, w->n * sizeof(*w->ids)) == 0)
		return other->ids[w->n];
	return oracle_below(random, 30) ? 100 + w->n : oracle_below(random, 50);
}

/* What comes behind a token that has all its layers. */
static void go_on(const struct walker *all, struct walker *w, struct oracle_random *random)
{
	uint32_t what = oracle_below(random, 100);

	if (w->layer < LAYERS)
		return;
	if (w->draft)
		answer_draft(w, what % 2);
	else if (w->n == TOKENS_MOST)
		begin_anew(w);
	else if (what == 0)
		fork_it(w);
	else if (what == 1)
		trim(w, 1 + oracle_below(random, w->n));
	else
		extend(w, draw_id(all, w, random), what < 5);
}

/* Two in so many of them come with a layer at the same time. */
static void step_some(struct walker *all, struct oracle_random *random, uint32_t many)
{
	uint64_t tickets[WALKERS] = {0};

	for (uint32_t i = 0; i < WALKERS; i++)
		if (all[i].layer < LAYERS && oracle_below(random, many) < 2)
			tickets[i] = begin_step(&all[i]);
	for (uint32_t i = 0; i < WALKERS; i++)
		if (tickets[i])
			end_step(&all[i], tickets[i]);
}

/* Of two, who is behind: they come to where others are. */
static struct walker *draw_one(struct walker *all, struct oracle_random *random)
{
	struct walker *a = &all[oracle_below(random, WALKERS)],
		      *b = &all[oracle_below(random, WALKERS)];

	return a->n < b->n ? a : b;
}

struct fixture {
	struct harness h;
	struct walker all[WALKERS];
};

static int setup_over(void **state, uint64_t host_bytes)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	harness_init(&f->h);
	f->h.ops = kept_plans_ops();
	f->h.stepped = true;
	f->h.config.pool_bytes = POOL_BYTES;
	f->h.config.host_tier_bytes = host_bytes;
	harness_start(&f->h);
	for (uint32_t i = 0; i < WALKERS; i++) {
		client_start(&f->all[i].c, &f->h, 1, &shape, 1 << 20);
		begin(&f->all[i]);
	}
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_over(state, 0);
}

/* KV goes to host memory and comes back, to other pages. */
static int setup_tiers(void **state)
{
	return setup_over(state, HOST_BYTES);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (uint32_t i = 0; i < WALKERS; i++)
		client_end(&f->all[i].c);
	harness_stop(&f->h);
	free(f);
	return 0;
}

/* All of them, each with his token: by plans that are made ahead. */
static void walk_together(struct fixture *f, struct oracle_random *random)
{
	for (uint32_t n = 0; n < TOGETHER; n++) {
		for (uint32_t i = 0; i < WALKERS; i++) {
			struct walker *w = &f->all[i];

			if (w->layer == LAYERS && !w->draft && w->n < TOKENS_MOST)
				extend(w, draw_id(f->all, w, random), false);
		}
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			step_some(f->all, random, 2);
		while (plan_ahead_is_making(&f->h.sched->batch.plans.ahead))
			sched_yield();
	}
}

static void sequences_that_part_have_tokens_of_their_own(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = *state;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		go_on(f->all, draw_one(f->all, &random), &random);
		step_some(f->all, &random, 3);
		if (i % (ROUNDS / 10) == 0)
			walk_together(f, &random);
	}
	assert_true(kept_plans_n_taken > ROUNDS / 10);
	assert_true(harness_status(&f->h).plans_ahead > 0);
}

static void so_they_have_when_kv_comes_and_goes(void **state)
{
	sequences_that_part_have_tokens_of_their_own(state);
}

static void compute(struct walker *w)
{
	while (w->layer < LAYERS)
		end_step(w, begin_step(w));
}

/* Each time the other's token comes first to the place behind that which both have, and is nothing
 * but begun. */
static void a_token_that_is_only_begun_is_in_nobodys_way(void **state)
{
	struct fixture *f = *state;
	struct walker *w = &f->all[0], *other = &f->all[1];

	compute(w);
	compute(other);
	while (w->n < TOKENS_MOST) {
		extend(other, 100 + w->n, false);
		extend(w, 100 + w->n, false);
		compute(w);
		compute(other);
	}
	/* but for those that begin a KV block */
	assert_true(kept_plans_n_stale > TOKENS_MOST / 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sequences_that_part_have_tokens_of_their_own),
		TEST(a_token_that_is_only_begun_is_in_nobodys_way),
		cmocka_unit_test_setup_teardown(so_they_have_when_kv_comes_and_goes, setup_tiers,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
