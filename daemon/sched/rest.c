/*
 * rest.c - to spin, or to sleep and until when.
 *
 * Spinning is for when a core is idle, and for as long as the configuration says; clients are told
 * on the board to do the same. Asleep, the scheduler is woken by a doorbell: who publishes after
 * its last look sees on the board that it is to be rung (proto/ring.h). Whatever rings no doorbell
 * has a deadline.
 */
#include "rest.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "proto/ring.h"

#define SPIN_LOOK_NS NS_PER_MS /* how often it is decided whether cores are free */

/* Spinning is for when a core is idle: not while more lanes are at work than there are cores beside
 * ours. */
static void look_at_cores(struct sched *s)
{
	bool free_core = lanes_active(&s->lanes) + 1 <= s->core.n_cores;
	uint32_t client_spin_us = free_core ? s->core.config->spin_us : 0;

	s->spin_look_ns = s->core.now_ns + SPIN_LOOK_NS;
	s->spin_ns = client_spin_us * UINT64_C(1000);
	s->core.spins = client_spin_us > 0;
	if (atomic_load_explicit(&s->board->client_spin_us, memory_order_relaxed) != client_spin_us)
		atomic_store_explicit(&s->board->client_spin_us, client_spin_us,
				      memory_order_relaxed);
}

static bool has_spun_enough(struct sched *s)
{
	if (s->core.now_ns >= s->spin_look_ns)
		look_at_cores(s);
	if (backend_is_at_work(s) || (s->spin_ns && input_wait_soon(&s->input_wait)))
		return false;
	return s->core.now_ns - s->active_ns >= s->spin_ns;
}

static uint64_t if_to_come_ns(const struct sched *s, uint64_t ns)
{
	return ns > s->core.now_ns ? ns : UINT64_MAX;
}

uint64_t rest_until_ns(const struct sched *s)
{
	const uint64_t deadlines[] = {
		s->core.next_tick_ns,
		waits_deadline_ns(&s->waits),
		window_deadline_ns(&s->window),
		input_wait_deadline_ns(&s->input_wait),
		sched_tiers_deadline_ns(s),
		passes_deadline_ns(&s->passes),
		extents_ahead_deadline_ns(&s->ahead),
		if_to_come_ns(s, s->awaited_ns),
		if_to_come_ns(s, s->awaited_by_pass_ns),
	};
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < sizeof(deadlines) / sizeof(*deadlines); i++)
		first = min_u64(deadlines[i], first);
	return first;
}

static uint64_t until_ns(const struct sched *s, uint64_t deadline_ns)
{
	uint64_t now_ns = core_clock(&s->core);

	if (deadline_ns == UINT64_MAX)
		return UINT64_MAX;
	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* asleep, fence, last look, wait: who publishes after the look sees asleep and rings
 * (proto/ring.h). */
static void sleep_until_doorbell(struct sched *s)
{
	ring_fall_asleep(s->board);
	if (!lanes_waiting(&s->lanes) && !requests_any(&s->core.requests) &&
	    !atomic_load(&s->stopping))
		doorbell_wait(&s->doorbell, until_ns(s, rest_until_ns(s)));
	ring_wake_up(s->board);
}

void rest(struct sched *s)
{
	if (has_spun_enough(s))
		sleep_until_doorbell(s);
	else
		__builtin_ia32_pause();
}
