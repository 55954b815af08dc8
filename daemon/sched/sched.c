/*
 * sched.c - the scheduler's thread, which goes one round after the other until it is to end, and
 * what the loop's thread has of it.
 */
#include "sched.h"

#include "birth.h"
#include "rest.h"
#include "round.h"

#include "kernels/thread.h"

#include <sys/prctl.h>

#define TIMER_SLACK_NS 1000ul /* looks at streams are not to be 50 us late */

static void *sched_main(void *arg)
{
	struct sched *s = arg;

	pthread_setname_np(pthread_self(), "coppice-sched");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	while (!atomic_load_explicit(&s->stopping, memory_order_relaxed)) {
		if (sched_round(s))
			s->active_ns = s->core.now_ns;
		else
			rest(s);
	}
	return NULL;
}

static int start_thread(struct sched *s)
{
	int r = thread_start(NULL, sched_main, s, &s->thread);

	s->started = r == 0;
	return r;
}

int sched_new(const struct config *config, const struct backend_ops *ops, struct backend *backend,
	      struct abi_board *board, struct sched **ret)
{
	struct sched *s;
	int r = sched_make(config, ops, backend, board, &s);

	if (r < 0)
		return r;
	r = start_thread(s);
	if (r < 0) {
		sched_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static void wake(void *ctx)
{
	struct sched *s = ctx;

	doorbell_ring(&s->doorbell);
}

void sched_share_ledger(struct sched *s, struct ledger *ledger)
{
	ledger->wake = wake;
	ledger->wake_ctx = s;
	s->core.ledger = ledger;
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	if (s->started) {
		atomic_store(&s->stopping, true);
		doorbell_ring(&s->doorbell);
		pthread_join(s->thread, NULL);
	}
	sched_unmake(s);
}

void sched_post(struct sched *s, struct sched_request *request)
{
	requests_post(&s->core.requests, request);
	doorbell_ring(&s->doorbell);
}

struct sched_request *sched_reap(struct sched *s)
{
	return requests_reap(&s->core.requests);
}

int sched_reply_fd(const struct sched *s)
{
	return s->core.requests.reply_fd;
}

uint64_t sched_progress(const struct sched *s)
{
	const struct backend_ops *ops = s->core.ops;
	uint64_t n = atomic_load_explicit(&s->rounds, memory_order_relaxed);

	return ops->progress ? n + ops->progress(s->core.backend) : n;
}

bool sched_failed(const struct sched *s)
{
	return core_failed(&s->core);
}
