/*
 * school.c - what a pass brings is checked here: rows are counted, pages and tokens are within what
 * there is, and what is wanted is written where its client may have it.
 */
#include "school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct work_shape shape = {.n_layers = 1,
					.n_q_heads = 1,
					.n_kv_heads = 1,
					.head_dim = 16,
					.page_tokens = 64,
					.dtype = WORK_FP32};

/* ---- a backend ------------------------------------------------------------------------------ */

struct world world;

/* Written where its client may have it. */
static void check_wanted(const struct program_wanted *wanted, uint32_t n_rows, const uint32_t *ids)
{
	uint64_t at = world.arena ? wanted->out - world.arena : 0;
	uint64_t bytes = sizeof(struct program_row);

	if (wanted->want & PROGRAM_WANT_LOGITS)
		bytes += N_VOCAB * sizeof(float);
	if (wanted->want & PROGRAM_WANT_HIDDEN)
		bytes += HIDDEN * sizeof(float);
	assert_true(wanted->row < n_rows);
	assert_true(at <= ARENA_BYTES && bytes <= ARENA_BYTES - at && at % sizeof(float) == 0);
	assert_true(wanted->n_top <= PROGRAM_TOP_MAX);
	assert_true(wanted->next < N_VOCAB || wanted->next == PROGRAM_NONE);
	if (!world.ascends || wanted->next == PROGRAM_NONE)
		return;
	assert_int_equal(wanted->next, ids[wanted->row] + 1);
	world.n_followed++;
}

/* Rows stand query by query. A plan that has taken tokens in has their rows where they are now. */
static void check_places(const struct backend_run *run)
{
	const struct backend_job *job = run->job;
	uint32_t n_rows = 0;

	for (uint32_t q = 0; q < job->tree->n_queries; q++) {
		for (uint32_t i = 0; i < job->list->n_rows; i++) {
			const struct work_row *row = &job->list->rows[i];

			if (row->query == q && !job->tree->queries[q].parents)
				assert_int_equal(row->pos,
						 run->rows->positions[n_rows + row->token]);
		}
		n_rows += job->tree->queries[q].n_rows;
	}
	assert_int_equal(n_rows, run->rows->n_rows);
}

static double head_ns(const struct program_rows *rows)
{
	return rows->n_wanted > 1 ? (rows->n_wanted - 1) * world.wanted_ns : 0;
}

/* Of sequences that have no new token. */
static uint32_t count_absent(const struct backend_job *job)
{
	uint32_t n = 0;

	for (uint32_t q = 0; q < job->tree->n_queries; q++)
		n += job->io[q].n_slots == 0;
	return n;
}

/* Where the model's rows stand. */
static uint32_t *next_place(const struct work_shape *of)
{
	uint32_t i = 0;

	while (world.places[i].of && world.places[i].of != of)
		assert_true(++i < WORLD_PLACES);
	world.places[i].of = of;
	return &world.places[i].next;
}

/* Places of a pass at which it can end. */
static uint32_t count_places(const struct backend_run *run)
{
	return world.n_places ? world.n_places : run->job->shape->n_layers;
}

/* How many come next: what the rows take is alike between all of them. */
static uint32_t count_next(const struct backend_run *run, uint32_t next, double layers_ns)
{
	uint32_t n_all = count_places(run), n_left = n_all - next;
	double n = run->most_ns ? (double)run->most_ns * n_all / layers_ns : n_left;

	return n < 1 ? 1 : n < n_left ? (uint32_t)n : n_left;
}

static void check_run(const struct backend_run *run)
{
	const struct work_tree *tree = run->job->tree;
	uint32_t n_rows = run->rows->n_rows;

	check_places(run);
	assert_in_range(n_rows, 1, MAX_ROWS);
	for (uint32_t i = 0; i < tree->n_slices; i++)
		assert_true(tree->slices[i].page < 1u << 20);
	for (uint32_t i = 0; i < n_rows; i++)
		assert_true(run->rows->ids[i] < N_VOCAB);
	assert_in_range(run->rows->n_wanted, 0, ABI_DECODE_ROWS_MAX);
	for (uint32_t i = 0; i < run->rows->n_wanted; i++)
		check_wanted(&run->rows->wanted[i], n_rows, run->rows->ids);
	assert_true(run->expected.products >= 0 && run->expected.attend >= 0 &&
		    run->expected.head >= 0);
}

static int model_run(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	uint32_t n_rows = run->rows->n_rows, n_all = count_places(run), n;
	double layers_ns = world.fixed_ns + n_rows * world.row_ns;
	double ns = layers_ns + head_ns(run->rows), part_ns;
	bool small = world.begins_small && !run->goes_on;
	uint32_t *place = next_place(run->job->shape), next = run->goes_on ? *place : 0;

	(void)b;
	assert_true(!run->goes_on || next > 0);
	if (world.stale_at && run->goes_on && next == world.stale_at) {
		world.stale_at = 0;
		return -ESTALE;
	}
	check_run(run);
	if (world.n_before_failure && world.n_passes == world.n_before_failure)
		return -ENOMEM;
	n = count_next(run, next, layers_ns);
	world.n_passes += !run->goes_on;
	world.n_segments++;
	next += n;
	*ret = (struct backend_ran){.id = ++world.last_id,
				    .part = small ? 0 : (double)n / n_all,
				    .ended = next == n_all};
	part_ns = layers_ns * n / n_all + (ret->ended ? head_ns(run->rows) : 0);
	world.longest_ns = ns > world.longest_ns ? ns : world.longest_ns;
	world.longest_segment_ns =
		part_ns > world.longest_segment_ns ? part_ns : world.longest_segment_ns;
	world.longest_attend_ns = run->expected.attend > world.longest_attend_ns
					  ? run->expected.attend
					  : world.longest_attend_ns;
	world.ran_ns += part_ns;
	world.n_rows = n_rows - count_absent(run->job);
	world.end_ns = world.now_ns + (uint64_t)part_ns;
	*place = world.next = ret->ended ? 0 : next;
	return 0;
}

