/*
 * plan_ahead_test.c - plans made ahead: by whom, for which tokens, and what takes their place
 * where they come late or fit no more.
 */
#include "daemon/sched/round.h"
#include "sched_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKENS_MAX 64u
#define PLANS_MAX 256u

/* A backend whose plans take in tokens and can be made ahead, as far as the daemon can see. */
static struct {
	struct backend_ops ops; /* the CPU's, but for some */
	bool soon; /* plans have room for few more */
	/* tokens that a plan takes in before it has room for few more; 0: any number */
	uint32_t room;
	uint32_t n_advanced[PLANS_MAX];
	uint64_t full; /* a plan that takes in nothing */
	_Atomic bool held; /* who prepares does not get done */
	int prepare_result;
	_Atomic uint32_t n_prepared;
	uint64_t prepared; /* the last plan that was */
	pthread_t preparer;
	uint64_t advanced; /* the last plan that was, and by which tokens before it was submitted */
	bool begins;
	uint32_t n_tokens, positions[TOKENS_MAX];
	struct work_slice tokens[TOKENS_MAX];
	uint64_t submitted, replaced; /* the last job's */
	bool was_advanced;
	uint32_t end; /* of its tree's tokens */
} device;

static int device_prepare(struct backend *b, const struct backend_job *job)
{
	(void)b;
	while (atomic_load(&device.held))
		usleep(100);
	device.prepared = job->plan_id;
	device.preparer = pthread_self();
	atomic_fetch_add(&device.n_prepared, 1);
	return device.prepare_result;
}

static int device_advance(struct backend *b, const struct backend_job *job)
{
	(void)b;
	if (device.begins)
		device.n_tokens = 0;
	device.begins = false;
	device.advanced = job->plan_id;
	assert_int_equal(job->io[0].n_slots, 1);
	device.positions[device.n_tokens] = job->list->rows[0].pos;
	device.tokens[device.n_tokens++] = job->io[0].slots[0];
	if (job->plan_id == device.full)
		return -ESTALE;
	assert_true(job->plan_id < PLANS_MAX);
	if (++device.n_advanced[job->plan_id] >= device.room && device.room)
		return BACKEND_SOON;
	return device.soon ? BACKEND_SOON : 0;
}

static int device_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	const struct backend_job *job = &batch->jobs[0];
	const struct work_node *node = &job->tree->nodes[job->tree->queries[0].node];

	device.begins = true;
	device.submitted = job->plan_id;
	device.replaced = job->replaces;
	device.was_advanced = job->advanced;
	device.end = node->pos + node->n_tokens;
	return backend_cpu.submit(b, batch, ret_id);
}

/* A sequence of 5 tokens, the last of which was decoded alone. */
static int setup(void **state)
{
	struct fixture *f = fixture_new(true);

	memset(&device, 0, sizeof(device));
	device.ops = backend_cpu;
	device.ops.advance = device_advance;
	device.ops.prepare = device_prepare;
	device.ops.submit = device_submit;
	f->h.sched->core.ops = &device.ops;
	client_compute(&f->c, f->seq, fixture_ids, 4);
	client_compute(&f->c, f->seq, fixture_ids, 1);
	*state = f;
	return 0;
}

static void decode(struct fixture *f, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		client_compute(&f->c, f->seq, fixture_ids, 1);
}

static void await_state(struct fixture *f, enum plan_ahead_state state)
{
	while (atomic_load(&f->h.sched->batch.plans.ahead.state) != state)
		usleep(100);
}

/* A token of which the last layer is done before a plan has been made ahead. */
static void decode_before_the_plan_is_made(struct fixture *f, struct client *c, uint64_t seq)
{
	device.soon = true;
	atomic_store(&device.held, true);
	client_compute(c, seq, fixture_ids, 1);
	atomic_store(&device.held, false);
	await_state(f, PLAN_AHEAD_MADE);
}

static void a_plan_with_room_is_not_made_ahead(void **state)
{
	struct fixture *f = *state;

	decode(f, 3);
	assert_int_equal(atomic_load(&device.n_prepared), 0);
	assert_false(f->h.sched->batch.plans.ahead.aside.there);
}

/* The same token's next layer has it as it is. */
static void a_plan_is_made_ahead_by_a_thread(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);
	uint64_t before;

	device.soon = true;
	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	assert_int_equal(client_step(&f->c, &rec, 0).status, 0);
	before = device.submitted;
	await_state(f, PLAN_AHEAD_MADE);
	assert_int_equal(atomic_load(&device.n_prepared), 1);
	assert_false(pthread_equal(device.preparer, pthread_self()));
	assert_int_not_equal(device.prepared, device.advanced);
	assert_int_equal(client_step(&f->c, &rec, 1).status, 0);
	assert_int_equal(device.submitted, device.prepared);
	assert_int_equal(device.replaced, before);
	assert_false(device.was_advanced);
	assert_int_equal(device.end, 6);
	device.soon = false;
	decode(f, 1);
	assert_int_equal(device.advanced, device.prepared);
	assert_int_equal(device.n_tokens, 1);
	assert_int_equal(atomic_load(&device.n_prepared), 1);
}

