/*
 * sched.c - the scheduler's thread: the way of a step, top to bottom.
 *
 * A round: finish the batch in flight; look whether streams have written the inputs of parked
 * steps; serve what lanes have published (steps park); between batches serve a request of the
 * loop's and start the next batch. A round without anything to do spins for a while if cores are
 * free, then sleeps on the board until a client's bell, the loop's, or the next deadline. Streams
 * ring no bell: while steps are awaited, the next look at them is a deadline.
 */
#include "sched.h"

#include "daemon/sched/core/doorbell.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/run/batch_window.h"
#include "daemon/sched/step/lanes.h"
#include "daemon/base/log.h"
#include "daemon/base/threads.h"
#include "daemon/sched/step/input_wait.h"
#include "sched_impl.h"
#include "daemon/sched/step/step.h"
#include "daemon/sched/verbs/verbs.h"
#include "daemon/sched/seq/wait.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SPIN_LOOK_NS UINT64_C(1000000) /* how often it is decided whether cores are free */
#define REQUESTS_A_ROUND 8
#define TIMER_SLACK_NS 1000ul /* looks at streams are not to be 50 us late */

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* ---- a round -------------------------------------------------------------------------------- */

/* Drivers take their time over memory, a millisecond or more: one such request between two
 * batches. */
static bool is_slow(const struct sched_request *request)
{
	return request->verb == SCHED_ARENA_ADD || request->verb == SCHED_ARENA_REMOVE;
}

static bool serve_requests(struct sched *s)
{
	struct sched_request *request;
	int n = 0;

	while (n < REQUESTS_A_ROUND && (request = mailbox_take(&s->mailbox))) {
		n += is_slow(request) ? REQUESTS_A_ROUND : 1;
		s->now_ns = s->clock(); /* time limits begin now, not when the round did */
		verbs_serve(s, request);
		s->next_tick_ns = 0; /* it may have made a claim or a pin */
	}
	return n > 0;
}

/* The prefill step that has waited longest for its turn. */
static struct sched_lane *next_prefill(struct sched *s)
{
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &s->lanes, link) {
		if (lane->parked && !lane->awaited && lane->step.prefill &&
		    (!lane->step.in_passes || passes_may(s, lane)))
			return lane;
	}
	return NULL;
}

static bool choose_decode(struct sched *s)
{
	if (s->hold_stale || s->now_ns >= s->hold_until_ns)
		hold_choose(s);
	return s->batch.n_lanes > 0;
}

