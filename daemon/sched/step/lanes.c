/*
 * lanes.c - a round's look at all rings, and an entry's way out of one.
 *
 * A ring is hostile memory: `submitted` is read once, an entry and its body are copied once, and
 * what was copied is checked and used. A lane whose words make no sense gets one answer and is
 * never looked at again. Entries complete in order, as nothing behind a step is taken before the
 * lane is free.
 */
#include "lanes.h"

#include "daemon/sched/core/users.h"
#include "daemon/sched/seq/complete.h"
#include "decode_check.h"
#include "entry.h"
#include "step_check.h"
#include "step_end.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_A_TURN 16 /* of one lane, then the next lane's */
/* Of one user in a round, or for so long, but for steps: of those a lane has one at a time. */
#define USER_ENTRIES 256u
#define USER_NS UINT64_C(200000)
#define ACTIVE_NS UINT64_C(10000000)

void lanes_done(struct lanes *l)
{
	free(l->polls);
}

int lane_add(struct lanes *l, struct sched_session *session, uint32_t number,
	     struct abi_lane *shared, int notify_fd)
{
	struct lane_poll *polls = realloc(l->polls, (l->n + 1) * sizeof(*polls));
	struct sched_lane *lane = calloc(1, sizeof(*lane));
	uint8_t *body = malloc(ABI_BODY_MAX_BYTES);

	if (polls)
		l->polls = polls;
	if (!polls || !lane || !body) {
		free(body);
		free(lane);
		return -ENOMEM;
	}
	lane->body = body;
	lane->session = session;
	lane->number = number;
	lane->serial = ++l->last_serial;
	lane->shared = shared;
	lane->notify_fd = notify_fd;
	lane->word = ABI_LANE_WORDS;
	lane->poll = l->n;
	l->polls[l->n++] = (struct lane_poll){.submitted = &shared->submitted, .lane = lane};
	TAILQ_INSERT_TAIL(&l->core->lanes, lane, link);
	TAILQ_INSERT_TAIL(&l->core->steps.lanes[STEP_FREE], lane, state_link);
	l->core->steps.n[STEP_FREE]++;
	l->core->steps.n_lanes++;
	LIST_INSERT_HEAD(&session->lanes, lane, session_link);
	session->n_lanes++;
	return 0;
}

void lane_remove(struct lanes *l, struct sched_lane *lane)
{
	struct lane_poll last = l->polls[--l->n];

	assert(lane->state == STEP_FREE && !lane->n_seqs && !lane->is_away);
	l->polls[lane->poll] = last;
	last.lane->poll = lane->poll;
	TAILQ_REMOVE(&l->core->lanes, lane, link);
	TAILQ_REMOVE(&l->core->steps.lanes[STEP_FREE], lane, state_link);
	l->core->steps.n[STEP_FREE]--;
	l->core->steps.n_lanes--;
	l->core->steps.changed = true;
	LIST_REMOVE(lane, session_link);
	lane->session->n_lanes--;
	free(lane->step.parts);
	free(lane->decode.parts);
	free(lane->body);
	free(lane);
}

/* The pair of words of an entry that has one and is a step of this ticket; else the lane has none,
 * as its last entry left it. */
static void find_word(struct sched_lane *lane, const struct abi_entry *e)
{
	if (e->flags & ABI_STEP_WORDS && e->kind == ABI_STEP && e->ticket == lane->accepted &&
	    e->arg < ABI_LANE_WORDS)
		lane->word = (uint32_t)e->arg;
}

void lane_shut_down(struct lanes *l, struct sched_lane *lane, struct outcome outcome)
{
	uint64_t submitted = ring_submitted(lane->shared);

	if (lane->state != STEP_FREE)
		step_fail(l->core, lane, outcome);
	if (lane->broken || submitted - lane->accepted > ABI_LANE_SLOTS)
		return;
	while (lane->accepted < submitted) {
		struct abi_entry entry;

		lane->accepted++;
		ring_copy_entry(lane->shared, lane->accepted, &entry);
		find_word(lane, &entry);
		complete_entry(l->core, lane, &outcome);
	}
}