/* Twelve tokens, of two pages, while the thread is at it: the old plan serves them, and then the
 * new one has them. */
static void a_plan_that_comes_late_takes_in_what_came_meanwhile(void **state)
{
	struct work_slice tokens[12];
	struct fixture *f = *state;

	device.soon = true;
	atomic_store(&device.held, true);
	decode(f, 1);
	for (uint32_t i = 0; i < 12; i++) {
		decode(f, 1);
		assert_int_equal(device.n_tokens, 1);
		assert_int_equal(device.submitted, device.advanced);
		tokens[i] = device.tokens[0];
	}
	device.soon = false;
	atomic_store(&device.held, false);
	await_state(f, PLAN_AHEAD_MADE);
	decode(f, 1);
	assert_int_equal(device.advanced, device.prepared);
	assert_int_equal(device.submitted, device.prepared);
	assert_true(device.was_advanced);
	assert_int_equal(device.end, 6);
	assert_int_equal(device.n_tokens, 13);
	assert_memory_equal(device.tokens, tokens, sizeof(tokens));
	for (uint32_t i = 0; i < 13; i++)
		assert_int_equal(device.positions[i], 6 + i);
	assert_int_not_equal(tokens[0].page, tokens[11].page);
	decode(f, 1);
	assert_int_equal(device.n_tokens, 1);
	assert_int_equal(device.submitted, device.prepared);
}

static void one_that_comes_too_late_is_not_taken(void **state)
{
	struct fixture *f = *state;

	device.soon = true;
	atomic_store(&device.held, true);
	decode(f, 1);
	device.soon = false;
	decode(f, 16);
	atomic_store(&device.held, false);
	await_state(f, PLAN_AHEAD_MADE);
	decode(f, 1);
	assert_int_not_equal(device.submitted, device.prepared);
	assert_int_equal(device.n_tokens, 1);
}

static void one_that_fits_no_more_is_not_taken(void **state)
{
	struct fixture *f = *state;
	struct abi_entry trim = {.kind = ABI_TRIM, .seq = f->seq, .arg = 5};

	decode_before_the_plan_is_made(f, &f->c, f->seq);
	device.soon = false;
	assert_int_equal(client_do(&f->c, trim, NULL, 0).status, 0);
	decode(f, 1);
	assert_int_not_equal(device.submitted, device.prepared);
	assert_int_equal(device.end, 6);
}

static void where_none_can_be_made_the_old_one_goes_on(void **state)
{
	struct fixture *f = *state;

	device.soon = true;
	device.prepare_result = -ENOMEM;
	for (uint32_t i = 1; i <= 3; i++) {
		decode(f, 1);
		await_state(f, PLAN_AHEAD_NONE);
		assert_int_equal(atomic_load(&device.n_prepared), i); /* once a token */
		assert_int_equal(device.submitted, device.advanced);
		assert_int_not_equal(device.submitted, device.prepared);
	}
}

/* The one that it should have followed has room still. */
static void one_that_takes_nothing_in_costs_nothing(void **state)
{
	struct fixture *f = *state;
	uint64_t old;

	decode_before_the_plan_is_made(f, &f->c, f->seq);
	old = device.submitted;
	device.soon = false;
	device.full = device.prepared;
	decode(f, 1);
	assert_int_equal(device.submitted, old);
	assert_true(device.was_advanced);
	decode(f, 1);
	assert_int_equal(device.submitted, old);
}

/* A sequence of a client of its own, that has decoded a token. */
static uint64_t open_other(struct fixture *f, struct client *c, const struct work_shape *shape,
			   uint32_t first)
{
	uint32_t ids[] = {first, first + 1, first + 2, first + 3};
	struct store_match match;
	uint64_t seq;

	client_start(c, &f->h, 1000, shape, 1 << 20);
	assert_int_equal(client_open(c, ids, 4, &seq, &match), 0);
	client_compute(c, seq, ids, 4);
	client_compute(c, seq, fixture_ids, 1);
	return seq;
}

static void who_takes_turns_keeps_its_plan(void **state)
{
	struct fixture *f = *state;
	struct client other;
	uint64_t seq = open_other(f, &other, &fixture_shape, 100), plan;

	device.soon = true;
	atomic_store(&device.held, true);
	decode(f, 1);
	device.soon = false;
	client_compute(&other, seq, fixture_ids, 1);
	plan = device.submitted;
	atomic_store(&device.held, false);
	await_state(f, PLAN_AHEAD_MADE);
	decode(f, 1);
	assert_int_equal(device.submitted, device.prepared);
	client_compute(&other, seq, fixture_ids, 1);
	assert_int_equal(device.submitted, plan);
	decode(f, 1);
	assert_int_equal(device.submitted, device.prepared);
	client_end(&other);
}

