/* job_wide.h - a job that has a plan's other sequences, too: they come with no token. */
#ifndef COPPICED_JOB_WIDE_H
#define COPPICED_JOB_WIDE_H

#include "job.h"

/* The job has a row for each of the plan's sequences from now on, if its own are among them, the
 * others are still there, and these rows are within what is to spare. False: it is as it was. */
bool job_widen(struct plans *p, struct batch_job *job, const struct plan *plan);

#endif
