/*
 * program_phase.h - what of a run is dealt out to threads at a time. An operation is some phases,
 * one after the other, each of units; a segment ends behind any unit.
 *
 *      begin     embedding | rotations                    of a LINEAR: outputs; of all else: rows
 *      NORM      rows
 *      LINEAR    outputs
 *      ATTEND    Q, K, V handed over | begun | folded | merged | O taken
 *      head      norms | logits | results                 of some wanted rows; then of the next
 */
#ifndef COPPICE_CPU_PROGRAM_PHASE_H
#define COPPICE_CPU_PROGRAM_PHASE_H

#include "program_scratch.h"
#include "state.h"

/* A segment. */
struct program_pass {
	struct backend *b;
	struct backend_program *program;
	const struct backend_run *run;
	const struct program_op *op; /* that is under way, of a layer */
	struct linear linear; /* of a LINEAR, or of the head */
	struct backend_job job; /* of an ATTEND, with */
	struct pool_pages pages;
	struct attend_job attends;
	const struct program_wanted *wanted; /* of the head: [n_wanted], of which these are */
	uint32_t n_wanted;
};

struct program_phase {
	threads_unit unit; /* its arg is the pass; NULL: go is all of it */
	void (*go)(struct program_pass *pass);
	uint32_t n_units;
	uint32_t look_every; /* threads_job's */
	bool alone;
};

#define PROGRAM_ALONE_ELEMENTS (64u << 10) /* fewer are done before a worker is awake */

/* A unit is a row, of so many elements. */
static inline struct program_phase program_phase_of_rows(threads_unit unit, uint32_t n_rows,
							 uint32_t width)
{
	return (struct program_phase){
		.unit = unit,
		.n_units = n_rows,
		.look_every = PROGRAM_ALONE_ELEMENTS / (width + 1) + 1,
		.alone = (uint64_t)n_rows * width < PROGRAM_ALONE_ELEMENTS,
	};
}

/* Of an ATTEND. */
#define PROGRAM_ATTEND_PHASES 5u

/* Its list is in use, in the next phase. */
static inline bool program_is_attending(uint32_t phase)
{
	return phase == 2 || phase == 3;
}

/* The pass's linear. */
struct program_phase program_phase_of_linear(struct program_pass *pass);

/* Phase i of what comes next, ready to go, of a run for which there is room. False: it has no more:
 * what it leaves is known from now on. */
bool program_begin_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret);
bool program_op_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret);
bool program_head_phase(struct program_pass *pass, uint32_t i, struct program_phase *ret);

/* Of the head. */
uint32_t program_head_phases(const struct backend_run *run);

#endif
