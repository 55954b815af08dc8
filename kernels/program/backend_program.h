/*
 * backend_program.h - the part of a backend that holds weights and runs whole tokens.
 *
 *      weights_new > weights_put, piece by piece > program_new > run ... > program_free >
 *      weights_free
 *
 * A run takes rows through all layers and the head, or through a segment of that, which ends after
 * some time, so that others' steps come between: behind any operation, or within one that takes
 * long. What rows are between two segments stays with the program: each may have some under way,
 * while others' runs come between. Runs are batches to the backend: they complete in order of
 * submission with all others (backend_ops.completed).
 */
#ifndef COPPICE_BACKEND_PROGRAM_H
#define COPPICE_BACKEND_PROGRAM_H

#include "kernels/backend.h"
#include "program.h"

/* Programs of which some rows are under way at a time, at most. What these are between two segments
 * is the program's: it costs nothing that others run in between. */
#define BACKEND_PROGRAMS_AT_ONCE 4u

struct backend_weights; /* each backend's own */
struct backend_program; /* the same */

/* How long rows are expected to take, from their first layer to the end. */
struct backend_run_ns {
	double products; /* of all layers, and what else there is */
	double attend; /* of each layer */
	double head;
};

/* All rows of a program's sequences in a batch. Pointers stay valid until it is complete. */
struct backend_run {
	struct backend_program *program;
	/* Tree, list and plan as of any job; of its io, slots alone. Its layer is not looked at. */
	const struct backend_job *job;
	const struct program_rows *rows;
	bool goes_on; /* from where the run before has left the same rows; else they begin anew */
	uint64_t most_ns; /* it ends where it can once it takes so long; 0: with the rows' end */
	struct backend_run_ns expected;
};

/* What came of it. */
struct backend_ran {
	uint64_t id; /* as submit's */
	double part; /* of all that the rows take, as is expected: all their runs' are 1 in sum */
	bool ended; /* the rows have: there is nothing to go on with */
};

/* Weights as another process maps them. */
struct backend_lent {
	uint64_t bytes;
	int fd; /* borrowed: of host memory that nobody can write any more, or of the device's */
	bool on_device;
	uint8_t device[BACKEND_DEVICE_BYTES]; /* its UUID */
};

/* What a program takes beside its weights, of so many rows. */
struct backend_program_cost {
	double fixed_ns; /* of a run of one row through all layers, the weights read once */
	double head_ns; /* of these: the head */
	/* of each row more: of the first ones the reading of weights hides a part */
	double hidden_row_ns, row_ns;
	uint32_t hidden_rows;
	double wanted_ns; /* and of each row more whose results are wanted */
	/* attention of a prompt's rows, where they are more, takes as long as that of a multiple;
	 * 0: as long as theirs */
	uint32_t attend_rows;
	uint64_t scratch_bytes; /* of so many rows at most */
};

