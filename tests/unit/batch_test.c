/*
 * batch_test.c - plans that take in the next tokens: when a backend is asked to, and what follows
 * where it has lost one; what streams are told of a batch in flight, and how long slices are.
 */
#include "daemon/sched/round.h"
#include "sched_fixture.h"
#include "daemon/control/arenas.h"
#include "daemon/control/verbs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_STREAMS = 20 };

/* A backend whose plans take in tokens, as far as the daemon can see. */
static struct {
	struct backend_ops ops; /* the CPU's, but for some */
	int advance_result;
	bool lost; /* the plans */
	bool busy; /* nothing completes */
	uint32_t n_advanced, n_stale, n_batches;
	bool was_advanced; /* the last job that was taken */
	uint32_t end; /* of its tree's tokens */
	uint64_t memory[64]; /* an arena's */
	struct backend_tell told[BACKEND_TELLS_MAX]; /* by the last batch */
	uint32_t n_told;
} device;

static int device_advance(struct backend *b, const struct backend_job *job)
{
	(void)b;
	(void)job;
	device.n_advanced += device.advance_result == 0;
	return device.advance_result;
}

static int device_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	const struct backend_job *job = &batch->jobs[0];
	const struct work_node *node = &job->tree->nodes[job->tree->queries[0].node];

	if (job->advanced && device.lost) {
		device.n_stale++;
		return -ESTALE;
	}
	device.n_batches++;
	device.was_advanced = job->advanced;
	device.end = node->pos + node->n_tokens;
	device.n_told = batch->n_tells;
	assert_true(batch->n_tells <= BACKEND_TELLS_MAX);
	memcpy(device.told, batch->tells, batch->n_tells * sizeof(*batch->tells));
	return backend_cpu.submit(b, batch, ret_id);
}

static int device_completed(struct backend *b, uint64_t *ret_id)
{
	if (!device.busy)
		return backend_cpu.completed(b, ret_id);
	*ret_id = 0;
	return 0;
}

static int device_arena_new(struct backend *b, uint64_t bytes, struct backend_arena *ret)
{
	(void)b;
	(void)bytes;
	*ret = (struct backend_arena){.base = (uintptr_t)device.memory, .fd = -1};
	return 0;
}

static void device_arena_free(struct backend *b, uint64_t base)
{
	(void)b;
	assert_int_equal(base, (uintptr_t)device.memory);
}

/* A sequence of 5 tokens, the last of which was decoded alone. */
static int setup(void **state)
{
	struct fixture *f = fixture_new(true);

	memset(&device, 0, sizeof(device));
	device.ops = backend_cpu;
	device.ops.advance = device_advance;
	device.ops.submit = device_submit;
	device.ops.completed = device_completed;
	device.ops.arena_new = device_arena_new;
	device.ops.arena_free = device_arena_free;
	f->h.sched->core.ops = &device.ops;
	client_compute(&f->c, f->seq, fixture_ids, 4);
	client_compute(&f->c, f->seq, fixture_ids, 1);
	*state = f;
	return 0;
}

static void the_next_token_is_taken_into_the_plan(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(device.n_advanced, 0);
	client_compute(&f->c, f->seq, fixture_ids, 1);
	assert_int_equal(device.n_advanced, 1); /* by the first layer, for both */
	assert_true(device.was_advanced);
	client_compute(&f->c, f->seq, fixture_ids, 1);
	assert_int_equal(device.n_advanced, 2);
}

static void a_plan_that_takes_no_more_is_made_anew(void **state)
{
	static const int results[] = {-ESTALE, -ENOMEM};
	struct fixture *f = *state;

	for (uint32_t i = 0; i < 2; i++) {
		device.advance_result = results[i];
		client_compute(&f->c, f->seq, fixture_ids, 1);
		assert_false(device.was_advanced);
		assert_int_equal(device.end, 6 + i);
	}
}

