/*
 * program_speed.c - the shape of a Llama of 8 billion weights, bf16, which are random and the same
 * 64 MiB over and over: what is timed is reading and arithmetic. Rows are sequences of one token
 * each, whose likeliest 20 are wanted. Tensors lie as the daemon lays them.
 */
#include "program_speed.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/cuda/module/module.h"
#include "kernels/plan/plan.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define LAYERS 32u
#define HIDDEN 4096u
#define INNER 14336u
#define VOCABULARY 128256u
#define HEADS 32u
#define KV_HEADS 8u
#define DIM 128u
#define PIECE_BYTES (64 * MIB)
#define ROWS_MAX 1024u
#define TIMES 30u
#define EXTENTS 8u
#define EXTENT_BYTES (256 * MIB)

enum { NORM, DOWN, GATE, UP, NORM_2, O, Q, K, V, N_SLOTS };

struct speed {
	const struct backend_ops *ops;
	cuda_measure_products products;
	struct backend *b;
	struct backend_weights *weights;
	struct backend_program *program;
	struct program p;
	struct program_tensor tensors[3 + LAYERS * N_SLOTS];
	uint32_t slots[LAYERS * N_SLOTS];
	uint8_t kind_of[LAYERS];
	double inv_freq[DIM / 2];
	/* of a run */
	struct work_node nodes[ROWS_MAX];
	struct work_slice slices[ROWS_MAX];
	struct work_query queries[ROWS_MAX];
	struct backend_io io[ROWS_MAX];
	uint32_t ids[ROWS_MAX], positions[ROWS_MAX];
	struct program_wanted wanted[ROWS_MAX];
	struct work_list list;
	struct program_row *out;
	uint64_t base;
	uint64_t plan_id;
};

static void check(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-r));
	exit(1);
}

/* ---- the model ------------------------------------------------------------------------------- */

static uint32_t add_tensor(struct speed *s, const char *name, uint32_t n_out, uint32_t n_in)
{
	uint32_t i = s->p.n_tensors++;
	uint64_t bytes = (uint64_t)(n_out ? n_out : 1) * n_in * 2;

	s->tensors[i] = (struct program_tensor){name, WORK_BF16, n_out, n_in, s->p.weights_bytes};
	s->p.weights_bytes += align_to(bytes, PROGRAM_ALIGN);
	return i;
}

static void add_layer(struct speed *s, uint32_t layer)
{
	uint32_t *slots = s->slots + layer * N_SLOTS;

	slots[NORM] = add_tensor(s, "norm", 0, HIDDEN);
	slots[DOWN] = add_tensor(s, "down", HIDDEN, INNER);
	slots[GATE] = add_tensor(s, "gate", INNER, HIDDEN);
	slots[UP] = add_tensor(s, "up", INNER, HIDDEN);
	slots[NORM_2] = add_tensor(s, "norm_2", 0, HIDDEN);
	slots[O] = add_tensor(s, "o", HIDDEN, HEADS * DIM);
	slots[Q] = add_tensor(s, "q", HEADS * DIM, HIDDEN);
	slots[K] = add_tensor(s, "k", KV_HEADS * DIM, HIDDEN);
	slots[V] = add_tensor(s, "v", KV_HEADS * DIM, HIDDEN);
}

#define NONE PROGRAM_NONE
#define NO_BIAS \
	{ \
		NONE, NONE, NONE \
	}

