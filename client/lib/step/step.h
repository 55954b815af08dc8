/* step.h - steps as the lane's entries have them. */
#ifndef COPPICE_CLIENT_STEP_H
#define COPPICE_CLIENT_STEP_H

#include "client/lib/lane/submit.h"

/* 0, or what is wrong with it as a whole; explains. */
MUST_CHECK int step_check(struct coppice *c, const struct coppice_step *step);
/* Its sequences' records, [step->n_seqs]. 0 or -EINVAL; explains. */
MUST_CHECK int step_records(struct coppice *c, const struct coppice_step *step,
			    struct abi_step_seq *ret);
/* All but the publication: checks, room, records. As submit_begin, or -EINVAL; explains. */
MUST_CHECK int step_prepare(struct coppice_lane *lane, const struct coppice_step *step,
			    struct reservation *ret);
/* The entry that publishes it, for submit_end; a stream adds its flags. */
struct abi_entry step_entry(const struct coppice_step *step);

#endif
