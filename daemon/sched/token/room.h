/* room.h - what of a pass is still to be had, and who has it. */
#ifndef COPPICED_ROOM_H
#define COPPICED_ROOM_H

#include "passes.h"

struct room {
	const struct sched_model *model;
	const struct backend_program_ops *program; /* the backend's */
	uint32_t rows, n_taken, n_wanted;
	double ns; /* left of what decode may take, then of what prompts may */
	double budget_ns;
	double parts; /* of these, that decode may take */
	double decode_ns; /* what the pass takes without prompts; 0: it has no decode */
	double layer_ns; /* what attention of one layer may take */
	double fear; /* of attention: times that it may take longer than the rest */
	double taken_ns;
	double attend_ns; /* of these, the attention of one layer */
	uint32_t segment_tokens; /* by which paths are cut */
	uint64_t partials_bytes; /* that it leaves to be merged */
	double plan_ns; /* left to plan for all of it, in one piece, on the scheduler's thread */
	uint32_t n_lanes; /* that have rows of it */
	uint32_t n_of_lane; /* rows of the lane that is being looked at */
	bool first_prompt; /* the prompt that is being looked at is the pass's first */
	bool foreseen; /* it is the next pass's, of which nothing is taken */
	bool unclear; /* where something of it will lie cannot be told */
	uint32_t alone_rows; /* a prompt that is alone may take longer for so many; 0: it is not */
	bool halved; /* decode's user has had more than that of a prompt */
	uint64_t paths; /* that were read by who is in it */
	uint32_t n_nodes; /* of these */
};

/* Of what is taken: results, and attention of all layers. */
double room_results_ns(const struct room *room);
double room_attention_ns(const struct room *room);

void room_begin(struct passes *p, const struct sched_model *model, struct room *ret);
/* The pass has rows of those who wait for the model; whose cannot be had have failed. 0 or -ENOMEM,
 * nobody taken. */
MUST_CHECK int room_fill(struct passes *p, struct room *room);

/* What the pass after the one that is under way is expected to have: of those who wait, of what
 * prompts in it have left, and of those who come again; p->next is that. Returns whether prompts
 * are among them: without, or where it cannot be told, or takes too long or was done too often,
 * p->next is nothing. */
bool room_foresee(struct passes *p);
/* What tokens of that will lie in gets memory, one extent a call: the driver takes a while for
 * each, and others wait for the scheduler. Returns whether one did. */
bool room_get_ready(struct passes *p);

/* The first of its sequences whose path is not all on the device; as many as it has: all are. */
uint32_t room_absent_part(const struct sched_lane *lane);

#endif