static void make_program(struct speed *s)
{
	static const struct program_op ops[] = {
		{PROGRAM_NORM, 0, PROGRAM_X, PROGRAM_A, 0, 1, {NORM, NONE, NONE}, NO_BIAS, 1e-5f},
		{PROGRAM_LINEAR, 0, PROGRAM_A, PROGRAM_B, 0, 3, {Q, K, V}, NO_BIAS, 0},
		{PROGRAM_ATTEND, 0, PROGRAM_B, PROGRAM_C, 0, 0, NO_BIAS, NO_BIAS, 0},
		{PROGRAM_LINEAR,
		 PROGRAM_ADD,
		 PROGRAM_C,
		 PROGRAM_X,
		 0,
		 1,
		 {O, NONE, NONE},
		 NO_BIAS,
		 0},
		{PROGRAM_NORM, 0, PROGRAM_X, PROGRAM_A, 0, 1, {NORM_2, NONE, NONE}, NO_BIAS, 1e-5f},
		{PROGRAM_LINEAR,
		 PROGRAM_GATED,
		 PROGRAM_A,
		 PROGRAM_C,
		 PROGRAM_SILU,
		 2,
		 {GATE, UP, NONE},
		 NO_BIAS,
		 0},
		{PROGRAM_LINEAR,
		 PROGRAM_ADD,
		 PROGRAM_C,
		 PROGRAM_X,
		 0,
		 1,
		 {DOWN, NONE, NONE},
		 NO_BIAS,
		 0},
	};
	static const struct program_kind kind = {0, sizeof(ops) / sizeof(ops[0])};

	s->p = (struct program){
		.shape = {LAYERS, HEADS, KV_HEADS, DIM, 32, WORK_BF16, 0.08838835f, 0, 0},
		.hidden = HIDDEN,
		.n_vocab = VOCABULARY,
		.max_positions = 1u << 17,
		.eps = 1e-5f,
		.embed_factor = 1,
		.logit_factor = 1,
		.rope_factor = 1,
		.n_turned = DIM,
		.inv_freq = s->inv_freq,
		.ops = ops,
		.kinds = &kind,
		.kind_of = s->kind_of,
		.slots = s->slots,
		.tensors = s->tensors,
		.n_ops = kind.n_ops,
		.n_kinds = 1,
		.n_slots = N_SLOTS,
	};
	s->p.embed = add_tensor(s, "embed", VOCABULARY, HIDDEN);
	s->p.head = add_tensor(s, "head", VOCABULARY, HIDDEN);
	s->p.final_norm = add_tensor(s, "final_norm", 0, HIDDEN);
	for (uint32_t i = 0; i < LAYERS; i++)
		add_layer(s, i);
	for (uint32_t i = 0; i < DIM / 2; i++)
		s->inv_freq[i] = 1.0 / (1 + i);
}

/* bf16 of a magnitude of 2^-6 to 2^-5, of either sign. */
static void load_weights(struct speed *s)
{
	const struct backend_program_ops *ops = s->ops->program;
	uint64_t bytes = s->p.weights_bytes, state = 7, begin_ns;
	uint16_t *piece = malloc(PIECE_BYTES);

	check(piece ? 0 : -1, "memory");
	for (uint64_t i = 0; i < PIECE_BYTES / 2; i++) {
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
		piece[i] = (uint16_t)(0x3c80 | (state >> 33 & 0x807f));
	}
	check(ops->weights_new(s->b, bytes, &s->weights), "weights");
	begin_ns = clock_now_ns();
	for (uint64_t at = 0; at < bytes; at += PIECE_BYTES)
		check(ops->weights_put(s->b, s->weights, at, piece,
				       min_u64(bytes - at, PIECE_BYTES)),
		      "weights");
	printf("weights: %.2f GB at %.1f GB/s\n", (double)bytes * 1e-9,
	       (double)bytes / (double)(clock_now_ns() - begin_ns));
	free(piece);
}

static void open_all(struct speed *s, const char *module)
{
	struct backend_config config = {EXTENTS * EXTENT_BYTES, EXTENT_BYTES, 0, NULL};
	struct backend_program_cost cost;
	struct program_widths widths;
	char why[PROGRAM_WHY_BYTES] = "";
	void *at = dlopen(module, RTLD_NOW | RTLD_LOCAL);

	*(void **)&s->products = dlsym(at, CUDA_MODULE_MEASURE_PRODUCTS);
	check(s->ops->open(&config, &s->b, why, sizeof(why)), why);
	for (uint32_t i = 0; i < EXTENTS; i++)
		check(s->ops->extent_commit(s->b, i), "extents");
	make_program(s);
	check(program_check(&s->p, &widths, why), why);
	load_weights(s);
	check(s->ops->program->program_new(s->b, &s->p, s->weights, &s->program, why), why);
	s->ops->program->cost(s->b, s->program, &cost);
	printf("modelled: %.2f ms, and %.4f a row; scratch %.0f MB\n", cost.fixed_ns * 1e-6,
	       cost.row_ns * 1e-6, (double)cost.scratch_bytes * 1e-6);
	s->out = aligned_alloc(4096, ROWS_MAX * 4096);
	check(s->out ? s->ops->arena_attach(s->b, s->out, ROWS_MAX * 4096, &s->base) : -1, "out");
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* n sequences of a token; or one of n, a prompt, of whose last row something is wanted. */
static void fill(struct speed *s, uint32_t n, bool prompt, struct work_tree *tree)
{
	uint32_t n_slices = prompt ? ceil_div(n, 32) : n;

	for (uint32_t i = 0; i < n_slices; i++)
		s->slices[i] =
			(struct work_slice){i, 0, (uint16_t)(prompt ? min_u32(32, n - i * 32) : 1)};
	for (uint32_t i = 0; i < n; i++) {
		s->nodes[i] = (struct work_node){WORK_NONE, 0, 1, i, 1};
		s->queries[i] = (struct work_query){.node = i, .n_rows = 1};
		s->io[i] = (struct backend_io){.slots = &s->slices[i], .n_slots = 1};
		s->ids[i] = i * 37 % VOCABULARY;
		s->positions[i] = prompt ? i : 0;
		s->wanted[i] = (struct program_wanted){prompt ? n - 1 : i, PROGRAM_WANT_TOP, 20,
						       PROGRAM_NONE,
						       s->base + i * sizeof(struct program_row)};
	}
	if (prompt) {
		s->nodes[0] = (struct work_node){WORK_NONE, 0, n, 0, n_slices};
		s->queries[0].n_rows = n;
		s->io[0].n_slots = n_slices;
	}
	n = prompt ? 1 : n;
	*tree = (struct work_tree){s->nodes, s->slices, s->queries, n, n_slices, n};
}

static void plan(struct speed *s, const struct work_tree *tree)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &s->p.shape, 132);
	config.tile_rows = s->ops->tile_rows(s->b, &s->p.shape);
	check(plan_make(&config, tree, &s->list), "plan");
	s->plan_id++;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* From the least on. */