/* Layer by layer, so that the old plan, too, would still serve the token. */
static void what_is_taken_serves_from_then_on(void **state)
{
	struct work_shape shape = fixture_shape;
	struct fixture *f = *state;
	struct client c[2];
	struct abi_step_seq recs[2];
	uint64_t seqs[2], plan;

	shape.n_layers = 4;
	for (uint32_t i = 0; i < 2; i++) {
		seqs[i] = open_other(f, &c[i], &shape, 100 * (i + 1));
		recs[i] = client_step_seq(&c[i], seqs[i], 1);
	}
	for (uint32_t t = 0; t < 6; t++) {
		for (uint32_t i = 0; i < 2; i++)
			assert_int_equal(client_extend(&c[i], seqs[i], fixture_ids, 1).status, 0);
		for (uint32_t layer = 0; layer < 4; layer++) {
			device.soon = t == 2 && layer == 0;
			assert_int_equal(client_step(&c[0], &recs[0], layer).status, 0);
			device.soon = false;
			if (t == 2 && layer == 0)
				await_state(f, PLAN_AHEAD_MADE);
			if (t > 2 || (t == 2 && layer > 0))
				assert_int_equal(device.submitted, device.prepared);
			assert_int_equal(client_step(&c[1], &recs[1], layer).status, 0);
			if (t == 1)
				plan = device.submitted;
			if (t > 1)
				assert_int_equal(device.submitted, plan);
		}
	}
	assert_int_equal(atomic_load(&device.n_prepared), 1);
	for (uint32_t i = 0; i < 2; i++)
		client_end(&c[i]);
}

/* Of one layer: there is no other before it is another's turn. */
static void two_whose_plans_end_both_get_new_ones(void **state)
{
	struct work_shape shape = fixture_shape;
	struct fixture *f = *state;
	struct client c[2];
	uint64_t seqs[2];
	uint32_t n_taken[2] = {0};

	shape.n_layers = 1;
	for (uint32_t i = 0; i < 2; i++)
		seqs[i] = open_other(f, &c[i], &shape, 100 * (i + 1));
	device.room = 4;
	for (uint32_t t = 0; t < 80; t++) {
		uint64_t before = f->h.sched->core.stats.plans_ahead;

		client_compute(&c[t % 2], seqs[t % 2], fixture_ids, 1);
		n_taken[t % 2] += f->h.sched->core.stats.plans_ahead > before;
		while (atomic_load(&f->h.sched->batch.plans.ahead.state) == PLAN_AHEAD_MAKING)
			usleep(100);
	}
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(n_taken[i] >= 5);
		client_end(&c[i]);
	}
}

static void who_is_gone_keeps_nobody_waiting(void **state)
{
	struct fixture *f = *state;
	struct client other;
	uint64_t seq = open_other(f, &other, &fixture_shape, 100);

	decode_before_the_plan_is_made(f, &other, seq);
	decode(f, 1);
	assert_int_equal(atomic_load(&device.n_prepared), 1); /* the other may come yet */
	assert_int_equal(client_close(&other, seq), 0);
	decode_before_the_plan_is_made(f, &f->c, f->seq);
	assert_int_equal(atomic_load(&device.n_prepared), 2);
	client_end(&other);
}

/* The session, its sequences and its model go while the thread has the model's shape. */
static void a_model_stays_until_its_plan_is_made(void **state)
{
	struct work_shape shape = fixture_shape;
	struct fixture *f = *state;
	struct client other;
	uint64_t seq;

	shape.n_layers = 3;
	seq = open_other(f, &other, &shape, 100);
	device.soon = true;
	client_compute(&other, seq, fixture_ids, 1);
	client_end(&other);
	device.soon = false;
	assert_int_equal(atomic_load(&device.n_prepared), 1);
	assert_null(f->h.sched->batch.plans.ahead.plan->model);
	decode(f, 1);
	assert_int_not_equal(device.submitted, device.prepared);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_plan_with_room_is_not_made_ahead),
		TEST(a_plan_is_made_ahead_by_a_thread),
		TEST(a_plan_that_comes_late_takes_in_what_came_meanwhile),
		TEST(one_that_comes_too_late_is_not_taken),
		TEST(one_that_fits_no_more_is_not_taken),
		TEST(where_none_can_be_made_the_old_one_goes_on),
		TEST(one_that_takes_nothing_in_costs_nothing),
		TEST(who_takes_turns_keeps_its_plan),
		TEST(what_is_taken_serves_from_then_on),
		TEST(two_whose_plans_end_both_get_new_ones),
		TEST(who_is_gone_keeps_nobody_waiting),
		TEST(a_model_stays_until_its_plan_is_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
