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
	if (run->goes_on && progress->n_rows != run->rows->n_rows)
		return false;
	return rows_fit(p, run->rows, max_rows) && queries_fit(run);
}

void program_cursor_next(const struct program *p, struct program_cursor *cursor)
{
	cursor->part = 0;
	if (++cursor->op < p->kinds[p->kind_of[cursor->layer]].n_ops)
		return;
	*cursor = (struct program_cursor){.layer = cursor->layer + 1};
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void add_reads(struct program_reads *reads, const struct program_tensor *t)
{
	uint64_t n = (uint64_t)t->n_out * t->n_in;

	reads->elements += n;
	reads->bytes += n * work_dtype_bytes(t->dtype);
}

static void add_op(struct program_reads *reads, const struct program *p,
		   const struct program_cursor *cursor)
{
	const struct program_op *op = program_op_at(p, cursor);

	for (uint32_t w = 0; op->kind == PROGRAM_LINEAR && w < op->n_w; w++)
		add_reads(reads, program_tensor(p, cursor->layer, op->w[w]));
}

/* Returns how many operations read them. */
static uint32_t add_layers(struct program_reads *reads, const struct program *p)
{
	struct program_cursor cursor = {0};
	uint32_t n = 0;

	for (; !program_is_at_head(p, &cursor); program_cursor_next(p, &cursor), n++)
		add_op(reads, p, &cursor);
	return n;
}

struct program_reads program_layers_reads(const struct program *p)
{
	struct program_reads reads = {0};

	add_layers(&reads, p);
	return reads;
}

struct program_reads program_head_reads(const struct program *p)
{
	struct program_reads reads = {0};

	add_reads(&reads, &p->tensors[p->head]);
	return reads;
}

/* ---- how long what is to come takes ---------------------------------------------------------- */

void program_times_init(struct program_times *t, const struct program *p,
			const struct backend_run *run)
{
	const struct backend_run_ns *expected = &run->expected;
	struct program_reads reads = {0};
	uint32_t n_ops = add_layers(&reads, p);

	*t = (struct program_times){
		.p = p,
		.expected = expected,
		.element_ns = expected->products / ((double)reads.elements + n_ops),
		.all_ns =
			expected->products + p->shape.n_layers * expected->attend + expected->head,
	};
}

double program_times_ns(const struct program_times *t, const struct program_cursor *cursor)
{
	struct program_reads reads = {0};

	if (program_is_at_head(t->p, cursor))
		return t->expected->head;
	add_op(&reads, t->p, cursor);
	return ((double)reads.elements + 1) * t->element_ns +
	       (program_op_at(t->p, cursor)->kind == PROGRAM_ATTEND ? t->expected->attend : 0);
}

double program_times_part(const struct program_times *t, const struct program_cursor *cursor)
{
	return t->all_ns > 0 ? program_times_ns(t, cursor) / t->all_ns : 0;
}

double program_times_between(const struct program_times *t, struct program_cursor from,
			     const struct program_cursor *to)
{
	double part = 0;

	for (; from.layer != to->layer || from.op != to->op; program_cursor_next(t->p, &from))
		part += program_times_part(t, &from);
	return part;
}
