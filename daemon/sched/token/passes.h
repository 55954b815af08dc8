/*
 * passes.h - tokens of programs, run: one pass takes rows of everybody who waits through all layers
 * of a model, and reads its weights once for all of them.
 *
 *      AWAITING_PASS --passes_begin--> extended, planned, run --passes_poll--> published
 *            ^                                                                 |      \
 *            +------------------------- more tokens ---------------------------+       FREE
 *
 * Decode goes first, prompts have what is left: both by what rows are modelled to take, within some
 * times what the weights take to be read, or the budget. Whom there is no room for goes with a pass
 * to come, by turns of users, then of sessions. While others compute their layers themselves a pass
 * is run in short segments, and the backend is theirs in between. While others want tokens of
 * another program segments are not long, and a pass of theirs comes between two: where they have
 * had less (pass_turns.c). Of a backend that holds the scheduler's thread while it computes
 * segments are never long.
 */
#ifndef COPPICED_PASSES_H
#define COPPICED_PASSES_H

#include "daemon/sched/run/job.h"
#include "kernels/program/backend_program.h"

/* A lane that waits for a pass. */
struct pass_candidate {
	struct sched_lane *lane;
	bool decode;
	double user_ns, session_ns; /* what they have had */
	uint64_t moved;
};

/* Who waits for a pass: others, if it differs, as who comes is the last and has moved since. */
struct pass_waiting {
	uint32_t n;
	uint64_t last_moved;
};

/* One that has begun, until it ends. */
struct pass {
	struct batch_job job; /* of its lanes, which are IN_PASS */
	uint64_t number; /* p->number when it began */
	bool under_way; /* it has begun, and not ended */
	bool goes_on; /* the backend has had a segment of it, however little that was */
	bool announced; /* that it is about to end */
	uint32_t n_rows; /* of those who are in it */
	uint32_t n_foreseen; /* how often the next one was thought of */
	double ns; /* what it is modelled to take */
	double attention_ns, fear; /* of that; and times that this may be too much */
	struct longer_parts parts; /* of that */
	struct backend_run_ns expected; /* the same, as it will be by all that is known */
	double ran_ns; /* the same of its segments so far: more where it began anew */
	uint64_t took_ns; /* with the backend, so far */
	uint64_t gap_ns; /* since the model's pass before it; 0: another's ran since */
};

struct passes {
	struct sched_core *core; /* borrowed */
	struct plans *plans; /* borrowed */
	struct pass all[BACKEND_PROGRAMS_AT_ONCE];
	struct pass *now; /* of these: whose segments the backend has; under way, if any is */
	uint32_t n_under_way; /* with now; others of these are aside */
	uint64_t number; /* passes ever begun */
	uint64_t last_number, last_ns; /* of the one that ended last; when it did */
	const struct sched_model *last_model; /* its; NULL: gone, or a segment has run since */
	uint64_t held_until_ns; /* the next one is to wait for company until then; 0: not */
	uint64_t alone_until_ns; /* newcomers do not wait for others: some have in vain */
	struct pass_candidate *candidates; /* owned, grows */
	uint32_t n_candidates, candidates_room;
	struct next_job next; /* what the next one is expected to have */
	bool gets_ready; /* that still gets memory */
	struct pass_waiting seen; /* who waited when that was thought of */
	bool in_flight; /* the backend has a segment */
	struct backend_ran ran; /* what came of the last one */
	/* of the segment; owned, grow */
	uint32_t *ids, *positions;
	struct program_wanted *wanted;
	uint32_t ids_room, positions_room, wanted_room;
	struct program_rows rows;
	struct backend_job planned; /* the job as the backend has it */
	uint64_t begun_ns; /* when it went there */
};

void passes_init(struct passes *p, struct sched_core *core, struct plans *plans);
void passes_done(struct passes *p);
/* The model is about to go. */
void passes_forget_model(struct passes *p, const struct sched_model *model);

/* Goes on with a pass that is under way; else, or where others cut in, starts the next one of what
 * waits, unless it is better to wait for company. Returns whether anything has been done. */
bool passes_begin(struct passes *p);
/* Finishes the segment, and with the last one the pass, if the backend has; else gets some of the
 * next one ready. Returns whether anything has been done. */
bool passes_poll(struct passes *p);
/* The backend is gone: the entries of all passes that are under way fail. */
void passes_fail(struct passes *p);
/* When to look again whether company has come; UINT64_MAX: nobody is waited for. */
uint64_t passes_deadline_ns(const struct passes *p);

#endif
