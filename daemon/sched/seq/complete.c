/*
 * complete.c - an entry's end: its completion, then whoever waits for it.
 *
 * The completion is in its slot before `done` says so (proto/ring.h); the entry's word, sleepers
 * and the completion descriptor come after that, so that who is woken finds it. Nothing here waits
 * for a client, and nothing that a client holds can fail it.
 */
#include "complete.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A lane is for one thread at a time; a crowd asleep on its word is not our work to wake. */
#define SLEEPERS_MAX 16

/* Neither is inlined, so that what wakes nobody saves no registers for them. */

static __attribute__((noinline)) void wake_sleepers(struct sched_core *core,
						    struct abi_lane *shared)
{
	core_leave_out_quick(core);
	core->lanes_clock.has_taken_time = true;
	syscall(SYS_futex, ring_done_futex(shared), FUTEX_WAKE, SLEEPERS_MAX, NULL, NULL, 0);
}

/* MSG_DONTWAIT holds for this call alone; O_NONBLOCK would be the client's to clear. A full socket
 * is readable. */
static __attribute__((noinline)) void ring_descriptor(struct sched_core *core,
						      const struct sched_lane *lane)
{
	core_leave_out_quick(core);
	core->lanes_clock.has_taken_time = true;
	ssize_t r = send(lane->notify_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);

	(void)r;
}

static struct ring_completion_words success_words(const struct outcome *outcome)
{
	struct ring_completion_words words = {.value = outcome->value};
	const float shares[2] = {outcome->attended, outcome->mass};

	static_assert(sizeof(shares) == sizeof(words.detail), "one word");
	memcpy(&words.detail, shares, sizeof(shares));
	return words;
}

static struct ring_completion_words failure_words(const struct outcome *outcome)
{
	uint32_t where = min_u32(outcome->where, UINT16_MAX);

	return (struct ring_completion_words){
		.status = ring_status_word(outcome->status, (uint16_t)outcome->reason,
					   (uint16_t)where),
		.value = outcome->cause,
		.detail = outcome->value,
	};
}

void complete_entry(struct sched_core *core, struct sched_lane *lane, const struct outcome *outcome)
{
	const struct ring_completion_words words =
		outcome->status ? failure_words(outcome) : success_words(outcome);

	core->stats.entries_failed += outcome->status != 0;
	core->stats.entries++;
	lane->session->entries++;
	ring_complete(lane->shared, lane->accepted, words);
	if (lane->word < ABI_LANE_WORDS)
		ring_set_done_word(lane->shared, lane->word);
	lane->word = ABI_LANE_WORDS;
	if (ring_client_asleep(lane->shared))
		wake_sleepers(core, lane->shared);
	if (lane->notify_fd >= 0 && ring_take_notify(lane->shared))
		ring_descriptor(core, lane);
}

void complete_soon(struct sched_core *core, struct sched_lane *lane)
{
	ring_tell_soon(lane->shared, lane->accepted);
	if (ring_client_asleep(lane->shared))
		wake_sleepers(core, lane->shared);
}