/* The list that the plan came from lacks the tokens: a plan made of it would not see them. */
static void a_plan_lost_between_two_layers_is_made_anew(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);

	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	assert_int_equal(client_step(&f->c, &rec, 0).status, 0);
	assert_true(device.was_advanced);
	device.lost = true;
	assert_int_equal(client_step(&f->c, &rec, 1).status, 0);
	assert_int_equal(device.n_stale, 1);
	assert_false(device.was_advanced);
	assert_int_equal(device.end, 6);
	device.lost = false;
	client_compute(&f->c, f->seq, fixture_ids, 1);
	assert_int_equal(device.n_advanced, 2);
}

/* Who waits for the step itself knows more; a stream comes to its last wait meanwhile. */
static void a_stream_is_told_that_its_step_is_soon_done(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);
	uint64_t ticket;

	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	device.busy = true;
	ticket = client_submit(
		&f->c, (struct abi_entry){.kind = ABI_STEP, .count = 1, .flags = ABI_STEP_STREAM},
		&rec, sizeof(rec));
	sched_round(f->h.sched);
	assert_int_equal(atomic_load(&f->c.lane->soon), ticket - 1); /* its inputs are not there */
	atomic_store(&f->c.lane->ready, ticket);
	while (atomic_load(&f->c.lane->soon) != ticket)
		sched_round(f->h.sched);
	assert_int_equal(ring_done(f->c.lane), ticket - 1);
	device.busy = false;
	assert_int_equal(client_wait(&f->c, ticket).status, 0);
}

static void an_entry_that_no_device_sees_is_soon_done_when_it_is_done(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	assert_int_equal(atomic_load(&f->c.lane->soon), ring_done(f->c.lane));
}

/* The sequence of a client of its own, of 4 tokens. */
static uint64_t open_other(struct fixture *f, struct client *c)
{
	static const uint32_t ids[] = {11, 12, 13, 14};
	struct store_match match;
	uint64_t seq;

	client_start(c, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(c, ids, 4, &seq, &match), 0);
	client_compute(c, seq, ids, 4);
	return seq;
}

/* Those that are told are on the device with what they wait for. */
static void few_streams_of_many_are_told(void **state)
{
	struct fixture *f = *state;
	struct client c[N_STREAMS];
	uint64_t seqs[N_STREAMS], tickets[N_STREAMS];
	uint32_t n_told = 0, n_lanes;

	for (uint32_t i = 0; i < N_STREAMS; i++) {
		seqs[i] = open_other(f, &c[i]);
		assert_int_equal(client_extend(&c[i], seqs[i], fixture_ids, 1).status, 0);
	}
	device.busy = true;
	for (uint32_t i = 0; i < N_STREAMS; i++) {
		struct abi_step_seq rec = client_step_seq(&c[i], seqs[i], 1);
		struct abi_entry step = {.kind = ABI_STEP, .count = 1, .flags = ABI_STEP_STREAM};

		tickets[i] = client_submit(&c[i], step, &rec, sizeof(rec));
		atomic_store(&c[i].lane->ready, tickets[i]);
	}
	while (!f->h.sched->batch.in_flight || f->h.sched->batch.soon_ns != UINT64_MAX)
		sched_round(f->h.sched);
	for (uint32_t i = 0; i < N_STREAMS; i++)
		n_told += atomic_load(&c[i].lane->soon) == tickets[i];
	n_lanes = f->h.sched->core.steps.n[STEP_IN_BATCH];
	device.busy = false; /* before anything can fail, as sessions end behind their batches */
	assert_int_equal(n_lanes, N_STREAMS);
	assert_int_equal(n_told, 12);
	for (uint32_t i = 0; i < N_STREAMS; i++) {
		assert_int_equal(client_wait(&c[i], tickets[i]).status, 0);
		assert_int_equal(atomic_load(&c[i].lane->soon), tickets[i]);
		client_end(&c[i]);
	}
}

/* Arena 2, of the device. */
static void open_device_arena(struct fixture *f)
{
	struct arena_call call = {.arena = 2, .bytes = sizeof(device.memory)};
	struct sched_request rq = {.serve = verb_arena_new.serve,
				   .session = f->c.session,
				   .room = &call};

	assert_int_equal(harness_call(&f->h, &rq), 0);
}