/* The one copy of the body. The client may scribble while we copy: we check what we got. */
static bool copy_body(struct sched_lane *lane, const struct abi_entry *e)
{
	if (e->body_bytes == 0)
		return true;
	if (e->body_bytes > ABI_BODY_MAX_BYTES || e->body % 8 ||
	    e->body > ABI_BODY_ARENA_BYTES - e->body_bytes)
		return false;
	memcpy(lane->body, lane->shared->bodies + e->body, e->body_bytes);
	return true;
}

/* Of steps and tokens it is how these are checked. */
static struct outcome do_entry(struct sched_core *core, struct sched_lane *lane,
			       const struct abi_entry *e)
{
	if (e->ticket != lane->accepted)
		return outcome_bad(-EPROTO, ABI_BAD_TICKET, 0);
	if (!copy_body(lane, e))
		return outcome_bad(-EINVAL, ABI_BAD_BODY, 0);
	if (e->kind == ABI_STEP)
		return step_check(core, lane, e);
	if (e->kind == ABI_DECODE)
		return decode_check(core, lane, e);
	if (e->kind >= ABI_N_KINDS)
		return outcome_bad(-EINVAL, ABI_BAD_KIND, 0);
	if (e->kind == ABI_NOP)
		return OUTCOME_OK;
	core->lanes_clock.has_taken_time = true;
	return entry_do(core, lane, e);
}

/* Its body may have been long. */
static void complete_timed(struct sched_core *core, struct sched_lane *lane,
			   const struct outcome *outcome)
{
	core->lanes_clock.has_taken_time = true;
	complete_entry(core, lane, outcome);
}

/* Nothing of it is to be looked at. */
static bool is_plain(const struct sched_lane *lane, const struct abi_entry *e)
{
	return e->kind == ABI_NOP && e->ticket == lane->accepted && e->body_bytes == 0;
}

/* Completes the entry, or has the lane hold it. Not inlined, so that plain ones save no registers
 * for it. */
static __attribute__((noinline)) void serve_entry(struct lanes *l, struct sched_lane *lane,
						  const struct abi_entry *e)
{
	find_word(lane, e);
	core_leave_out_quick(l->core);
	struct outcome outcome = do_entry(l->core, lane, e);
	bool is_taken = outcome.status == 0;

	if (lane->word < ABI_LANE_WORDS || (is_taken && e->kind == ABI_STEP))
		input_wait_begin(l->input_wait, lane, &outcome);
	else if (is_taken && e->kind == ABI_DECODE)
		step_move(&l->core->steps, lane, STEP_AWAITING_PASS);
	else
		complete_timed(l->core, lane, &outcome);
}

/* `submitted` only grows, and by no more than the ring holds; anything else is no client of ours.
 * One answer, no more. */
static bool is_sane(struct lanes *l, struct sched_lane *lane, uint64_t submitted)
{
	if (submitted >= lane->accepted && submitted - lane->accepted <= ABI_LANE_SLOTS)
		return true;
	const struct outcome outcome = outcome_bad(-EPROTO, ABI_BAD_TICKET, 0);

	lane->broken = true;
	lane->accepted++;
	complete_entry(l->core, lane, &outcome);
	return false;
}

/* Walks a whole path: no more of them before others' turn. */
static bool is_long(const struct abi_entry *e)
{
	return e->kind == ABI_FORK || e->kind == ABI_TRIM;
}

static void note_time(struct lanes *l, struct sched_user *user)
{
	uint64_t since_ns = l->core->lanes_clock.read_ns;

	core_read_lanes_clock(l->core);
	user->lanes_ns += l->core->lanes_clock.read_ns - since_ns;
	l->some_had_enough |= user->lanes_ns >= USER_NS;
}

/* So many of its user's were done at once, in the time since the clock was read last: a step alone
 * is no reason to read it, nor is what neither has a body nor wakes anybody. */
