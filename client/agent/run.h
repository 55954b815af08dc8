/*
 * run.h - a run of coppice-agent: load the model, open the prompts, compute what is missing,
 * decode, report.
 */
#ifndef AGENT_RUN_H
#define AGENT_RUN_H

#include "client/model/fault.h"
#include "options.h"

#include <signal.h>

/* The whole run; text, ids and report go where options say. Blocks. 0, or -errno and a sentence:
 * -EINTR once *stop is set. */
MUST_CHECK int run_agent(const struct options *options, const volatile sig_atomic_t *stop,
			 struct fault *fault);

#endif
