/*
 * program.c - programs before and beside their runs: what is refused, memory, costs. What a program
 * passes here can be run with any number of rows up to PROGRAM_MAX_ROWS without more memory but a
 * plan's.
 */
#include "few.h"
#include "lt.h"
#include "many.h"
#include "pair.h"
#include "pass.h"
#include "program.h"
#include "tall.h"

#include "proto/arith.h"
#include "kernels/say.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PREPARE_NS 10e6 /* what a step of getting ready may take of others */
#define APART_ROWS 64u /* most products of more are cuBLASLt's */
/* Read in 0.9 ms by an H200, as it is modelled, and multiplied with 1,024 rows in 7: matrices of
 * models are smaller. */
#define SLICE_ELEMENTS (UINT64_C(1) << 31)
#define HIDDEN_ROWS 256u /* products of more take the arithmetic's time */

void programs_done(struct programs *programs)
{
	lt_close(programs->lt);
	programs->lt = NULL;
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *type_name(enum work_dtype type)
{
	return type == WORK_FP32 ? "fp32" : type == WORK_BF16 ? "bf16" : "fp16";
}

/* n_out: of the outputs, those of one product. */
static int check_matrix(const struct backend_program *program, const struct program_tensor *t,
			uint32_t n_out, char why[PROGRAM_WHY_BYTES])
{
	enum work_dtype type = program->p->shape.dtype;
	const struct lt_product one = {.n_w = 1,
				       .n_out = n_out,
				       .n_in = t->n_in,
				       .n_rows = 1,
				       .in_stride = t->n_in,
				       .out_stride = t->n_out,
				       .type = type,
				       .out_type = WORK_FP32};

	if (t->dtype != type)
		say(why, PROGRAM_WHY_BYTES,
		    "tensor %.120s is %s: matrices have to be %s, the model's type, on the GPU; "
		    "backend = cpu takes it",
		    t->name, type_name(t->dtype), type_name(type));
	else if (t->n_in % PROGRAM_ROW_ALIGN != 0)
		say(why, PROGRAM_WHY_BYTES,
		    "tensor %.120s is [%u, %u]: rows have to be a multiple of %u on the GPU; "
		    "backend = cpu takes it",
		    t->name, t->n_out, t->n_in, PROGRAM_ROW_ALIGN);
	else if (lt_find(program->lt, &one) != 0)
		say(why, PROGRAM_WHY_BYTES,
		    "tensor %.120s is [%u, %u], for %u outputs of which cuBLASLt has no product",
		    t->name, t->n_out, t->n_in, n_out);
	else
		return 0;
	return -EOPNOTSUPP;
}

/* Of which all slices are but the last, and that one. */
static int check_slices(const struct backend_program *program, const struct program_tensor *t,
			char why[PROGRAM_WHY_BYTES])
{
	uint32_t n_out = pass_slice_outs(program, t), rest = t->n_out % n_out;
	int r = check_matrix(program, t, n_out, why);

	return r || !rest ? r : check_matrix(program, t, rest, why);
}

static int check_op(const struct backend_program *program, const struct program_cursor *cursor,
		    char why[PROGRAM_WHY_BYTES])
{
	const struct program *p = program->p;
	const struct program_op *op = program_op_at(p, cursor);
	bool whole = pass_count_parts(program, cursor) == 1;
	int r = 0;

	for (uint32_t w = 0; op->kind == PROGRAM_LINEAR && w < op->n_w && !r; w++) {
		const struct program_tensor *t = program_tensor(p, cursor->layer, op->w[w]);

		r = whole ? check_matrix(program, t, t->n_out, why) : check_slices(program, t, why);
	}
	return r;
}

static int check_layer(const struct backend_program *program, uint32_t layer,
		       char why[PROGRAM_WHY_BYTES])
{
	const struct program *p = program->p;
	struct program_cursor cursor = {.layer = layer};
	int r = 0;

	for (; cursor.op < p->kinds[p->kind_of[layer]].n_ops && !r; cursor.op++)
		r = check_op(program, &cursor, why);
	return r;
}

static int check(const struct batch *b, const struct backend_program *program,
		 char why[PROGRAM_WHY_BYTES])
{
	const struct program *p = program->p;
	int r = 0;

	if (shape_page_bytes(b->pool, &p->shape, why, PROGRAM_WHY_BYTES) == 0)
		return -EOPNOTSUPP;
	if (b->peer) {
		say(why, PROGRAM_WHY_BYTES,
		    "several devices share this model's KV: programs run "
		    "on one; devices = 1, or steps a layer");
		return -EOPNOTSUPP;
	}
	for (uint32_t layer = 0; layer < p->shape.n_layers && !r; layer++)
		r = check_layer(program, layer, why);
	return r ? r : check_matrix(program, &p->tensors[p->head], p->n_vocab, why);
}

/* ---- programs -------------------------------------------------------------------------------- */

void program_free(struct backend_program *program)
{
	if (!program)
		return;
	scratch_done(program);
	free(program->io);
	free(program);
}

static int init(struct backend_program *program, const struct batch *b, char why[PROGRAM_WHY_BYTES])
{
	int r = program_check(program->p, &program->widths, why) ? -EOPNOTSUPP
								 : check(b, program, why);

	if (r)
		return r;
	assert(program->p->weights_bytes <= program->weights->bytes);
	program->io = calloc(PROGRAM_MAX_ROWS, sizeof(*program->io));
	return program->io ? scratch_init(program, b->queue.stream) : -ENOMEM;
}

uint64_t program_new_bytes(const struct program *p)
{
	struct backend_program bare = {.p = p};
	char why[PROGRAM_WHY_BYTES];

	return program_check(p, &bare.widths, why) ? 0 : scratch_bytes(&bare, PROGRAM_MAX_ROWS);
}

/* Whatever makes products. */
static int open_products(struct programs *programs, char why[PROGRAM_WHY_BYTES])
{
	struct queue *queue = &programs->batch->queue;
	int r = programs->lt ? 0 : lt_open(&programs->lt, why, PROGRAM_WHY_BYTES);

	if (!r)
		r = queue_expect(queue, device_few_init());
	if (!r)
		r = queue_expect(queue, device_some_init());
	if (!r)
		r = queue_expect(queue, device_many_init());
	if (!r)
		r = queue_expect(queue, device_pair_init());
	if (!r)
		r = queue_expect(queue, device_tall_init());
	return r;
}

int program_new(struct programs *programs, const struct program *p,
		const struct backend_weights *weights, struct backend_program **ret,
		char why[PROGRAM_WHY_BYTES])
{
	struct backend_program *program;
	int r = open_products(programs, why);

	if (r)
		return r;
	program = calloc(1, sizeof(*program));
	if (!program)
		return -ENOMEM;
	program->p = p;
	program->weights = weights;
	program->lt = programs->lt;
	program->slice_elements =
		programs->slice_elements ? programs->slice_elements : SLICE_ELEMENTS;
	r = init(program, programs->batch, why);
	if (r)
		program_free(program);
	else
		*ret = program;
	return r;
}

static double layer_elements(const struct program *p, uint32_t layer)
{
	const struct program_kind *kind = &p->kinds[p->kind_of[layer]];
	double n = 0;

	for (uint32_t i = 0; i < kind->n_ops; i++) {
		const struct program_op *op = &p->ops[kind->first_op + i];

		for (uint32_t w = 0; op->kind == PROGRAM_LINEAR && w < op->n_w; w++) {
			const struct program_tensor *t = program_tensor(p, layer, op->w[w]);

			n += (double)t->n_out * t->n_in;
		}
	}
	return n;
}

/* As it is modelled; others wait for it. */
static bool takes_long(const struct batch *b, const struct program *p, uint32_t n_rows)
{
	double elements = 0;

	for (uint32_t layer = 0; layer < p->shape.n_layers; layer++)
		if (program_is_first(p, layer))
			elements += layer_elements(p, layer);
	return elements * 2 / 1024 * b->costs->memory_ns_per_kb +
		       2e-6 * elements * n_rows * b->costs->product_ns_per_mflop >
	       PREPARE_NS;
}

/* What fails here fails in a run, which says so: nothing is tried again, as runs may have begun. */
bool program_prepare(struct batch *b, struct backend_program *program)
{
	uint32_t n_rows = lt_rows(program->n_prepared + 1);

	if (n_rows > PROGRAM_MAX_ROWS)
		return false;
	program->n_prepared = n_rows;
	if (takes_long(b, program->p, n_rows) || program_run_products(b, program, n_rows, true))
		program->n_prepared = PROGRAM_MAX_ROWS;
	return program->n_prepared < PROGRAM_MAX_ROWS;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static uint32_t count_ops(const struct program *p)
{
	uint32_t n = 0;

	for (uint32_t layer = 0; layer < p->shape.n_layers; layer++)
		n += p->kinds[p->kind_of[layer]].n_ops;
	return n;
}

uint32_t program_rows_as(uint32_t n_rows)
{
	return n_rows <= APART_ROWS ? n_rows : lt_rows(n_rows);
}

/* Tokens of a work tile. */
static uint32_t attend_rows(const struct work_shape *shape)
{
	struct row_map map = row_map_of(shape);

	return max_u32(DEVICE_WORK_TILE_ROWS / map.heads / map.n, 1);
}

void program_cost(const struct batch *b, const struct backend_program *program,
		  struct backend_program_cost *ret)
{
	const struct program *p = program->p;
	struct program_reads layers = program_layers_reads(p), head = program_head_reads(p);
	double kb = (double)(layers.bytes + head.bytes) / 1024;

	*ret = (struct backend_program_cost){
		.fixed_ns = b->costs->batch_ns + count_ops(p) * b->costs->op_ns +
			    kb * b->costs->memory_ns_per_kb,
		.head_ns = (double)head.bytes / 1024 * b->costs->memory_ns_per_kb,
		.hidden_row_ns =
			2e-6 * (double)layers.elements * b->costs->hidden_product_ns_per_mflop,
		.row_ns = 2e-6 * (double)layers.elements * b->costs->product_ns_per_mflop,
		.hidden_rows = HIDDEN_ROWS,
		.wanted_ns = 2e-6 * (double)head.elements * b->costs->product_ns_per_mflop,
		.attend_rows = attend_rows(&p->shape),
		.scratch_bytes = scratch_bytes(program, PROGRAM_MAX_ROWS),
	};
}