static void note_entries(struct lanes *l, struct sched_user *user, uint32_t n)
{
	if (user->lanes_round != l->n_rounds) {
		user->lanes_round = l->n_rounds;
		user->n_entries = 0;
		user->lanes_ns = 0;
	}
	user->n_entries += n;
	if (user->n_entries >= USER_ENTRIES)
		l->some_had_enough = true;
	if (l->core->lanes_clock.has_taken_time)
		note_time(l, user);
}

static bool serve_lane(struct lanes *l, struct sched_lane *lane)
{
	static const struct outcome plain = OUTCOME_OK;

	if (lane->state != STEP_FREE || lane->broken)
		return false;
	uint64_t submitted = ring_submitted(lane->shared);
	uint32_t n = 0;

	if (submitted == lane->accepted || !is_sane(l, lane, submitted))
		return false;
	lane->active_ns = l->core->now_ns;
	do {
		struct abi_entry entry;

		lane->accepted++;
		ring_copy_entry(lane->shared, lane->accepted, &entry);
		if (is_plain(lane, &entry))
			complete_entry(l->core, lane, &plain);
		else
			serve_entry(l, lane, &entry);
		if (lane->state != STEP_FREE)
			break;
		n++;
		if (is_long(&entry)) {
			l->some_left |= lane->accepted < submitted;
			break;
		}
	} while (n < ENTRIES_A_TURN && lane->accepted < submitted);
	if (l->several_users && n > 0)
		note_entries(l, lane->session->user, n);
	return true;
}

/* Others have lanes too, and the lane's user has had his part of this round. */
static bool has_had_enough(const struct lanes *l, const struct sched_user *user)
{
	return user->lanes_round == l->n_rounds &&
	       (user->n_entries >= USER_ENTRIES || user->lanes_ns >= USER_NS);
}

/* Of several users some have had enough: it is no turn of the lane's in this round. */
static bool is_put_off(struct lanes *l, const struct lane_poll *p)
{
	const struct sched_lane *lane = p->lane;

	if (lane->state != STEP_FREE || lane->broken || !has_had_enough(l, lane->session->user))
		return false;
	l->first = l->first < l->n ? l->first : (uint32_t)(p - l->polls);
	return true;
}

static bool serve_from(struct lanes *l, uint32_t first, uint32_t end)
{
	bool any = false;

	for (struct lane_poll *p = l->polls + first; p < l->polls + end; p++) {
		if (atomic_load_explicit(p->submitted, memory_order_relaxed) == p->accepted)
			continue;
		if (l->some_had_enough && is_put_off(l, p)) {
			any = true;
			continue;
		}
		any |= serve_lane(l, p->lane);
		p->accepted = p->lane->accepted;
	}
	return any;
}

/* Who was put off in the last round comes first. */
static bool serve_in_turns(struct lanes *l)
{
	uint32_t first = l->first < l->n ? l->first : 0;

	l->n_rounds++;
	lanes_clock_set(&l->core->lanes_clock, l->core->now_ns, l->core->stats.entries);
	l->first = UINT32_MAX;
	bool any = serve_from(l, first, l->n);

	any |= serve_from(l, 0, first);
	return any;
}

bool lanes_serve(struct lanes *l)
{
	l->several_users = users_are_several(l->core);
	l->some_had_enough = l->some_left = false;
	return l->several_users ? serve_in_turns(l) : serve_from(l, 0, l->n);
}

bool lanes_serve_again(struct lanes *l)
{
	l->some_left = false;
	return serve_from(l, 0, l->n);
}

bool lanes_waiting(const struct lanes *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		const struct lane_poll *p = &l->polls[i];

		if (p->lane->state == STEP_FREE && !p->lane->broken &&
		    atomic_load_explicit(p->submitted, memory_order_relaxed) != p->accepted)
			return true;
	}
	return false;
}

uint32_t lanes_active(const struct lanes *l)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->n; i++)
		n += l->polls[i].lane->active_ns + ACTIVE_NS > l->core->now_ns;
	return n;
}