struct backend_program_ops {
	uint32_t max_rows; /* of a run */
	/* A run of so many rows takes as long as one of these, which are as many or more. */
	uint32_t (*rows_as)(uint32_t n_rows);
	/* run computes, and returns when it has: whoever has others to look after asks for little
	 * at a time, and gets that, also of a layer's attention. Others begin what completed tells
	 * the end of. */
	bool holds;
	uint64_t weights_grain; /* their memory is given in multiples of it, a power of two */
	/* Memory for weights, that nothing else is taken from: bytes, aligned to PROGRAM_ALIGN;
	 * some backends bring it as it is put. 0 or -ENOMEM. Blocks, for moments; any thread. */
	MUST_CHECK int (*weights_new)(struct backend *b, uint64_t bytes,
				      struct backend_weights **ret);
	/* from is the caller's again when it returns. Blocks; any thread, one at a time for the
	 * same weights. 0, -ENOMEM, -EIO: they are of no use any more. */
	MUST_CHECK int (*weights_put)(struct backend *b, struct backend_weights *weights,
				      uint64_t offset, const void *from, uint64_t bytes);
	/* Once all is put. They are to stay for as long as somebody has the device's open. 0,
	 * -ENOMEM, -EIO, -EOPNOTSUPP. Blocks, at first for as long as a copy of them takes; any
	 * thread, one at a time for the same weights, also while programs run. */
	MUST_CHECK int (*weights_lend)(struct backend *b, struct backend_weights *weights,
				       struct backend_lent *ret);
	/* No program of theirs is left. NULL is fine. */
	void (*weights_free)(struct backend *b, struct backend_weights *weights);
	/* program_check has passed it; it is borrowed for as long. 0; -ENOMEM; -EOPNOTSUPP and a
	 * sentence. Blocks. */
	MUST_CHECK int (*program_new)(struct backend *b, const struct program *program,
				      struct backend_weights *weights, struct backend_program **ret,
				      char why[PROGRAM_WHY_BYTES]);
	/* So many bytes program_new takes of a device, before there is one; 0: it is refused.
	 * NULL: it takes none. */
	uint64_t (*program_bytes)(struct backend *b, const struct program *program);
	/* Gets ready for one more of the numbers of rows that runs have, which takes milliseconds
	 * of the first run that has it otherwise. No run is under way. False: it was the last.
	 * NULL: there is nothing to get ready for. */
	bool (*program_prepare)(struct backend *b, struct backend_program *program);
	/* Nothing of it is under way. NULL is fine. */
	void (*program_free)(struct backend *b, struct backend_program *program);
	/* Starts a run, which does something of what is left, however little most_ns is. 0, -ESTALE
	 * as submit, or -errno: after an error nothing is under way, and the rows' earlier segments
	 * are gone. */
	MUST_CHECK int (*run)(struct backend *b, const struct backend_run *run,
			      struct backend_ran *ret);
	/* Of the run that was begun last, by its id: the last rows of its head are on their way,
	 * and what comes of them soon there. Does not block. NULL: nobody knows. */
	bool (*is_ending)(struct backend *b, uint64_t id);
	void (*cost)(struct backend *b, const struct backend_program *program,
		     struct backend_program_cost *ret);
};

/* ---- for backends ---------------------------------------------------------------------------- */

/* What comes next of some rows: an operation of a layer; behind the last layer the head. */
struct program_cursor {
	uint32_t layer, op; /* op: in the layer's kind */
	uint32_t part; /* of the operation, where the backend cuts it */
};

/* Rows that are under way between two segments; n_rows 0: none are. */
struct program_progress {
	uint32_t n_rows;
	struct program_cursor cursor;
	struct program_cursor counted; /* what is before it is in part */
	double part; /* of all that they take: what is behind them */
	double part_before; /* of that, by the runs before */
};

/* Whether a run goes on from there, or begins anew, and nothing of it leads outside. */
MUST_CHECK bool program_run_fits(const struct program *p, const struct backend_run *run,
				 const struct program_progress *progress, uint32_t max_rows);

static inline bool program_is_at_head(const struct program *p, const struct program_cursor *cursor)
{
	return cursor->layer == p->shape.n_layers;
}

/* Not of the head. */
static inline const struct program_op *program_op_at(const struct program *p,
						     const struct program_cursor *cursor)
{
	return &p->ops[p->kinds[p->kind_of[cursor->layer]].first_op + cursor->op];
}

/* Not behind the head. */
void program_cursor_next(const struct program *p, struct program_cursor *cursor);

/* What operations of a run are expected to take. */
struct program_times {
	const struct program *p;
	const struct backend_run_ns *expected;
	double element_ns; /* of a matrix; each operation takes at least as long as one */
	double all_ns;
};

void program_times_init(struct program_times *t, const struct program *p,
			const struct backend_run *run);
/* Of what comes next. */
double program_times_ns(const struct program_times *t, const struct program_cursor *cursor);
/* The same as a part of all, and that of all operations from one to another, later one. */
double program_times_part(const struct program_times *t, const struct program_cursor *cursor);
double program_times_between(const struct program_times *t, struct program_cursor from,
			     const struct program_cursor *to);

/* Of matrices, each once. */
struct program_reads {
	uint64_t elements, bytes;
};

struct program_reads program_layers_reads(const struct program *p);
struct program_reads program_head_reads(const struct program *p);

#endif
