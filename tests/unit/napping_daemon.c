/*
 * napping_daemon.c - daemon/sched/rest.c and daemon/sched/seq/complete.c with a lane in front of
 * them and a doorbell behind.
 *
 * Those two are the daemon's own; what stands here is what they call. All is as at the beginning
 * whenever the program begins: it is run again and again.
 */
#include "napping_daemon.h"

#include "daemon/sched/rest.h"
#include "daemon/sched/seq/complete.h"
#include "proto/ring.h"
#include "tso.h"

#include <sys/socket.h>

static struct sched sched;
static struct sched_session session;
static struct sched_lane lane;
static struct abi_board *board;
static struct abi_lane *shared;
static uint64_t n_entries;
static bool has_descriptor;

void napping_daemon_begin(struct abi_board *its_board, struct abi_lane *its_lane, uint64_t n,
			  bool notifies)
{
	board = its_board;
	shared = its_lane;
	n_entries = n;
	has_descriptor = notifies;
}

/* ---- what rest.c and complete.c call ---- */

bool lanes_waiting(const struct lanes *l)
{
	(void)l;
	return ring_submitted(shared) != lane.accepted;
}

uint32_t lanes_active(const struct lanes *l)
{
	(void)l;
	return 1;
}

bool input_wait_soon(const struct input_wait *w)
{
	(void)w;
	return false;
}

uint64_t sched_tiers_deadline_ns(const struct sched *s)
{
	(void)s;
	return UINT64_MAX;
}

/* Without a time limit: a doorbell that is lost is lost. */
void doorbell_wait(struct doorbell *d, uint64_t for_ns)
{
	(void)d;
	(void)for_ns;
	tso_flag_await(FLAG_DOORBELL);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
	(void)fd;
	(void)bytes;
	(void)flags;
	tso_flag_set(FLAG_BYTE);
	return (ssize_t)n;
}

/* ---- the program ---- */

static void begin(void)
{
	sched = (struct sched){.board = board, .spin_look_ns = UINT64_MAX};
	sched.core.next_tick_ns = UINT64_MAX;
	sched.window.core = &sched.core;
	sched.input_wait.core = &sched.core;
	sched.passes.core = &sched.core;
	lane = (struct sched_lane){.session = &session,
				   .shared = shared,
				   .notify_fd = has_descriptor ? 0 : -1,
				   .word = ABI_LANE_WORDS};
}

void napping_daemon(void)
{
	begin();
	while (lane.accepted < n_entries) {
		if (!lanes_waiting(&sched.lanes)) {
			rest(&sched);
			continue;
		}
		lane.accepted++;
		complete_entry(&sched.core, &lane, &OUTCOME_OK);
	}
}