/* The first layer's O is in the arena, too. */
static struct abi_completion step_with_word(struct fixture *f, uint32_t flags, uint32_t layer,
					    uint64_t arena, uint64_t offset)
{
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);
	struct abi_entry step = {.kind = ABI_STEP,
				 .count = 1,
				 .layer = layer,
				 .flags = flags,
				 .seq = arena,
				 .arg = offset};

	rec.arena_out = layer == 0 && arena == 2 ? 2 : 1;
	rec.lse = ABI_NO_OFFSET;
	rec.o = 0;
	atomic_store(&f->c.lane->ready, f->c.ticket + 1);
	return client_wait(&f->c, client_submit(&f->c, step, &rec, sizeof(rec)));
}

static void the_device_is_to_write_the_words_of_streams(void **state)
{
	struct fixture *f = *state;

	open_device_arena(f);
	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	assert_int_equal(step_with_word(f, ABI_STEP_STREAM | ABI_STEP_TELL, 0, 2, 384).status, 0);
	assert_int_equal(device.n_told, 1);
	assert_int_equal(device.told[0].address, (uintptr_t)device.memory + 384);
	assert_int_equal(device.told[0].value, f->c.ticket);
	assert_int_equal(step_with_word(f, ABI_STEP_STREAM, 1, 0, 0).status, 0);
	assert_int_equal(device.n_told, 0);
}

static void no_word_says_that_outputs_are_in_host_memory(void **state)
{
	struct fixture *f = *state;

	open_device_arena(f);
	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	assert_int_equal(step_with_word(f, ABI_STEP_STREAM, 0, 1, 0).status, 0);
	assert_int_equal(step_with_word(f, ABI_STEP_STREAM | ABI_STEP_TELL, 1, 2, 384).status, 0);
	assert_int_equal(device.n_told, 0);
}

static void a_word_that_is_not_the_sessions_own_is_refused(void **state)
{
	static const struct {
		uint32_t flags;
		uint64_t arena, offset;
		enum abi_reason reason;
	} bad[] = {
		{ABI_STEP_TELL, 2, 0, ABI_BAD_FLAGS},
		{ABI_STEP_TELL | ABI_STEP_STREAM, 0, 0, ABI_BAD_ARENA},
		{ABI_STEP_TELL | ABI_STEP_STREAM, 1, 0, ABI_BAD_ARENA}, /* of the host */
		{ABI_STEP_TELL | ABI_STEP_STREAM, 3, 0, ABI_BAD_ARENA},
		{ABI_STEP_TELL | ABI_STEP_STREAM, UINT64_MAX, 0, ABI_BAD_ARENA},
		{ABI_STEP_TELL | ABI_STEP_STREAM, (UINT64_C(1) << 32) + 2, 0, ABI_BAD_ARENA},
		{ABI_STEP_TELL | ABI_STEP_STREAM, 2, 4, ABI_MISALIGNED},
		{ABI_STEP_TELL | ABI_STEP_STREAM, 2, sizeof(device.memory), ABI_OUT_OF_ARENA},
		{ABI_STEP_TELL | ABI_STEP_STREAM, 2, UINT64_MAX - 7, ABI_OUT_OF_ARENA},
	};
	struct fixture *f = *state;

	open_device_arena(f);
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
		struct abi_completion end =
			step_with_word(f, bad[i].flags, 0, bad[i].arena, bad[i].offset);
		struct abi_entry trim = {.kind = ABI_TRIM, .seq = f->seq, .arg = 5};

		assert_int_equal(end.status, -EINVAL);
		assert_int_equal(end.reason, bad[i].reason);
		assert_int_equal(client_do(&f->c, trim, NULL, 0).status, 0);
	}
}

