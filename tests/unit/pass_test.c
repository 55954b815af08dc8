/*
 * pass_test.c - who goes with a pass of a program's tokens, and with how many: by a backend that
 * computes nothing and takes the time that rows are modelled to take.
 */
#include "sched_harness.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/sched_impl.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MS 1e6
#define FIXED_NS (5 * MS)
#define BUDGET_NS (30 * MS)
#define MAX_ROWS 256u
#define DECODE_ROWS 16u
#define N_VOCAB 1000u
#define HIDDEN 64u
#define ARENA_BYTES (UINT64_C(1) << 20)
#define BODIES 100000u
#define FAIR 0.45

static const struct work_shape shape = {.n_layers = 1,
					.n_q_heads = 1,
					.n_kv_heads = 1,
					.head_dim = 16,
					.page_tokens = 64,
					.dtype = WORK_FP32};

/* ---- a backend ------------------------------------------------------------------------------ */

static struct {
	double row_ns;
	uint64_t now_ns, end_ns, last_id;
	double longest_ns; /* of a pass */
	uint32_t n_passes;
	uint64_t arena; /* of who wants something */
	bool instant; /* none takes any time */
	uint32_t n_before_failure; /* passes that go well; 0: all do */
} world;

/* Written where its client may have it. */
static void check_wanted(const struct program_wanted *wanted, uint32_t n_rows)
{
	uint64_t at = wanted->out - world.arena, bytes = sizeof(struct program_row);

	if (wanted->want & PROGRAM_WANT_LOGITS)
		bytes += N_VOCAB * sizeof(float);
	if (wanted->want & PROGRAM_WANT_HIDDEN)
		bytes += HIDDEN * sizeof(float);
	assert_true(wanted->row < n_rows);
	assert_true(at <= ARENA_BYTES && bytes <= ARENA_BYTES - at && at % sizeof(float) == 0);
	assert_true(wanted->n_top <= PROGRAM_TOP_MAX);
	assert_true(wanted->next < N_VOCAB || wanted->next == PROGRAM_NONE);
}

static int model_run(struct backend *b, const struct backend_run *run, uint64_t *ret_id)
{
	const struct work_tree *tree = run->job->tree;
	double ns = FIXED_NS + run->rows->n_rows * world.row_ns;
	uint32_t n_rows = 0;

	(void)b;
	for (uint32_t i = 0; i < tree->n_queries; i++)
		n_rows += tree->queries[i].n_rows;
	assert_int_equal(n_rows, run->rows->n_rows);
	assert_in_range(n_rows, 1, MAX_ROWS);
	for (uint32_t i = 0; i < tree->n_slices; i++)
		assert_true(tree->slices[i].page < 1u << 20);
	for (uint32_t i = 0; i < n_rows; i++)
		assert_true(run->rows->ids[i] < N_VOCAB);
	assert_in_range(run->rows->n_wanted, 0, ABI_DECODE_ROWS_MAX);
	for (uint32_t i = 0; i < run->rows->n_wanted; i++)
		check_wanted(&run->rows->wanted[i], n_rows);
	if (world.n_before_failure && world.n_passes == world.n_before_failure)
		return -ENOMEM;
	world.longest_ns = ns > world.longest_ns ? ns : world.longest_ns;
	world.n_passes++;
	world.end_ns = world.now_ns + (uint64_t)ns;
	*ret_id = ++world.last_id;
	return 0;
}

static int model_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	(void)b;
	(void)batch;
	world.end_ns = world.now_ns + (uint64_t)BUDGET_NS;
	*ret_id = ++world.last_id;
	return 0;
}

static int model_completed(struct backend *b, uint64_t *ret_id)
{
	(void)b;
	*ret_id = world.last_id - (world.now_ns < world.end_ns && !world.instant);
	return 0;
}

static uint64_t look_at_clock(void)
{
	return world.now_ns;
}

static const struct backend_program_ops program_ops = {.max_rows = MAX_ROWS, .run = model_run};

/* ---- clients -------------------------------------------------------------------------------- */

#define PUPILS_MAX 40u

/* A session with a sequence, whose entry has so many tokens, again and again; 0: nothing. */
struct pupil {
	struct client c;
	uint64_t seq;
	uint32_t again;
};

struct school {
	struct harness h;
	struct backend_ops ops;
	struct pupil pupils[PUPILS_MAX];
	uint32_t n;
};

static struct school *school_new(double row_ns)
{
	struct school *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	memset(&world, 0, sizeof(world));
	world.now_ns = world.end_ns = 1000000000;
	world.row_ns = row_ns;
	harness_init(&s->h);
	s->ops = backend_cpu;
	s->ops.program = &program_ops;
	s->ops.submit = model_submit;
	s->ops.completed = model_completed;
	s->h.ops = &s->ops;
	s->h.stepped = true;
	s->h.config.batch_budget_ms = 30;
	s->h.config.pool_bytes = 256u << 20;
	return s;
}

