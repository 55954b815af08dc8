/*
 * backend_program.h - the part of a backend that holds weights and runs whole tokens.
 *
 *      weights_new > weights_put, piece by piece > program_new > run ... > program_free >
 *      weights_free
 *
 * A run takes rows through some layers: through all of them, or through a segment after the other,
 * so that others' steps come between. What rows are between two segments stays with the backend;
 * one program at a time has rows under way. Runs are batches to the backend: they complete in order
 * of submission with all others (backend_ops.completed).
 */
#ifndef COPPICE_BACKEND_PROGRAM_H
#define COPPICE_BACKEND_PROGRAM_H

#include "kernels/backend.h"
#include "program.h"

struct backend_weights; /* each backend's own */
struct backend_program; /* the same */

/* All rows of a program's sequences in a batch. Pointers stay valid until it is complete. */
struct backend_run {
	struct backend_program *program;
	/* Tree, list and plan as of any job; of its io, slots alone. Its layer is not looked at. */
	const struct backend_job *job;
	const struct program_rows *rows;
	uint32_t first_layer, n_layers; /* from layer 0 rows begin anew; at the last they end */
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
	/* of each row more: of the first ones the reading of weights hides a part */
	double hidden_row_ns, row_ns;
	uint32_t hidden_rows;
	double wanted_ns; /* and of each row more whose results are wanted */
	uint64_t scratch_bytes; /* of so many rows at most */
};

struct backend_program_ops {
	uint32_t max_rows; /* of a run */
	uint32_t whole_rows; /* a run of more takes as long as one of the next multiple of it */
	uint64_t weights_grain; /* their memory is given in multiples of it, a power of two */
	/* Memory for weights, that nothing else is taken from: bytes, aligned to PROGRAM_ALIGN;
	 * some backends bring it as it is put. 0 or -ENOMEM. Blocks, for moments; any thread. */
	int (*weights_new)(struct backend *b, uint64_t bytes, struct backend_weights **ret);
	/* from is the caller's again when it returns. Blocks; any thread, one at a time for the
	 * same weights. 0, -ENOMEM, -EIO: they are of no use any more. */
	int (*weights_put)(struct backend *b, struct backend_weights *weights, uint64_t offset,
			   const void *from, uint64_t bytes);
	/* Once all is put. They are to stay for as long as somebody has the device's open. 0,
	 * -ENOMEM, -EIO, -EOPNOTSUPP. Blocks, at first for as long as a copy of them takes; any
	 * thread, one at a time for the same weights, also while programs run. */
	int (*weights_lend)(struct backend *b, struct backend_weights *weights,
			    struct backend_lent *ret);
	/* No program of theirs is left. NULL is fine. */
	void (*weights_free)(struct backend *b, struct backend_weights *weights);
	/* program_check has passed it; it is borrowed for as long. 0; -ENOMEM; -EOPNOTSUPP and a
	 * sentence. Blocks. */
	int (*program_new)(struct backend *b, const struct program *program,
			   struct backend_weights *weights, struct backend_program **ret,
			   char why[PROGRAM_WHY_BYTES]);
	/* Gets ready for one more of the numbers of rows that runs have, which takes milliseconds
	 * of the first run that has it otherwise. No run is under way. False: it was the last.
	 * NULL: there is nothing to get ready for. */
	bool (*program_prepare)(struct backend *b, struct backend_program *program);
	/* Nothing of it is under way. NULL is fine. */
	void (*program_free)(struct backend *b, struct backend_program *program);
	/* Starts a run. ret_id as submit's. 0, -ESTALE as submit, or -errno: after an error nothing
	 * is under way, and the rows' earlier segments are gone. */
	int (*run)(struct backend *b, const struct backend_run *run, uint64_t *ret_id);
	void (*cost)(struct backend *b, const struct backend_program *program,
		     struct backend_program_cost *ret);
};

/* ---- for backends ---------------------------------------------------------------------------- */

/* Rows that are under way between two segments; n_rows 0: none are. */
struct program_progress {
	uint32_t n_rows, next_layer;
};

/* Whether a run goes on from there, or begins anew, and nothing of it leads outside. */
MUST_CHECK bool program_run_fits(const struct program *p, const struct backend_run *run,
				 const struct program_progress *progress, uint32_t max_rows);
/* After the run. */
struct program_progress program_progress_of(const struct program *p, const struct backend_run *run);

/* Of matrices, each once. */
struct program_reads {
	uint64_t elements, bytes;
};

struct program_reads program_layers_reads(const struct program *p);
struct program_reads program_head_reads(const struct program *p);

#endif