static int model_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	(void)b;
	(void)batch;
	world.end_ns = world.now_ns + (uint64_t)world.batch_ns;
	*ret_id = ++world.last_id;
	return 0;
}

static int model_completed(struct backend *b, uint64_t *ret_id)
{
	(void)b;
	*ret_id = world.last_id - (world.now_ns < world.end_ns && !world.instant);
	return 0;
}

static int model_advance(struct backend *b, const struct backend_job *job)
{
	(void)b;
	(void)job;
	return 0;
}

/* In the end nobody moves it any more, and whoever is waited for does not come. */
static uint64_t look_at_clock(void)
{
	world.now_ns += world.ends ? ROUND_NS : 0;
	return world.now_ns;
}

static uint32_t as_many(uint32_t n_rows)
{
	return n_rows;
}

static const struct backend_program_ops program_ops = {.max_rows = MAX_ROWS,
						       .rows_as = as_many,
						       .run = model_run};

/* ---- clients -------------------------------------------------------------------------------- */

struct school *school_new(double row_ns)
{
	struct school *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	memset(&world, 0, sizeof(world));
	world.now_ns = world.end_ns = 1000000000;
	world.row_ns = row_ns;
	world.fixed_ns = FIXED_NS;
	world.batch_ns = BUDGET_NS;
	harness_init(&s->h);
	s->ops = backend_cpu;
	s->ops.unseen = 0;
	s->program = program_ops;
	s->ops.program = &s->program;
	s->ops.submit = model_submit;
	s->ops.completed = model_completed;
	s->ops.advance = model_advance;
	s->h.ops = &s->ops;
	s->h.stepped = true;
	s->h.config.batch_budget_ms = 30;
	s->h.config.pool_bytes = 256u << 20;
	return s;
}

void school_start(struct school *s)
{
	harness_start(&s->h);
	s->h.sched->core.clock = look_at_clock;
}

void school_free(struct school *s)
{
	world.instant = world.ends = true;
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
	model->program->cost = (struct backend_program_cost){.fixed_ns = world.fixed_ns,
							     .hidden_row_ns = world.row_ns,
							     .row_ns = world.row_ns,
							     .hidden_rows = world.hidden_rows,
							     .wanted_ns = world.wanted_ns};
}

struct pupil *join(struct school *s, uint64_t user, uint32_t again, uint32_t n_layers)
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

bool has(const struct pupil *p)
{
	return atomic_load(&p->c.lane->done) >= p->c.ticket;
}

struct abi_completion end_of(const struct pupil *p)
{
	return p->c.lane->completions[(p->c.ticket - 1) % ABI_LANE_SLOTS];
}

void ask(struct pupil *p, uint32_t n)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[20000];
	} body = {.head = {.arena = 1, .stride = 1024, .want = p->wants ? ABI_WANT_SCORE : 0},
		  .seq = {.seq = p->seq, .n_new = n, .first_wanted = p->wants_all ? 0 : n - 1}};
	uint32_t bytes = (uint32_t)(sizeof(body.head) + sizeof(body.seq) + n * sizeof(uint32_t));

	assert_true(n <= 20000);
	for (uint32_t i = 0; i < n; i++)
		body.ids[i] = (i + (uint32_t)p->seq) % N_VOCAB; /* nobody else's */
	client_submit(&p->c, (struct abi_entry){.kind = ABI_DECODE, .count = 1}, &body, bytes);
}

void go_round(struct school *s)
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

void go_passes(struct school *s, uint32_t n)
{
	uint32_t end = world.n_passes + n;

	for (uint32_t i = 0; world.n_passes < end; i++) {
		assert_true(i < 100000);
		go_round(s);
	}
}

double had_ns(const struct pupil *p)
{
	return p->c.session->backend_ns;
}

void begin_anew(struct pupil *p, uint32_t n)
{
	uint32_t ids[] = {(uint32_t)p->seq + 1, (uint32_t)p->seq + 2, 5};
	struct store_match match;

	assert_int_equal(client_close(&p->c, p->seq), 0);
	assert_int_equal(client_open(&p->c, ids, 3, &p->seq, &match), 0);
	ask(p, n);
}

void go_for(struct school *s, uint64_t ns)
{
	uint64_t until_ns = world.now_ns + ns;

	while (world.now_ns < until_ns) {
		sched_round(s->h.sched);
		world.now_ns += ROUND_NS;
	}
}

void go_till_all_have(struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		while (!has(&s->pupils[i]))
			go_for(s, ROUND_NS);
}
