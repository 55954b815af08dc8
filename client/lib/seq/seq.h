/* seq.h - a sequence as this side knows it: a handle, and the shape of its model's rows. */
#ifndef COPPICE_CLIENT_SEQ_H
#define COPPICE_CLIENT_SEQ_H

#include "client/lib/connection/call.h"
#include "client/lib/base/list.h"
#include "client/lib/connection/model.h"

/* What the daemon was asked about a sequence's prompt and has not answered. */
enum seq_question {
	SEQ_UNASKED,
	SEQ_ASKED, /* by coppice_seq_wait_async */
	SEQ_OVERDUE, /* coppice_seq_wait has given up, but its answer will come */
};

struct coppice_seq {
	struct list link; /* in the lane's seqs */
	struct coppice_lane *lane;
	uint64_t handle;
	struct model model;
	struct coppice_match match; /* as the daemon last told */
	enum seq_question asked;
	struct pending question; /* where it was asked */
};

/* A sequence on a lane under a handle that the daemon gave. NULL: out of memory. */
MUST_CHECK struct coppice_seq *seq_new(struct coppice_lane *lane, uint64_t handle,
				       const struct model *model);
/* Tokens go behind what is cached, which a question that is not answered yet may change. 0, or
 * -EBUSY, explained for the function what. */
MUST_CHECK int seq_check_unasked(struct coppice_seq *seq, const char *what);
/* Tells the daemon that a handle is not wanted any more. Blocks for a message and its answer. */
void seq_release(struct coppice *c, uint64_t handle);
struct coppice_match seq_match_of(const Coppice__SeqReply *reply);
/* Frees a lane's sequences without asking the daemon. */
void seq_drop_all(struct coppice_lane *lane);

#endif