static void school_start(struct school *s)
{
	harness_start(&s->h);
	s->h.sched->core.clock = look_at_clock;
}

static void school_free(struct school *s)
{
	world.instant = true;
	for (uint32_t i = 0; i < s->n; i++)
		client_end(&s->pupils[i].c);
	harness_stop(&s->h);
	free(s);
}

/* Its model has a program from now on. */
static void give_program(struct pupil *p)
{
	struct sched_model *model = p->c.session->models[p->c.model - 1];

	if (model->program)
		return;
	model->program = calloc(1, sizeof(*model->program));
	assert_non_null(model->program);
	model->program->program = (struct program){.shape = shape,
						   .hidden = HIDDEN,
						   .n_vocab = N_VOCAB,
						   .max_positions = 1u << 30};
	model->program->cost =
		(struct backend_program_cost){.fixed_ns = FIXED_NS, .row_ns = world.row_ns};
}

static struct pupil *join(struct school *s, uint64_t user, uint32_t again, uint32_t n_layers)
{
	struct pupil *p = &s->pupils[s->n++];
	struct work_shape own = shape;
	struct store_match match;
	uint32_t first = s->n;

	assert_true(s->n <= PUPILS_MAX);
	world.instant = true; /* requests wait for the end of a pass */
	own.n_layers = n_layers;
	client_start(&p->c, &s->h, user, &own, ARENA_BYTES);
	give_program(p);
	assert_int_equal(client_open(&p->c, &first, 1, &p->seq, &match), 0);
	p->again = again;
	world.instant = false;
	return p;
}

static bool has(const struct pupil *p)
{
	return atomic_load(&p->c.lane->done) >= p->c.ticket;
}

static struct abi_completion end_of(const struct pupil *p)
{
	return p->c.lane->completions[(p->c.ticket - 1) % ABI_LANE_SLOTS];
}

static void ask(struct pupil *p, uint32_t n)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[20000];
	} body = {.seq = {.seq = p->seq, .n_new = n}};
	uint32_t bytes = (uint32_t)(sizeof(body.head) + sizeof(body.seq) + n * sizeof(uint32_t));

	assert_true(n <= 20000);
	for (uint32_t i = 0; i < n; i++)
		body.ids[i] = i % N_VOCAB;
	client_submit(&p->c, (struct abi_entry){.kind = ABI_DECODE, .count = 1}, &body, bytes);
}

/* A round; whoever has what it asked for asks again. */
static void go_round(struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->pupils[i].again && has(&s->pupils[i])) {
			assert_int_equal(s->pupils[i].c.ticket ? end_of(&s->pupils[i]).reason : 0,
					 0);
			ask(&s->pupils[i], s->pupils[i].again);
		}
	sched_round(s->h.sched);
	world.now_ns = world.end_ns > world.now_ns ? world.end_ns : world.now_ns + 5000;
}

static void go_passes(struct school *s, uint32_t n)
{
	uint32_t end = world.n_passes + n;

	for (uint32_t i = 0; world.n_passes < end; i++) {
		assert_true(i < 100000);
		go_round(s);
	}
}

static double had_ns(const struct pupil *p)
{
	return p->c.session->backend_ns;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void who_was_served_for_long_owes_nothing_to_who_comes(void **state)
{
	struct school *s = school_new(0.2 * MS);
	struct pupil *old, *young;
	double before_ns;

	(void)state;
	school_start(s);
	old = join(s, 1, 10000, 1);
	go_passes(s, 200);
	young = join(s, 2, 10000, 1);
	before_ns = had_ns(old);
	go_passes(s, 40);
	assert_true((had_ns(old) - before_ns) / (had_ns(old) - before_ns + had_ns(young)) > FAIR);
	assert_true(had_ns(young) / (had_ns(old) - before_ns + had_ns(young)) > FAIR);
	school_free(s);
}

/* 30 sessions' decode is 2.4 s of rows. */
static void decode_of_many_is_no_longer_than_some_budgets(void **state)
{
	struct school *s = school_new(5 * MS);

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 30; i++)
		join(s, 1, DECODE_ROWS, 1);
	go_passes(s, 60);
	for (uint32_t i = 0; i < 30; i++)
		assert_true(s->pupils[i].c.session->tokens_computed > 0);
	assert_true(world.longest_ns <= FIXED_NS + 4 * BUDGET_NS + 5 * MS);
	school_free(s);
}

