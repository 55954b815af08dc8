/*
 * program_machine.c - a node for each sequence, whose pages are its own; the planner of the daemon
 * makes the list.
 */
#include "program_machine.h"

#include "proto/arith.h"
#include "kernels/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define N_EXTENTS 16
#define EXTENT_BYTES (2 * MIB)
#define EVERYTHING \
	(PROGRAM_WANT_TOP | PROGRAM_WANT_SCORE | PROGRAM_WANT_LOGITS | PROGRAM_WANT_HIDDEN)
#define ARENA_BYTES 4096u /* arenas are whole pages of the machine */
#define SLICES_MAX (MACHINE_TOKENS / 16 + 1)

static void set_ids(struct machine *machine)
{
	struct oracle_random random = {7 + machine->extent};

	for (uint32_t s = 0; s < MACHINE_SEQS; s++)
		for (uint32_t i = 0; i < MACHINE_TOKENS; i++)
			machine->seqs[s].ids[i] = oracle_below(&random, machine->model->p.n_vocab);
}

/* The backend is there. */
static void make_program(struct machine *machine)
{
	const struct backend_program_ops *program = machine->ops->program;
	struct program_model *model = machine->model;
	struct program_widths widths;
	char why[PROGRAM_WHY_BYTES] = "";

	machine->want = EVERYTHING;
	machine->segment_tokens = WORK_TILE_TOKENS;
	set_ids(machine);
	assert_int_equal(program->weights_new(machine->backend, model->p.weights_bytes,
					      &machine->weights),
			 0);
	assert_int_equal(program->weights_put(machine->backend, machine->weights, 0, model->weights,
					      model->p.weights_bytes),
			 0);
	if (program_check(&model->p, &widths, why))
		fail_msg("%s", why);
	if (program->program_new(machine->backend, &model->p, machine->weights, &machine->program,
				 why) != 0)
		fail_msg("%s", why);
}

void machine_init_on(struct machine *machine, const struct backend_ops *ops,
		     struct program_model *model, uint32_t n_threads)
{
	struct backend_config config = {N_EXTENTS * EXTENT_BYTES, EXTENT_BYTES, n_threads, NULL};

	*machine = (struct machine){.ops = ops, .model = model};
	assert_int_equal(ops->open(&config, &machine->backend, NULL, 0), 0);
	make_program(machine);
}

void machine_init_beside(struct machine *machine, const struct machine *other,
			 struct program_model *model)
{
	uint64_t page_bytes = other->ops->page_bytes(other->backend, &model->p.shape, NULL, 0);
	uint32_t extent = other->extent + (N_EXTENTS - other->extent) / 2;

	*machine = (struct machine){.ops = other->ops,
				    .backend = other->backend,
				    .model = model,
				    .extent = extent};
	machine->next_page = extent * (uint32_t)(EXTENT_BYTES / page_bytes);
	make_program(machine);
}

void machine_init(struct machine *machine, struct program_model *model, uint32_t n_threads)
{
	machine_init_on(machine, &backend_cpu, model, n_threads);
}

