/*
 * wait.c - polling and waiting for tickets, and the sentence of one that failed.
 *
 * A waiter spins as long as the daemon advises, then sleeps on the low half of done. It sleeps in
 * slices: between them it looks whether the daemon has died, of which no futex tells. Where the
 * daemon says that it will not be long any more, it gets up and spins once again.
 */
#include "wait.h"

#include "failure.h"

#include "client/lib/base/clock.h"
#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_SLICE_NS (1 * NS_PER_MS)
#define LAST_SLICE_NS (100 * NS_PER_MS)
#define SPINS_PER_CLOCK 32
#define SOON_NS (2 * NS_PER_MS) /* what is soon done has been by then, or it is worth a sleep */

/* The completion of a ticket that is done. */
static int fetch(struct coppice_lane *lane, uint64_t ticket, struct abi_completion *ret)
{
	struct abi_completion completion;

	if (lane->submitted - ticket < ABI_LANE_SLOTS) {
		completion = ring_completion(lane->segment.shared, ticket);
		if (completion.ticket == ticket) {
			*ret = completion;
			return 0;
		}
	}
	return explain(lane->c->key, -ESTALE,
		       "ticket %llu is done, but its result is gone: it stays until 256 more have "
		       "been submitted",
		       (unsigned long long)ticket);
}

int coppice_poll(struct coppice_lane *lane, uint64_t ticket, struct coppice_result *ret)
{
	struct abi_completion completion;
	int r = lane_check_ticket(lane, ticket);

	if (r < 0)
		return r;
	if (lane_done(lane) < ticket) {
		r = connection_check_peer(lane->c);
		return r < 0 ? r : -EAGAIN;
	}
	r = fetch(lane, ticket, &completion);
	if (r < 0)
		return r;
	if (completion.status < 0)
		failure_explain(lane, &completion);
	*ret = (struct coppice_result){.ticket = ticket, .status = completion.status};
	if (completion.status < 0) {
		ret->value = completion.published;
		ret->cause = completion.cause;
	} else {
		ret->value = completion.value;
		ret->attended = completion.attended;
		ret->mass = completion.mass;
	}
	return 0;
}

