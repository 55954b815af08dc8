/* scheduler.h - the scheduler whole, for the verbs and round.c, which reach every part of it. The
 * scheduler's thread alone, but where it says otherwise. */
#ifndef COPPICED_SCHEDULER_H
#define COPPICED_SCHEDULER_H

#include "daemon/sched/core/core.h"
#include "daemon/sched/core/doorbell.h"
#include "daemon/sched/core/extents_ahead.h"
#include "daemon/sched/long/streamed.h"
#include "daemon/sched/run/batch.h"
#include "daemon/sched/run/batch_window.h"
#include "daemon/sched/run/fit.h"
#include "daemon/sched/seq/wait.h"
#include "daemon/sched/step/input_wait.h"
#include "daemon/sched/step/lanes.h"
#include "daemon/sched/token/passes.h"
#include "tiers.h"

#include <pthread.h>

struct sched {
	struct sched_core core;
	struct doorbell doorbell;
	struct lanes lanes;
	struct input_wait input_wait;
	struct window window;
	struct batch batch;
	struct fit fit;
	struct passes passes;
	struct streamed streamed;
	struct waits waits;
	struct sched_tiers tiers;

	struct sched_session_list sessions; /* owned */
	struct sched_session_list ended_sessions; /* owned: whose device arenas may still be open */
	struct sched_model_list models; /* owned */
	uint32_t n_sessions;
	uint32_t *leaving; /* owned, room for all: extents that go when the backend is at nothing */
	uint32_t n_leaving;
	struct extents_ahead ahead; /* extents that nobody has yet */
	uint64_t n_model_lists; /* counts: model->listed_in */
	bool warned_of_time_slices; /* of clients without MPS */

	bool prefill_turn; /* the last batch was decode */
	bool pass_turn; /* what began last was a batch, and no pass */
	/* until then batches wait for a user whose turn it is, and passes do; 0: for none */
	uint64_t awaited_ns, awaited_by_pass_ns;
	uint64_t active_ns; /* when there last was something to do */
	uint64_t spin_ns, spin_look_ns; /* how long to spin; when to decide anew */
	struct abi_board *board; /* borrowed; this thread writes its words */
	pthread_t thread;
	bool started;
	_Atomic bool stopping; /* loop -> scheduler */
	_Atomic uint64_t rounds; /* scheduler -> loop */
};

static inline bool backend_is_at_work(const struct sched *s)
{
	return s->batch.in_flight || s->passes.in_flight || s->streamed.in_flight;
}

#endif
