/*
 * candidates.c - who may go with a pass, and in which order: by turns of users, then of sessions,
 * then by how long they wait. Decode and prompts are told apart by what an entry has left.
 */
#include "candidates.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/turns.h"

#include <errno.h>
#include <stdlib.h>

#define DECODE_ROWS 16u /* an entry that has no more tokens left is no prompt; of drafts: */
#define DECODE_DRAFT_ROWS ABI_DECODE_DRAFT_MAX

static bool is_decode(const struct sched_lane *lane)
{
	return decode_tokens_left(lane) <= (lane->decode.parents ? DECODE_DRAFT_ROWS : DECODE_ROWS);
}

/* Of an entry that is all in the pass under way: does one more token of each follow? */
static bool comes_again(const struct sched_lane *lane)
{
	if (!lane->decode.want || lane->decode.parents)
		return false;
	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		if (lane->decode.parts[i].n_new != 1)
			return false;
	return true;
}

uint32_t candidate_left_behind(const struct sched_lane *lane)
{
	return decode_tokens_left(lane) - (lane->state == STEP_IN_PASS ? lane->decode.n_rows : 0);
}

static bool will_decode(const struct sched_lane *lane)
{
	return candidate_left_behind(lane) <=
	       (lane->decode.parents ? DECODE_DRAFT_ROWS : DECODE_ROWS);
}

static int by_turn(const void *a, const void *b)
{
	const struct pass_candidate *x = a, *y = b;

	if (x->user_ns != y->user_ns)
		return x->user_ns < y->user_ns ? -1 : 1;
	if (x->session_ns != y->session_ns)
		return x->session_ns < y->session_ns ? -1 : 1;
	return x->moved < y->moved ? -1 : x->moved > y->moved;
}

/* Who is in a pass comes behind those who wait. */
static int candidate_add(struct passes *p, struct sched_lane *lane)
{
	bool waits = lane->state == STEP_AWAITING_PASS;

	if (GROW(p->candidates, p->candidates_room, p->n_candidates + 1) < 0)
		return -ENOMEM;
	p->candidates[p->n_candidates++] =
		(struct pass_candidate){.lane = lane,
					.decode = waits ? is_decode(lane) : will_decode(lane),
					.user_ns = user_had_ns(p->core, lane->session->user),
					.session_ns = session_had_ns(lane->session),
					.moved = waits ? lane->moved : UINT64_MAX};
	return 0;
}

int candidates_find(struct passes *p, const struct sched_model *model, bool foreseen)
{
	const struct step_queues *steps = &p->core->steps;
	struct sched_lane *lane;
	int r = 0;

	p->n_candidates = 0;
	TAILQ_FOREACH (lane, &steps->lanes[STEP_AWAITING_PASS], state_link)
		if (lane->step.model == model && r == 0)
			r = candidate_add(p, lane);
	TAILQ_FOREACH (lane, &steps->lanes[STEP_IN_PASS], state_link)
		if (foreseen && lane->step.model == model && r == 0 &&
		    (candidate_left_behind(lane) > 0 || comes_again(lane)))
			r = candidate_add(p, lane);
	qsort(p->candidates, p->n_candidates, sizeof(*p->candidates), by_turn);
	return r;
}

const struct pass_candidate *candidates_first(const struct passes *p, bool decode)
{
	for (uint32_t i = 0; i < p->n_candidates; i++)
		if (p->candidates[i].decode == decode)
			return &p->candidates[i];
	return NULL;
}