/* All rows of a pass, and more. */
static void a_prompt_goes_on_beside_any_decode(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct pupil *reader;

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 20; i++)
		join(s, 1, DECODE_ROWS, 1);
	reader = join(s, 1, 10000, 1);
	go_passes(s, 50);
	assert_true(reader->c.session->tokens_computed >= 40 * 16);
	for (uint32_t i = 0; i < 20; i++)
		assert_true(s->pupils[i].c.session->tokens_computed >= 25 * DECODE_ROWS);
	school_free(s);
}

static void decode_goes_on_beside_any_prompts(void **state)
{
	struct school *s = school_new(0.2 * MS);
	struct pupil *writer;

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 20; i++)
		join(s, 1, 10000, 1);
	writer = join(s, 1, 1, 1);
	go_passes(s, 50);
	assert_true(writer->c.session->tokens_computed >= 48);
	assert_true(world.longest_ns <= FIXED_NS + BUDGET_NS + MS);
	school_free(s);
}

/* User 1's 20 sessions ask for more than passes have; user 2 has one, which reads. */
static void a_user_has_his_part_beside_another_with_many_sessions(void **state)
{
	struct school *s = school_new(2 * MS);
	struct pupil *reader;
	double all_ns = 0;

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 20; i++)
		join(s, 1, DECODE_ROWS, 1);
	reader = join(s, 2, 10000, 1);
	go_passes(s, 200);
	for (uint32_t i = 0; i < s->n; i++)
		all_ns += had_ns(&s->pupils[i]);
	assert_true(had_ns(reader) / all_ns > FAIR);
	school_free(s);
}

/* Two of a model meet, and one comes back; the other is waited for, unless somebody of another
 * model would wait too. */
static void company_is_waited_for_at_nobody_elses_cost(void **state)
{
	struct school *s = school_new(0.1 * MS);
	struct pupil *a, *b, *c;

	(void)state;
	school_start(s);
	a = join(s, 1, 1, 1);
	b = join(s, 1, 1, 1);
	c = join(s, 2, 0, 2);
	go_passes(s, 20);
	a->again = b->again = 0;
	while (!has(a) || !has(b) || s->h.sched->passes.in_flight)
		go_round(s);
	ask(a, 1);
	sched_round(s->h.sched);
	assert_false(s->h.sched->passes.in_flight);
	ask(c, 1);
	sched_round(s->h.sched);
	assert_true(s->h.sched->passes.in_flight);
	while (!has(a) || !has(c))
		go_round(s);
	school_free(s);
}

/* Two prompts are longer than the pool, which has room below. */
static void what_left_the_device_is_told_and_not_read(void **state)
{
	struct school *s = school_new(0.0001 * MS);
	struct abi_completion end;
	struct pupil *p;

	(void)state;
	s->h.config.pool_bytes = 6u << 20;
	s->h.config.host_tier_bytes = 64u << 20;
	s->h.config.stage_bytes = 2u << 20;
	school_start(s);
	p = join(s, 1, 0, 1);
	ask(p, 20000);
	while (!has(p))
		go_round(s);
	ask(p, 20000);
	while (!has(p))
		go_round(s);
	end = end_of(p);
	assert_int_equal(end.status, -ENOSPC);
	assert_int_equal(end.reason, ABI_NO_ROOM);
	school_free(s);
}

static void what_was_published_before_a_failure_is_told(void **state)
{
	struct school *s = school_new(2 * MS);
	struct abi_completion end;
	struct pupil *p;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	world.n_before_failure = 3;
	ask(p, 1000);
	while (!has(p))
		go_round(s);
	end = end_of(p);
	assert_int_equal(end.status, -ENOMEM);
	assert_int_equal(end.cause, 0);
	assert_int_equal(end.published, p->c.session->tokens_computed);
	assert_in_range(end.published, 3, 999);
	ask(p, 1);
	while (!has(p))
		go_round(s);
	end = end_of(p);
	assert_int_equal(end.status, -ENOMEM);
	assert_int_equal(end.cause, 1);
	assert_int_equal(end.published, 0);
	school_free(s);
}

