/* prefill.c - what goes when it is prefill's turn: a slice with a batch, or a leg of its own. */
#include "prefill.h"

#include "daemon/sched/step/step_end.h"

#include <errno.h>

bool prefill_choose(struct streamed *streamed, struct batch *batch)
{
	struct sched_lane *lane = streamed_next_turn(streamed);

	if (!lane)
		return false;
	if (lane->step.kind == STEP_STREAMED) {
		streamed_begin(streamed, lane);
		return false;
	}
	if (batch_add_slice(batch, lane) == 0)
		return true;
	step_fail(batch->core, lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	return false;
}
