/*
 * held_program.h - a program that the daemon holds for who gave it: checked, with a reference to
 * its weights, and a name that says all of it.
 */
#ifndef COPPICED_HELD_PROGRAM_H
#define COPPICED_HELD_PROGRAM_H

#include "proto/must_check.h"
#include "daemon/weights/weights.h"

#define HELD_PROGRAM_PREFIX "program:" /* no other model has a name that begins so */
#define HELD_PROGRAM_NAME_BYTES (sizeof(HELD_PROGRAM_PREFIX) + 32)

struct held_program {
	struct program program; /* its arrays are owned, its tensors the weights' */
	struct weights *weights; /* reference */
	struct backend_program *backend; /* owned; NULL: not made yet */
	uint64_t pass_bytes; /* of the weights that a pass reads */
	uint64_t until_ns; /* it waits for room; 0: it has not had to */
	bool ready; /* nothing is left to be made ready */
	struct backend_program_cost cost; /* once it is; its scratch is booked with the weights */
	/* The prefix, and a digest in hex of everything that its KV depends on: structure, numbers,
	 * the tensors' bytes, and how this version computes. */
	char name[HELD_PROGRAM_NAME_BYTES];
};

/* A copy of what from points to, but for its tensors, which are the weights'. Takes a reference to
 * these, which are READY. 0; -ENOMEM; -EINVAL and a sentence. */
MUST_CHECK int held_program_new(const struct program *from, struct weights *weights,
				struct held_program **ret, char why[PROGRAM_WHY_BYTES]);
struct held_backend {
	const struct backend_ops *ops;
	struct backend *backend;
	uint32_t max_token_ms; /* a program that is modelled to take longer is refused */
};

/* The backend's part of it. 0; -ENOMEM, -EOPNOTSUPP, -E2BIG, -EDQUOT, -ENOSPC and a sentence;
 * -EAGAIN: its room is being made, ask again; then nothing is changed. Blocks. */
MUST_CHECK int held_program_begin(struct held_program *held, const struct held_backend *with,
				  char why[PROGRAM_WHY_BYTES]);
/* Makes its runs ready for a few of their sizes: some milliseconds. False: there is nothing left to
 * be made ready. No run is under way. */
bool held_program_prepare(struct held_program *held, const struct backend_ops *ops,
			  struct backend *backend);
/* Nothing of it is under way. NULL is fine. */
void held_program_free(struct held_program *held, const struct backend_ops *ops,
		       struct backend *backend);

#endif