static void sort(double *x)
{
	qsort(x, TIMES, sizeof(*x), by_size);
}

/* The first ones make room, a plan, and load kernels. */
static void time_runs(struct speed *s, uint32_t n, bool prompt)
{
	struct work_tree tree;
	struct backend_job job = {.shape = &s->p.shape,
				  .tree = &tree,
				  .list = &s->list,
				  .io = s->io};
	struct program_rows rows = {n, s->ids, s->positions, s->wanted, prompt ? 1 : n};
	const struct backend_run run = {.program = s->program, .job = &job, .rows = &rows};
	struct backend_ran ran;
	double ms[TIMES], submit_ms[TIMES], first_ms = 0;

	fill(s, n, prompt, &tree);
	plan(s, &tree);
	job.plan_id = s->plan_id;
	for (uint32_t i = 0; i < TIMES + 3; i++) {
		uint64_t done = 0, begin_ns = clock_now_ns(), end_ns;

		check(s->ops->program->run(s->b, &run, &ran), "run");
		end_ns = clock_now_ns();
		while (done < ran.id)
			check(s->ops->completed(s->b, &done), "completed");
		ms[i % TIMES] = (double)(clock_now_ns() - begin_ns) * 1e-6;
		submit_ms[i % TIMES] = (double)(end_ns - begin_ns) * 1e-6;
		if (i == 0)
			first_ms = ms[0];
	}
	sort(ms);
	sort(submit_ms);
	printf("%4u rows%s: %.3f ms (least %.3f), of which submitting takes %.3f; the first %.3f\n",
	       n, prompt ? " of a prompt" : "", ms[TIMES / 2], ms[0], submit_ms[TIMES / 2],
	       first_ms);
}

static void time_products(struct speed *s, uint32_t n)
{
	float us[TIMES];
	double ms[TIMES];

	check(s->products(s->b, s->program, n, TIMES, us), "products");
	for (uint32_t i = 0; i < TIMES; i++)
		ms[i] = (double)us[i] * 1e-3;
	sort(ms);
	printf("%4u rows: products, gates and head alone %.3f ms (least %.3f)\n", n, ms[TIMES / 2],
	       ms[0]);
}

static void time_all(struct speed *s)
{
	static const uint32_t some[] = {1, 8, 9, 33, 64, 65, 72, 128, 256},
			      many[] = {64, 128, 192, 256, 400, 512, 576, 704, 1024};

	for (uint32_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		time_runs(s, some[i], false);
	for (uint32_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		time_runs(s, many[i], true);
	for (uint32_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		time_products(s, some[i]);
	for (uint32_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		time_products(s, many[i]);
}

int program_speed(const struct backend_ops *ops, const char *module, char *const *rows)
{
	struct speed *s = calloc(1, sizeof(*s));

	check(s ? 0 : -1, "memory");
	s->ops = ops;
	open_all(s, module);
	if (!*rows)
		time_all(s);
	for (; *rows; rows++) {
		char *end;
		uint32_t n = max_u32(1, min_u32((uint32_t)strtoul(*rows, &end, 10), ROWS_MAX));

		time_runs(s, n, *end == 'p');
		time_products(s, n);
	}
	ops->arena_detach(s->b, s->base, ROWS_MAX * 4096);
	ops->program->program_free(s->b, s->program);
	ops->program->weights_free(s->b, s->weights);
	ops->close(s->b);
	plan_list_done(&s->list);
	free(s->out);
	free(s);
	return 0;
}