const char *coppice_explain_ticket(struct coppice_lane *lane, uint64_t ticket)
{
	uint64_t key = lane->c->key;
	struct abi_completion completion;
	unsigned long long number = ticket;

	if (lane_check_ticket(lane, ticket) < 0)
		return explain_last(key);
	if (lane_done(lane) < ticket)
		explain(key, 0, "ticket %llu is still in flight", number);
	else if (fetch(lane, ticket, &completion) < 0)
		return explain_last(key);
	else if (completion.status == 0)
		explain(key, 0, "ticket %llu has not failed", number);
	else
		failure_explain(lane, &completion);
	return explain_last(key);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* For as long as the board says. */
static uint64_t advised_ns(const struct coppice_lane *lane)
{
	return NS_PER_US *
	       atomic_load_explicit(&lane->c->board->client_spin_us, memory_order_relaxed);
}

/* True: the ticket is done. */
static bool spin(struct coppice_lane *lane, uint64_t ticket, uint64_t spin_ns)
{
	uint64_t until_ns;

	if (spin_ns == 0)
		return false;
	until_ns = clock_add_ns(clock_now_ns(), spin_ns);
	do {
		for (int i = 0; i < SPINS_PER_CLOCK; i++) {
			if (lane_done(lane) >= ticket)
				return true;
			relax();
		}
	} while (clock_now_ns() < until_ns);
	return false;
}

/* Sleeps until done has moved from seen, or the slice is over, or a signal came. */
static void sleep_slice(struct coppice_lane *lane, uint64_t seen, uint64_t slice_ns)
{
	struct timespec slice = clock_timespec(slice_ns);

	syscall(SYS_futex, ring_done_futex(lane->segment.shared), FUTEX_WAIT, (uint32_t)seen,
		&slice, NULL, 0);
}

/* After a slice: is there a reason not to sleep on? 0: none. */
static int look_around(struct coppice_lane *lane, uint64_t deadline_ns)
{
	int r = connection_probe(lane->c);

	if (r < 0)
		return r;
	if (clock_now_ns() >= deadline_ns)
		return -ETIMEDOUT;
	return 0;
}

/* What a waiter sleeps for. */
struct sleep {
	uint64_t ticket, deadline_ns;
	bool until_soon; /* or until it is done in a moment */
};

static bool is_over(struct coppice_lane *lane, const struct sleep *sleep)
{
	return lane_done(lane) >= sleep->ticket ||
	       (sleep->until_soon && ring_is_soon(lane->segment.shared, sleep->ticket));
}

static int sleep_until_over(struct coppice_lane *lane, const struct sleep *sleep)
{
	uint64_t slice_ns = FIRST_SLICE_NS;
	uint64_t done;
	int r = 0;

	while (!is_over(lane, sleep)) {
		uint64_t left_ns = clock_left_ns(sleep->deadline_ns);

		done = ring_done(lane->segment.shared);
		if (done >= sleep->ticket && done < ABI_RELEASED)
			continue;
		sleep_slice(lane, done, min_u64(left_ns, slice_ns));
		if (ring_done(lane->segment.shared) != done || is_over(lane, sleep))
			continue;
		r = look_around(lane, sleep->deadline_ns);
		if (r < 0)
			break;
		slice_ns = slice_ns < LAST_SLICE_NS / 2 ? 2 * slice_ns : LAST_SLICE_NS;
	}
	/* What has come at the last moment has come. */
	return is_over(lane, sleep) ? 0 : r;
}

static int sleep_counted(struct coppice_lane *lane, const struct sleep *sleep)
{
	int r;

	atomic_fetch_add_explicit(&lane->segment.shared->sleepers, 1, memory_order_relaxed);
	/* Between the count and the look at done; ring_client_asleep has the other fence. */
	atomic_thread_fence(memory_order_seq_cst);
	r = sleep_until_over(lane, sleep);
	atomic_fetch_sub_explicit(&lane->segment.shared->sleepers, 1, memory_order_relaxed);
	return r;
}

/* If cores are still free. */
static bool spin_at_last(struct coppice_lane *lane, const struct sleep *sleep)
{
	uint64_t most_ns = advised_ns(lane) > 0 ? SOON_NS : 0;

	return lane_done(lane) >= sleep->ticket ||
	       spin(lane, sleep->ticket, min_u64(most_ns, clock_left_ns(sleep->deadline_ns)));
}

/* Awake it is not among the sleepers, whom the daemon would take the time to wake. */
static int sleep_and_spin(struct coppice_lane *lane, struct sleep *sleep)
{
	int r = sleep_counted(lane, sleep);

	if (r < 0 || spin_at_last(lane, sleep))
		return r;
	sleep->until_soon = false;
	return sleep_counted(lane, sleep);
}

static int wait_done(struct coppice_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	uint64_t spin_ns = advised_ns(lane);
	struct sleep sleep = {.ticket = ticket, .until_soon = spin_ns > 0};
	int r = 0;

	if (lane_done(lane) >= ticket || spin(lane, ticket, min_u64(spin_ns, timeout_ns)))
		return 0;
	if (timeout_ns == 0) {
		r = -ETIMEDOUT;
	} else {
		sleep.deadline_ns = clock_add_ns(clock_now_ns(), timeout_ns);
		r = sleep_and_spin(lane, &sleep);
	}
	if (r == -ETIMEDOUT)
		explain(lane->c->key, r, "ticket %llu is still in flight",
			(unsigned long long)ticket);
	return r;
}

int wait_completion(struct coppice_lane *lane, uint64_t ticket, uint64_t timeout_ns,
		    struct abi_completion *ret)
{
	int r = lane_check_ticket(lane, ticket);

	if (r == 0)
		r = wait_done(lane, ticket, timeout_ns);
	if (r == 0)
		r = fetch(lane, ticket, ret);
	if (r < 0)
		return r;
	return ret->status < 0 ? failure_explain(lane, ret) : 0;
}

int wait_oldest(struct coppice_lane *lane, uint64_t timeout_ns)
{
	uint64_t oldest = lane_done(lane) + 1;
	int r = connection_check(lane->c);

	return r < 0 || oldest > lane->submitted ? r : wait_done(lane, oldest, timeout_ns);
}

int coppice_wait(struct coppice_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	struct abi_completion completion;

	return wait_completion(lane, ticket, timeout_ns, &completion);
}

int wait_submitted(struct coppice_lane *lane, wait_submit *submit, const void *order,
		   uint64_t timeout_ns, uint64_t *ret_ticket)
{
	uint64_t deadline_ns = clock_add_ns(clock_now_ns(), timeout_ns);
	uint64_t ticket;
	int r;

	while ((r = submit(lane, order, &ticket)) == -EAGAIN) {
		r = wait_oldest(lane, clock_left_ns(deadline_ns));
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (ret_ticket)
		*ret_ticket = ticket;
	return coppice_wait(lane, ticket, clock_left_ns(deadline_ns));
}