static uint64_t random_bits(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Mostly what is right, else what is at a border. */
static uint64_t draw(uint64_t *state, uint64_t right)
{
	static const uint64_t borders[] = {0,
					   1,
					   2,
					   16,
					   255,
					   256,
					   257,
					   N_VOCAB,
					   ARENA_BYTES - 528,
					   ARENA_BYTES,
					   UINT32_MAX / 2,
					   UINT32_MAX - 1,
					   UINT32_MAX,
					   UINT64_MAX - 527,
					   UINT64_MAX};
	uint64_t bits = random_bits(state);

	if (bits % 8)
		return right;
	return borders[(bits >> 8) % (sizeof(borders) / sizeof(borders[0]))];
}

struct hostile_body {
	struct abi_decode head;
	struct abi_decode_seq seqs[2];
	uint32_t ids[40];
};

static void draw_body(uint64_t *state, const uint64_t seqs[2], struct hostile_body *ret)
{
	uint32_t first = (uint32_t)(random_bits(state) % 21);

	ret->head = (struct abi_decode){
		.out = draw(state, random_bits(state) % 1000 * 4),
		.arena = (uint32_t)draw(state, 1),
		.stride = (uint32_t)draw(state, 528 + N_VOCAB * 4 + HIDDEN * 4),
		.want = (uint32_t)draw(state, random_bits(state) % 16),
	};
	ret->head.n_top = (uint32_t)draw(state, ret->head.want & 1 ? 20 : 0);
	for (int i = 0; i < 2; i++)
		ret->seqs[i] = (struct abi_decode_seq){
			.seq = draw(state, seqs[i]),
			.n_new = (uint32_t)draw(state, i ? 40 - first : first),
			.first_wanted = (uint32_t)draw(state, random_bits(state) % 20)};
	for (int i = 0; i < 40; i++)
		ret->ids[i] = (uint32_t)(random_bits(state) % N_VOCAB);
	if (random_bits(state) % 8 == 0)
		ret->ids[random_bits(state) % 40] = (uint32_t)draw(state, N_VOCAB);
}

/* What is refused has changed nothing; what is run is written where it may be. */
static void bodies_of_nonsense_hurt_nobody(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct abi_entry trim = {.kind = ABI_TRIM}, entry = {.kind = ABI_DECODE};
	uint64_t seqs[2], random = (uint64_t)time(NULL) | 1;
	struct store_match match;
	struct hostile_body body;
	uint32_t first = 7, n_good = 0;
	struct pupil *p;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)random);
	school_start(s);
	p = join(s, 1, 0, 1);
	world.instant = true;
	world.arena = (uintptr_t)p->c.arena;
	seqs[0] = p->seq;
	assert_int_equal(client_open(&p->c, &first, 1, &seqs[1], &match), 0);
	for (uint32_t i = 0; i < BODIES; i++) {
		uint64_t before = p->c.session->tokens_computed;

		draw_body(&random, seqs, &body);
		entry.count = (uint32_t)draw(&random, 2);
		struct abi_completion end =
			client_do(&p->c, entry, &body,
				  random_bits(&random) % 16 ? sizeof(body) : sizeof(body) - 4);

		n_good += end.status == 0;
		assert_int_equal(p->c.session->tokens_computed - before,
				 end.status ? end.published : end.value);
		assert_true(end.status == 0 || (end.cause == 0 && end.published == 0));
		for (int j = 0; j < 2 && end.status == 0; j++) {
			trim.seq = seqs[j];
			assert_int_equal(client_do(&p->c, trim, NULL, 0).status, 0);
		}
	}
	assert_true(n_good > BODIES / 50);
	school_free(s);
}

static void a_crowd_of_sequences_that_are_not_there_takes_no_memory(void **state)
{
	struct school *s = school_new(0.001 * MS);
	static struct {
		struct abi_decode head;
		struct abi_decode_seq seqs[16000];
	} body;
	struct abi_entry entry = {.kind = ABI_DECODE, .count = 16000};
	struct pupil *p;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	for (int turn = 0; turn < 2; turn++) {
		struct abi_completion end = client_do(&p->c, entry, &body, sizeof(body));

		assert_int_equal(end.reason, turn ? ABI_NO_TOKENS : ABI_STALE_SEQ);
		for (uint32_t i = 0; i < 16000; i++)
			body.seqs[i].seq = p->seq;
	}
	assert_in_range(TAILQ_FIRST(&s->h.sched->core.lanes)->step.parts_room, 1, 100);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_was_served_for_long_owes_nothing_to_who_comes),
		cmocka_unit_test(decode_of_many_is_no_longer_than_some_budgets),
		cmocka_unit_test(a_prompt_goes_on_beside_any_decode),
		cmocka_unit_test(decode_goes_on_beside_any_prompts),
		cmocka_unit_test(a_user_has_his_part_beside_another_with_many_sessions),
		cmocka_unit_test(company_is_waited_for_at_nobody_elses_cost),
		cmocka_unit_test(bodies_of_nonsense_hurt_nobody),
		cmocka_unit_test(a_crowd_of_sequences_that_are_not_there_takes_no_memory),
		cmocka_unit_test(what_left_the_device_is_told_and_not_read),
		cmocka_unit_test(what_was_published_before_a_failure_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
