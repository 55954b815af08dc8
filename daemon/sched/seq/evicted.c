/*
 * evicted.c - see evicted.h. In a full pool every page costs another, so a session has a line with
 * the first, and then one now and then with all since.
 */
#include "evicted.h"

#include "daemon/base/log_user.h"
#include "proto/clock.h"

#include <inttypes.h>

#define LINE_NS (30 * NS_PER_S)

void evicted_say(const struct sched_core *core, struct sched_session *session)
{
	struct sched_evicted *evicted = &session->evicted;

	if (evicted->n_pages == 0)
		return;
	log_user((uid_t)session->domain,
		 "session %" PRIu64 ": %" PRIu64 " idle pages were evicted for its KV", session->id,
		 evicted->n_pages);
	evicted->n_pages = 0;
	evicted->line_ns = core->now_ns + LINE_NS;
}

int seq_extend(struct sched_core *core, struct sched_seq *seq, const uint32_t *tokens, uint32_t n,
	       bool draft)
{
	struct sched_evicted *evicted = &seq->session->evicted;
	uint64_t before = store_pages_evicted(core->store);
	int r = store_seq_extend(seq->store, tokens, n, draft, core->now_ns);

	evicted->n_pages += store_pages_evicted(core->store) - before;
	if (core->now_ns >= evicted->line_ns)
		evicted_say(core, seq->session);
	return r;
}
