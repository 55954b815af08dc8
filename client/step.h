/* step.h - steps as the lane's entries have them. */
#ifndef COPPICE_CLIENT_STEP_H
#define COPPICE_CLIENT_STEP_H

#include "lane.h"
#include "submit.h"

/* 0, or what is wrong with it as a whole; explains. */
int step_check(struct coppice *c, const struct coppice_step *step);
/* Its sequences' records, [step->n_seqs]. 0 or -EINVAL; explains. */
int step_records(struct coppice *c, const struct coppice_step *step, struct abi_step_seq *ret);

#endif
