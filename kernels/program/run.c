/*
 * run.c - what every backend asks of a run before it begins anything, and what a run reads.
 *
 * Nothing of the run's numbers is trusted; its pointers and the lengths of their arrays are.
 */
#include "backend_program.h"

static bool rows_fit(const struct program *p, const struct program_rows *rows, uint32_t max_rows)
{
	for (uint32_t i = 0; i < rows->n_rows; i++)
		if (rows->ids[i] >= p->n_vocab || rows->positions[i] >= p->max_positions)
			return false;
	for (uint32_t i = 0; i < rows->n_wanted; i++)
		if (rows->wanted[i].row >= rows->n_rows ||
		    (rows->wanted[i].next >= p->n_vocab && rows->wanted[i].next != PROGRAM_NONE))
			return false;
	return rows->n_rows > 0 && rows->n_rows <= max_rows && rows->n_wanted <= rows->n_rows;
}

static bool queries_fit(const struct backend_run *run)
{
	const struct work_tree *tree = run->job->tree;
	uint64_t n = 0;

	for (uint32_t i = 0; i < tree->n_queries; i++)
		n += tree->queries[i].n_rows;
	return n == run->rows->n_rows && tree->n_queries <= run->rows->n_rows;
}

bool program_run_fits(const struct program *p, const struct backend_run *run,
		      const struct program_progress *progress, uint32_t max_rows)
{
	bool first = run->first_layer == 0;

	if (run->n_layers == 0 || run->first_layer >= p->shape.n_layers ||
	    run->n_layers > p->shape.n_layers - run->first_layer)
		return false;
	if (!first &&
	    (progress->next_layer != run->first_layer || progress->n_rows != run->rows->n_rows))
		return false;
	return rows_fit(p, run->rows, max_rows) && queries_fit(run);
}

struct program_progress program_progress_of(const struct program *p, const struct backend_run *run)
{
	uint32_t next = run->first_layer + run->n_layers;

	if (next == p->shape.n_layers)
		return (struct program_progress){0};
	return (struct program_progress){.n_rows = run->rows->n_rows, .next_layer = next};
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void add_reads(struct program_reads *reads, const struct program_tensor *t)
{
	uint64_t n = (uint64_t)t->n_out * t->n_in;

	reads->elements += n;
	reads->bytes += n * work_dtype_bytes(t->dtype);
}

struct program_reads program_layers_reads(const struct program *p)
{
	struct program_reads reads = {0};

	for (uint32_t layer = 0; layer < p->shape.n_layers; layer++) {
		const struct program_kind *kind = &p->kinds[p->kind_of[layer]];

		for (uint32_t i = 0; i < kind->n_ops; i++) {
			const struct program_op *op = &p->ops[kind->first_op + i];

			for (uint32_t w = 0; op->kind == PROGRAM_LINEAR && w < op->n_w; w++)
				add_reads(&reads, program_tensor(p, layer, op->w[w]));
		}
	}
	return reads;
}

struct program_reads program_head_reads(const struct program *p)
{
	struct program_reads reads = {0};

	add_reads(&reads, &p->tensors[p->head]);
	return reads;
}