static void a_step_ends_with_the_arena_of_its_word(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 1);
	struct sched_request rq = {.serve = verb_arena_free.serve,
				   .session = f->c.session,
				   .room = &(struct arena_call){.arena = 2}};
	struct abi_entry step = {.kind = ABI_STEP,
				 .count = 1,
				 .flags = ABI_STEP_STREAM | ABI_STEP_TELL,
				 .seq = 2};

	open_device_arena(f);
	assert_int_equal(client_extend(&f->c, f->seq, fixture_ids, 1).status, 0);
	uint64_t ticket = client_submit(&f->c, step, &rec, sizeof(rec));

	sched_round(f->h.sched);
	assert_int_equal(harness_call(&f->h, &rq), 0);
	assert_int_equal(client_wait(&f->c, ticket).status, -ECANCELED);
}

/* Three times, each by the plan that it has. */
static void decode_in_turns(struct fixture *f, struct client *other, uint64_t seq)
{
	for (uint32_t i = 0; i < 3; i++) {
		client_compute(&f->c, f->seq, fixture_ids, 1);
		assert_true(device.was_advanced);
		client_compute(other, seq, fixture_ids, 1);
		assert_true(device.was_advanced);
	}
	assert_int_equal(device.n_advanced, 6);
}

static void lanes_that_take_turns_keep_their_plans(void **state)
{
	struct fixture *f = *state;
	struct client other;
	uint64_t seq = open_other(f, &other);

	client_compute(&other, seq, fixture_ids, 1);
	decode_in_turns(f, &other, seq);
	client_end(&other);
}

static void two_models_keep_their_plans(void **state)
{
	static const uint32_t ids[] = {11, 12, 13, 14};
	struct work_shape shape = fixture_shape;
	struct fixture *f = *state;
	struct store_match match;
	struct client other;
	uint64_t seq;

	shape.n_layers = 3;
	client_start(&other, &f->h, 1000, &shape, 1 << 20);
	assert_int_equal(client_open(&other, ids, 4, &seq, &match), 0);
	client_compute(&other, seq, ids, 4);
	client_compute(&other, seq, fixture_ids, 1);
	decode_in_turns(f, &other, seq);
	client_end(&other);
}

/* 20 tokens more at once: a slice needs no plan that is kept. */
static void prefill_between_leaves_the_plan(void **state)
{
	struct fixture *f = *state;
	struct client other;
	uint64_t seq = open_other(f, &other);
	uint32_t ids[20];

	for (uint32_t i = 0; i < 20; i++)
		ids[i] = 100 + i;
	for (uint32_t i = 0; i < 3; i++) {
		client_compute(&f->c, f->seq, fixture_ids, 1);
		assert_true(device.was_advanced);
		client_compute(&other, seq, ids, 20);
	}
	assert_int_equal(device.n_advanced, 3);
	client_end(&other);
}

/* How many batches a prefill of 40 tokens takes, with slices of 17 rows. */
static uint32_t batches_of_prefill(struct fixture *f)
{
	uint32_t ids[40], before = device.n_batches;

	for (uint32_t i = 0; i < 40; i++)
		ids[i] = 100 + i;
	f->h.config.prefill_rows = 17;
	client_compute(&f->c, f->seq, ids, 40);
	return device.n_batches - before;
}

static void what_wants_rows_takes_more_than_are_configured(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(batches_of_prefill(f), 3 * fixture_shape.n_layers);
	device.ops.wants_rows = true;
	assert_int_equal(batches_of_prefill(f), fixture_shape.n_layers);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_next_token_is_taken_into_the_plan),
		TEST(a_plan_that_takes_no_more_is_made_anew),
		TEST(a_plan_lost_between_two_layers_is_made_anew),
		TEST(a_stream_is_told_that_its_step_is_soon_done),
		TEST(an_entry_that_no_device_sees_is_soon_done_when_it_is_done),
		TEST(few_streams_of_many_are_told),
		TEST(the_device_is_to_write_the_words_of_streams),
		TEST(no_word_says_that_outputs_are_in_host_memory),
		TEST(a_word_that_is_not_the_sessions_own_is_refused),
		TEST(a_step_ends_with_the_arena_of_its_word),
		TEST(lanes_that_take_turns_keep_their_plans),
		TEST(two_models_keep_their_plans),
		TEST(prefill_between_leaves_the_plan),
		TEST(what_wants_rows_takes_more_than_are_configured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