void machine_done(struct machine *machine)
{
	machine->ops->program->program_free(machine->backend, machine->program);
	machine->ops->program->weights_free(machine->backend, machine->weights);
	if (!machine->extent)
		machine->ops->close(machine->backend);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* What a run points to. */
struct job {
	struct work_node nodes[MACHINE_SEQS];
	struct work_query queries[MACHINE_SEQS];
	struct work_slice slices[MACHINE_SEQS * SLICES_MAX], slots[MACHINE_SEQS * SLICES_MAX];
	struct backend_io io[MACHINE_SEQS];
	struct work_tree tree;
	struct work_list list;
	uint32_t ids[MACHINE_SEQS * MACHINE_TOKENS], positions[MACHINE_SEQS * MACHINE_TOKENS];
	struct program_wanted wanted[MACHINE_SEQS * MACHINE_TOKENS];
	struct program_rows rows;
	uint32_t n_slots;
	char *out; /* owned */
	uint64_t base; /* the backend's address of it */
};

/* Slices of tokens [first, end) of a sequence; returns how many. */
static uint32_t cut(const struct machine *machine, const struct machine_seq *seq, uint32_t first,
		    uint32_t end, struct work_slice *ret)
{
	uint32_t page_tokens = machine->model->p.shape.page_tokens, n = 0;

	while (first < end) {
		uint32_t row = first % page_tokens, count = page_tokens - row;

		count = count < end - first ? count : end - first;
		ret[n++] = (struct work_slice){seq->pages[first / page_tokens], (uint16_t)row,
					       (uint16_t)count};
		first += count;
	}
	return n;
}

/* An extent has memory from its first page on: clearing it is much of what a small run takes. */
static uint32_t new_page(struct machine *machine)
{
	const struct work_shape *shape = &machine->model->p.shape;
	uint64_t bytes = machine->ops->page_bytes(machine->backend, shape, NULL, 0);
	uint32_t page = machine->next_page++, n = (uint32_t)(EXTENT_BYTES / bytes);

	if (page % n == 0)
		assert_int_equal(machine->ops->extent_commit(machine->backend, page / n), 0);
	return page;
}

static void give_pages(struct machine *machine, struct machine_seq *seq, uint32_t n_tokens)
{
	while (seq->n_pages * machine->model->p.shape.page_tokens < n_tokens)
		seq->pages[seq->n_pages++] = new_page(machine);
}

static size_t out_bytes(const struct machine *machine)
{
	return sizeof(struct program_row) +
	       (machine->model->p.n_vocab + machine->model->p.hidden) * sizeof(float);
}

static uint64_t arena_bytes(const struct machine *machine, uint32_t n_rows)
{
	return align_to(n_rows * out_bytes(machine), ARENA_BYTES);
}

/* Of a draft a token's position is how many it sees before it. */
static uint32_t position_of(uint32_t first, uint32_t index, const uint32_t *parents)
{
	uint32_t depth = parents ? 0 : index;

	while (parents && parents[index] != WORK_NONE) {
		index = parents[index];
		depth++;
	}
	return first + depth;
}

/* The token at an index of a sequence. */
static void add_row(struct machine *machine, struct job *job, const struct machine_seq *seq,
		    uint32_t index, uint32_t position)
{
	uint32_t row = job->rows.n_rows++;

	job->ids[row] = seq->ids[index];
	job->positions[row] = position;
	job->wanted[row] = (struct program_wanted){
		.row = row,
		.want = machine->want,
		.n_top = 1 + index % PROGRAM_TOP_MAX,
		.next = index + 1 < MACHINE_TOKENS ? seq->ids[index + 1] : PROGRAM_NONE,
		.out = job->base + row * out_bytes(machine),
	};
}

static void add_part(struct machine *machine, struct job *job, struct machine_part part)
{
	struct machine_seq *seq = &machine->seqs[part.seq];
	uint32_t i = job->tree.n_queries++, first = seq->n_tokens, end = first + part.n;
	struct work_node *node = &job->nodes[i];

	assert_true(end <= MACHINE_TOKENS);
	give_pages(machine, seq, end);
	*node = (struct work_node){WORK_NONE, 0, end, job->tree.n_slices, 0};
	node->n_slices = cut(machine, seq, 0, end, job->slices + job->tree.n_slices);
	job->tree.n_slices += node->n_slices;
	job->queries[i] = (struct work_query){.node = i,
					      .pos = first,
					      .n_rows = part.n,
					      .parents = part.parents,
					      .n_before = part.n_before};
	job->io[i].slots = job->slots + job->n_slots;
	job->io[i].n_slots = cut(machine, seq, first, end, job->slots + job->n_slots);
	job->n_slots += job->io[i].n_slots;
	job->tree.n_nodes++;
	for (uint32_t token = 0; token < part.n; token++)
		add_row(machine, job, seq, first + token,
			position_of(first - part.n_before, part.n_before + token, part.parents));
	seq->n_tokens = end;
}

static void plan(struct machine *machine, struct job *job)
{
	const struct work_shape *shape = &machine->model->p.shape;
	struct plan_config config;

	job->tree.nodes = job->nodes;
	job->tree.slices = job->slices;
	job->tree.queries = job->queries;
	plan_config_init(&config, PLAN_AUTO, shape, 2);
	config.tile_rows = machine->ops->tile_rows(machine->backend, shape);
	config.segment_tokens = machine->segment_tokens; /* contexts are short: cut them still */
	assert_int_equal(plan_make(&config, &job->tree, &job->list), 0);
}

void machine_await(struct machine *machine, uint64_t id)
{
	uint64_t done = 0;

	while (done < id)
		assert_int_equal(machine->ops->completed(machine->backend, &done), 0);
	assert_int_equal(done, id);
}

static void take(const struct machine *machine, const struct job *job, struct machine_result *ret)
{
	uint32_t n = job->rows.n_rows, n_vocab = machine->model->p.n_vocab;
	uint32_t hidden = machine->model->p.hidden;

	*ret = (struct machine_result){malloc(n * sizeof(*ret->rows)),
				       malloc((size_t)n * n_vocab * sizeof(float)),
				       malloc((size_t)n * hidden * sizeof(float)), n};
	assert_true(ret->rows && ret->logits && ret->hidden);
	for (size_t i = 0; i < n; i++) {
		const char *at = job->out + i * out_bytes(machine);

		memcpy(&ret->rows[i], at, sizeof(*ret->rows));
		at += sizeof(*ret->rows);
		if (machine->want & PROGRAM_WANT_LOGITS) {
			memcpy(ret->logits + i * n_vocab, at, n_vocab * sizeof(float));
			at += n_vocab * sizeof(float);
		}
		memcpy(ret->hidden + i * hidden, at, hidden * sizeof(float));
	}
}

uint64_t segment_random(struct oracle_random *random)
{
	static const uint64_t ns[] = {0, 1, 20000, 300000};

	return ns[oracle_below(random, sizeof(ns) / sizeof(ns[0]))];
}

/* ---- passes ---------------------------------------------------------------------------------- */

struct machine_pass {
	struct machine *machine;
	struct job job;
	struct backend_job attention;
	struct backend_run run;
	struct backend_ran ran;
	double part; /* that is done */
};

static void give_out(struct machine *machine, struct job *job)
{
	uint64_t bytes = arena_bytes(machine, job->rows.n_wanted);

	job->out = aligned_alloc(ARENA_BYTES, bytes);
	assert_non_null(job->out);
	assert_int_equal(machine->ops->arena_attach(machine->backend, job->out, bytes, &job->base),
			 0);
}

static void make_job(struct machine *machine, const struct machine_part *parts, uint32_t n_parts,
		     struct job *job)
{
	for (uint32_t i = 0; i < n_parts; i++)
		job->rows.n_wanted += parts[i].n;
	give_out(machine, job);
	for (uint32_t i = 0; i < n_parts; i++)
		add_part(machine, job, parts[i]);
	job->rows.ids = job->ids;
	job->rows.positions = job->positions;
	job->rows.wanted = job->wanted;
	plan(machine, job);
}

struct machine_pass *machine_begin(struct machine *machine, const struct machine_part *parts,
				   uint32_t n_parts, uint64_t most_ns)
{
	struct machine_pass *pass = calloc(1, sizeof(*pass));

	assert_non_null(pass);
	pass->machine = machine;
	make_job(machine, parts, n_parts, &pass->job);
	pass->attention = (struct backend_job){
		.shape = &machine->model->p.shape,
		.tree = &pass->job.tree,
		.list = &pass->job.list,
		.io = pass->job.io,
	};
	pass->run = (struct backend_run){.program = machine->program,
					 .job = &pass->attention,
					 .rows = &pass->job.rows,
					 .most_ns = most_ns,
					 .expected = {.products = 1e6, .attend = 1e4, .head = 1e5}};
	machine->n_segments = 0;
	return pass;
}

/* Has it been told that it is? */
static bool is_ending(const struct machine *machine, uint64_t id)
{
	const struct backend_program_ops *ops = machine->ops->program;

	return ops->is_ending && ops->is_ending(machine->backend, id);
}

bool machine_go_on(struct machine_pass *pass)
{
	struct machine *machine = pass->machine;
	struct backend_ran *ran = &pass->ran;

	assert_int_equal(machine->ops->program->run(machine->backend, &pass->run, ran), 0);
	assert_true(ran->part >= 0 && (ran->part > 0 || !ran->ended));
	pass->part += ran->part;
	pass->run.goes_on = true;
	if (++machine->n_segments == machine->replan_at) {
		machine->segment_tokens += WORK_TILE_TOKENS;
		plan(machine, &pass->job);
	}
	if (!ran->ended) {
		assert_false(is_ending(machine, ran->id));
		return true;
	}
	assert_true(pass->part > 0.999999 && pass->part < 1.000001);
	assert_true(pass->run.most_ns || machine->n_segments == 1);
	machine_await(machine, ran->id);
	assert_int_equal(is_ending(machine, ran->id),
			 machine->ops->program->is_ending && pass->job.rows.n_wanted > 0);
	return false;
}

void machine_end(struct machine_pass *pass, struct machine_result *ret)
{
	struct machine *machine = pass->machine;
	struct job *job = &pass->job;

	assert_true(pass->ran.ended);
	take(machine, job, ret);
	plan_list_done(&job->list);
	machine->ops->arena_detach(machine->backend, job->base,
				   arena_bytes(machine, job->rows.n_rows));
	free(job->out);
	free(pass);
}

void machine_run(struct machine *machine, const struct machine_part *parts, uint32_t n_parts,
		 uint64_t most_ns, struct machine_result *ret)
{
	struct machine_pass *pass = machine_begin(machine, parts, n_parts, most_ns);

	while (machine_go_on(pass))
		;
	machine_end(pass, ret);
}

void machine_result_done(struct machine_result *result)
{
	free(result->rows);
	free(result->logits);
	free(result->hidden);
}
