/*
 * report.h - what the agent prints: text as it comes, log probabilities, and the JSON object at the
 * end.
 */
#ifndef AGENT_REPORT_H
#define AGENT_REPORT_H

#include "agent.h"

/* A stream's newest token: on stdout where there is one stream and no --json; on stderr with
 * --logprobs. */
void report_choice(const struct agent *agent, uint32_t stream, const struct sampler_choice *choice);
/* The end of the run: several streams' texts, --ids-out, --report, --json. 0, or -errno and a
 * sentence. */
MUST_CHECK int report_end(const struct agent *agent, struct fault *fault);

#endif
