/* serve.c - requests of the loop: what is made of one's answer, and how many go in a round. */
#include "serve.h"

#include "proto/clock.h"

#define REQUESTS_A_ROUND 8
#define REQUESTS_NS (2 * NS_PER_MS) /* no further one begins in the round */

static void serve(struct sched *s, struct sched_request *request)
{
	int r = request->serve(s, request);

	if (r == SCHED_LATER)
		return;
	if (r == SCHED_AGAIN) {
		requests_again(&s->core.requests, request);
		return;
	}
	request->code = r;
	requests_answer(&s->core.requests, request);
}

bool serve_requests(struct sched *s)
{
	uint64_t until_ns = s->core.now_ns + REQUESTS_NS;
	struct sched_request *request;
	int n = 0;

	while (requests_any(&s->core.requests) && n < REQUESTS_A_ROUND) {
		request = requests_take(&s->core.requests, s->passes.n_under_way > 0 ? s : NULL);
		if (!request)
			break;
		n += request->slow ? REQUESTS_A_ROUND : 1;
		s->core.now_ns = core_clock(&s->core); /* time limits begin now */
		serve(s, request);
		s->core.next_tick_ns = 0; /* it may have made a claim or a pin */
		if (s->core.now_ns >= until_ns)
			break;
	}
	return n > 0;
}
