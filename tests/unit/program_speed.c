/*
 * program_speed.c - the shape of a Llama of 8 billion weights, bf16, which are random and the same
 * 64 MiB over and over: what is timed is reading and arithmetic. Rows are sequences of one token
 * each, whose likeliest 20 are wanted: on nothing, or on a document that they share, beside a
 * prompt's next rows. Tensors lie as the daemon lays them.
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
#define EXTENTS 80u /* at most; committed as runs need them */
#define EXTENT_BYTES (256 * MIB)
#define PAGE_TOKENS 32u
#define PAGE_BYTES (UINT64_C(4) * LAYERS * KV_HEADS * DIM * PAGE_TOKENS)
#define PAGES (uint32_t)(EXTENTS * EXTENT_BYTES / PAGE_BYTES)
#define DOCUMENT 32768u /* tokens */

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
	struct work_node nodes[ROWS_MAX + 2]; /* with the document and a prompt */
	struct work_slice slices[PAGES];
	struct work_query queries[ROWS_MAX];
	struct backend_io io[ROWS_MAX];
	uint32_t ids[ROWS_MAX], positions[ROWS_MAX];
	struct program_wanted wanted[ROWS_MAX];
	struct work_list list;
	struct program_row *out;
	uint64_t base;
	uint64_t plan_id;
	uint32_t n_extents; /* committed */
};

/* Of a run. */
struct speed_rows {
	uint32_t n_tokens; /* sequences of one token each */
	uint32_t n_prompt; /* rows of one sequence more */
	uint32_t before; /* of the prompt, whole pages; not 0: the others are on a document */
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
		.shape = {LAYERS, HEADS, KV_HEADS, DIM, PAGE_TOKENS, WORK_BF16, 0.08838835f, 0, 0},
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

/* The next node, on parent, whose last n_rows tokens are new. */
static void add_node(struct speed *s, struct work_tree *tree, uint32_t parent, uint32_t n_tokens,
		     uint32_t n_rows)
{
	uint32_t pos = parent == WORK_NONE ? 0 : s->nodes[parent].n_tokens;
	uint32_t first = tree->n_slices, n_pages = ceil_div(n_tokens, PAGE_TOKENS);
	uint32_t first_new = (n_tokens - n_rows) / PAGE_TOKENS;

	for (uint32_t i = 0; i < n_pages; i++)
		s->slices[first + i] = (struct work_slice){
			first + i, 0, (uint16_t)min_u32(PAGE_TOKENS, n_tokens - i * PAGE_TOKENS)};
	s->nodes[tree->n_nodes] = (struct work_node){parent, pos, n_tokens, first, n_pages};
	tree->n_slices += n_pages;
	if (n_rows > 0) {
		s->queries[tree->n_queries] = (struct work_query){.node = tree->n_nodes,
								  .pos = pos + n_tokens - n_rows,
								  .n_rows = n_rows};
		s->io[tree->n_queries++] =
			(struct backend_io){.slots = &s->slices[first + first_new],
					    .n_slots = n_pages - first_new};
	}
	tree->n_nodes++;
}

static void commit(struct speed *s, uint32_t n_pages)
{
	for (; s->n_extents * EXTENT_BYTES < n_pages * PAGE_BYTES; s->n_extents++)
		check(s->ops->extent_commit(s->b, s->n_extents), "extents");
}

/* Returns of how many rows something is wanted: all that are no prompt's, or the last. */
static uint32_t fill(struct speed *s, struct speed_rows of, struct work_tree *tree)
{
	uint32_t parent = of.before ? 0 : WORK_NONE, n = of.n_tokens + of.n_prompt, n_wanted;

	*tree = (struct work_tree){s->nodes, s->slices, s->queries, 0, 0, 0};
	if (of.before)
		add_node(s, tree, WORK_NONE, DOCUMENT, 0);
	for (uint32_t i = 0; i < of.n_tokens; i++)
		add_node(s, tree, parent, 1, 1);
	if (of.n_prompt)
		add_node(s, tree, WORK_NONE, of.before + of.n_prompt, of.n_prompt);
	commit(s, tree->n_slices);
	for (uint32_t i = 0; i < n; i++) {
		s->ids[i] = i * 37 % VOCABULARY;
		s->positions[i] =
			i < of.n_tokens ? (of.before ? DOCUMENT : 0) : of.before + i - of.n_tokens;
	}
	n_wanted = max_u32(of.n_tokens, 1);
	for (uint32_t i = 0; i < n_wanted; i++)
		s->wanted[i] = (struct program_wanted){of.n_tokens ? i : n - 1, PROGRAM_WANT_TOP,
						       20, PROGRAM_NONE,
						       s->base + i * sizeof(struct program_row)};
	return n_wanted;
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
static void time_runs(struct speed *s, struct speed_rows of)
{
	struct work_tree tree;
	uint32_t n_wanted = fill(s, of, &tree), n = of.n_tokens + of.n_prompt;
	struct backend_job job = {.shape = &s->p.shape,
				  .tree = &tree,
				  .list = &s->list,
				  .io = s->io};
	struct program_rows rows = {n, s->ids, s->positions, s->wanted, n_wanted};
	const struct backend_run run = {.program = s->program, .job = &job, .rows = &rows};
	struct backend_ran ran;
	double ms[TIMES], submit_ms[TIMES], first_ms = 0;

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
	printf("%4u rows", n);
	if (of.before)
		printf(", %u on a document", of.n_tokens);
	if (of.n_prompt)
		printf(", %u of a prompt behind %u tokens", of.n_prompt, of.before);
	printf(": %.3f ms (least %.3f), of which submitting takes %.3f; the first %.3f\n",
	       ms[TIMES / 2], ms[0], submit_ms[TIMES / 2], first_ms);
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
		time_runs(s, (struct speed_rows){some[i], 0, 0});
	for (uint32_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		time_runs(s, (struct speed_rows){0, many[i], 0});
	for (uint32_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		time_products(s, some[i]);
	for (uint32_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		time_products(s, many[i]);
}

/* N: sequences; Np: a prompt; N+M@B: sequences on the document, M rows of a prompt behind B. */
static struct speed_rows read_rows(const char *text)
{
	char *end;
	uint32_t n = min_u32((uint32_t)strtoul(text, &end, 10), ROWS_MAX), before = 0;
	struct speed_rows of = {n, 0, 0};

	if (*end == 'p')
		return (struct speed_rows){0, max_u32(1, n), 0};
	if (*end == '+')
		of.n_prompt = min_u32((uint32_t)strtoul(end + 1, &end, 10), ROWS_MAX - n);
	if (*end == '@')
		before = min_u32((uint32_t)strtoul(end + 1, &end, 10), DOCUMENT);
	of.before = ceil_div(before, PAGE_TOKENS) * PAGE_TOKENS;
	of.n_tokens += n + of.n_prompt == 0;
	return of;
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
		struct speed_rows of = read_rows(*rows);

		time_runs(s, of);
		time_products(s, of.n_tokens + of.n_prompt);
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