static bool choose_prefill(struct sched *s)
{
	struct sched_lane *lane = next_prefill(s);

	if (!lane)
		return false;
	TAILQ_REMOVE(&s->lanes, lane, link);
	TAILQ_INSERT_TAIL(&s->lanes, lane, link);
	if (lane->step.in_passes) {
		passes_begin(s, lane);
		return false;
	}
	if (batch_add_slice(s, lane) == 0)
		return true;
	step_fail(s, lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	return false;
}

/* Decode first, but never twice in a row while a prefill waits: each delays the other by one batch
 * at most. */
static bool start_batch(struct sched *s)
{
	if (!s->n_parked)
		return false;
	passes_mark(s);
	bool chosen = s->prefill_turn ? choose_prefill(s) || choose_decode(s)
				      : choose_decode(s) || choose_prefill(s);

	if (!chosen)
		return false;
	s->prefill_turn = !s->batch.prefill;
	batch_submit(s);
	return true;
}

static void look_at_clocks(struct sched *s)
{
	if (s->now_ns >= s->next_tick_ns)
		s->next_tick_ns = store_tick(s->store, s->now_ns);
	wait_look(s);
}

void sched_fail(struct sched *s)
{
	if (atomic_exchange(&s->failed, true))
		return;
	const char *why = s->ops->fault ? s->ops->fault(s->backend) : NULL;

	log_error("the %s backend has failed for good: %s", s->ops->name,
		  why ? why : "it does not say why");
	mailbox_ring(&s->mailbox);
}

/* What is open and what still comes fails, with a status, until the daemon has ended. */
static void fail_lanes(struct sched *s)
{
	struct sched_lane *lane;

	if (s->batch.in_flight)
		batch_fail(s);
	passes_fail(s);
	TAILQ_FOREACH (lane, &s->lanes, link)
		lane_shut_down(s, lane, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

bool sched_round(struct sched *s)
{
	bool busy = false;

	s->now_ns = s->clock();
	if (s->batch.in_flight)
		busy |= batch_poll(s);
	busy |= passes_poll(s);
	if (sched_failed(s))
		fail_lanes(s);
	busy |= ready_look(s);
	busy |= lanes_serve(s);
	if (!s->batch.in_flight && !s->passes.in_flight) {
		busy |= serve_requests(s);
		busy |= start_batch(s);
	}
	sched_tiers_poll(s);
	look_at_clocks(s);
	atomic_store_explicit(&s->rounds, s->rounds + 1, memory_order_relaxed);
	return busy;
}

/* ---- rest ----------------------------------------------------------------------------------- */

/* Spinning is for when a core is idle: not while more lanes are at work than there are cores beside
 * ours. */
static void look_at_cores(struct sched *s)
{
	bool free_core = lanes_active(s) + 1 <= s->n_cores;
	uint32_t client_spin_us = free_core ? s->config->spin_us : 0;

	s->spin_look_ns = s->now_ns + SPIN_LOOK_NS;
	s->spin_ns = client_spin_us * UINT64_C(1000);
	if (atomic_load_explicit(&s->board->client_spin_us, memory_order_relaxed) != client_spin_us)
		atomic_store_explicit(&s->board->client_spin_us, client_spin_us,
				      memory_order_relaxed);
}

static bool has_spun_enough(struct sched *s)
{
	if (s->now_ns >= s->spin_look_ns)
		look_at_cores(s);
	if (s->batch.in_flight || s->passes.in_flight || (s->spin_ns && ready_soon(s)))
		return false;
	return s->now_ns - s->active_ns >= s->spin_ns;
}

static uint64_t next_deadline_ns(const struct sched *s)
{
	uint64_t deadline = s->next_tick_ns;
	uint64_t wait = wait_deadline_ns(s);

	if (wait < deadline)
		deadline = wait;
	if (s->n_parked && s->hold_until_ns < deadline)
		deadline = s->hold_until_ns;
	if (!TAILQ_EMPTY(&s->awaited) && s->await_look_ns < deadline)
		deadline = s->await_look_ns;
	uint64_t tiers = sched_tiers_deadline_ns(s);
	return tiers < deadline ? tiers : deadline;
}

/* asleep, fence, last look, wait: who publishes after the look sees asleep and rings
 * (proto/ring.h). */
static void sleep_until_bell(struct sched *s)
{
	ring_fall_asleep(s->board);
	if (!lanes_waiting(s) && !atomic_load(&s->mailbox.n_requests) && !atomic_load(&s->stopping))
		bells_wait(s, next_deadline_ns(s));
	ring_wake_up(s->board);
}

static void rest(struct sched *s)
{
	if (has_spun_enough(s))
		sleep_until_bell(s);
	else
		__builtin_ia32_pause();
}

static void *sched_main(void *arg)
{
	struct sched *s = arg;

	pthread_setname_np(pthread_self(), "coppice-sched");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	while (!atomic_load_explicit(&s->stopping, memory_order_relaxed)) {
		if (sched_round(s))
			s->active_ns = s->now_ns;
		else
			rest(s);
	}
	return NULL;
}

/* ---- birth and end -------------------------------------------------------------------------- */

static int commit_extent(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;

	return s->ops->extent_commit(s->backend, extent);
}

static void release_extent(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;

	s->ops->extent_release(s->backend, extent);
}

static int make_store(struct sched *s)
{
	const struct config *config = s->config;
	struct store_config of = {
		.pool = {.ctx = s, .commit = commit_extent, .release = release_extent},
		.n_extents = (uint32_t)((config->pool_bytes - config->stage_bytes) /
					config->extent_bytes),
		.extent_bytes = config->extent_bytes,
		.n_devices = config->n_devices,
		.claim_ns = config->claim_ms * UINT64_C(1000000),
		.domain_bytes = config->domain_bytes,
		.max_domain_pins = config->max_domain_pins,
		.max_seq_tokens = config->max_seq_tokens,
	};

	return store_new(&of, &s->store);
}

static int start_thread(struct sched *s)
{
	int r = threads_start(&s->thread, sched_main, s);

	s->started = r == 0;
	return r;
}

int sched_make(const struct config *config, const struct backend_ops *ops, struct backend *backend,
	       struct abi_board *board, struct sched **ret)
{
	struct sched *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->config = config;
	s->ops = ops;
	s->backend = backend;
	s->board = board;
	s->clock = monotonic_ns;
	s->n_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	s->hold_until_ns = UINT64_MAX;
	s->seqs.free = UINT32_MAX;
	renewal_init(&s->batch.renewal);
	LIST_INIT(&s->sessions);
	LIST_INIT(&s->ended_sessions);
	LIST_INIT(&s->models);
	s->await_look_ns = UINT64_MAX;
	s->wait_due_ns = UINT64_MAX;
	TAILQ_INIT(&s->lanes);
	TAILQ_INIT(&s->awaited);
	TAILQ_INIT(&s->waits);
	int r = mailbox_init(&s->mailbox);

	if (r < 0) {
		free(s);
		return r;
	}
	r = bells_init(s);
	if (r == 0)
		r = make_store(s);
	if (r < 0) {
		sched_free(s);
		return r;
	}
	sched_tiers_attach(s);
	*ret = s;
	return 0;
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

/* Of a backend that has failed copies never end, and the process does: the file is what it was. */
static void free_store(struct sched *s)
{
	if (s->tiers.on && sched_failed(s))
		return;
	if (s->store)
		sched_tiers_flush(s);
	store_free(s->store);
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	if (s->started) {
		atomic_store(&s->stopping, true);
		bells_ring(s);
		pthread_join(s->thread, NULL);
	}
	if (s->batch.in_flight)
		batch_fail(s);
	verbs_end_all(s);
	batch_done(&s->batch);
	passes_done(&s->passes);
	free_store(s);
	handle_table_done(&s->seqs);
	mailbox_done(&s->mailbox);
	bells_done(s);
	free(s->polls);
	free(s);
}

void sched_post(struct sched *s, struct sched_request *request)
{
	mailbox_post(&s->mailbox, request);
	bells_ring(s);
}

struct sched_request *sched_reap(struct sched *s)
{
	return mailbox_reap(&s->mailbox);
}

int sched_reply_fd(const struct sched *s)
{
	return s->mailbox.reply_fd;
}

uint64_t sched_progress(const struct sched *s)
{
	return atomic_load_explicit(&s->rounds, memory_order_relaxed);
}

bool sched_failed(const struct sched *s)
{
	return atomic_load(&s->failed);
}
