/*
 * sched.c - the scheduler's thread: a step's way through the daemon, top to bottom.
 *
 * A round has five phases, in this order:
 *   finish   what the backend has done: clients go on while the rest of the round is ours
 *   take     entries of all rings, and inputs that streams have written; steps become runnable
 *   serve    requests of the loop, only between batches: they change what batches are made of
 *   begin    the next batch, of decode and prefill in turns: what was taken above is in it
 *   look     at clocks and copies, while the backend is at work
 * A round without anything to do spins for a while if cores are free, then sleeps until a client's
 * bell, the loop's, or the next deadline. Streams ring no bell: while steps wait for their inputs
 * the next look at them is a deadline.
 *
 * Where a step is says core/lane.h. Folders are in the order of its way, and each knows those
 * before it alone: core (what all need), seq (a lane's sequences and completions), step (entries,
 * checks, ends), run (batches), long (attention that is streamed), verbs (requests), this file.
 */
#include "sched.h"

#include "daemon/base/threads.h"
#include "daemon/sched/step/step_end.h"
#include "daemon/sched/verbs/verbs.h"
#include "sched_impl.h"

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

/* ---- finish --------------------------------------------------------------------------------- */

/* What is open and what still comes fails, with a status, until the daemon has ended. */
static void fail_lanes(struct sched *s)
{
	struct sched_lane *lane;

	if (s->batch.in_flight)
		batch_fail(&s->batch);
	streamed_fail(&s->streamed);
	TAILQ_FOREACH (lane, &s->core.lanes, link)
		lane_shut_down(&s->lanes, lane, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

static bool finish(struct sched *s)
{
	bool any = s->batch.in_flight && batch_poll(&s->batch);

	if (streamed_busy(&s->streamed))
		any |= streamed_poll(&s->streamed);
	if (core_failed(&s->core))
		fail_lanes(s);
	return any;
}

/* ---- serve ---------------------------------------------------------------------------------- */

/* Drivers take their time over memory, a millisecond or more: one such request between two
 * batches. */
static bool is_slow(const struct sched_request *request)
{
	return request->verb == SCHED_ARENA_ADD || request->verb == SCHED_ARENA_REMOVE;
}

static bool serve(struct sched *s)
{
	struct sched_request *request;
	int n = 0;

	while (requests_any(&s->core.requests) && n < REQUESTS_A_ROUND) {
		request = requests_take(&s->core.requests);
		if (!request)
			break;
		n += is_slow(request) ? REQUESTS_A_ROUND : 1;
		s->core.now_ns = s->core.clock(); /* time limits begin now */
		verbs_serve(s, request);
		s->core.next_tick_ns = 0; /* it may have made a claim or a pin */
	}
	return n > 0;
}

/* ---- begin ---------------------------------------------------------------------------------- */

static bool choose_decode(struct sched *s)
{
	if (window_is_due(&s->window))
		window_choose(&s->window);
	return s->batch.n_jobs > 0;
}

/* Attention that is streamed is no batch, and begins here. */
static bool choose_prefill(struct sched *s)
{
	struct sched_lane *lane = streamed_next_turn(&s->streamed);

	if (!lane)
		return false;
	if (lane->step.kind == STEP_STREAMED) {
		streamed_begin(&s->streamed, lane);
		return false;
	}
	if (batch_add_slice(&s->batch, lane) == 0)
		return true;
	step_fail(&s->core, lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	return false;
}

/* Decode first, but never twice in a row while a prefill waits: each delays the other by one batch
 * at most. */
static bool begin(struct sched *s)
{
	if (step_n_there(&s->core.steps) == 0)
		return false;
	if (streamed_is_needed(&s->streamed))
		streamed_find(&s->streamed);
	bool chosen = s->prefill_turn ? choose_prefill(s) || choose_decode(s)
				      : choose_decode(s) || choose_prefill(s);

	if (!chosen)
		return false;
	s->prefill_turn = !s->batch.prefill;
	batch_submit(&s->batch);
	return true;
}

/* ---- a round -------------------------------------------------------------------------------- */

static bool is_at_work(const struct sched *s)
{
	return s->batch.in_flight || s->streamed.in_flight;
}

static void look(struct sched *s)
{
	if (s->tiers.on)
		sched_tiers_poll(s);
	if (s->core.now_ns >= s->core.next_tick_ns)
		s->core.next_tick_ns = store_tick(s->core.store, s->core.now_ns);
	waits_look(&s->waits);
}

bool sched_round(struct sched *s)
{
	s->core.now_ns = s->core.clock();
	bool busy = finish(s);

	busy |= input_wait_look(&s->input_wait);
	busy |= lanes_serve(&s->lanes);
	if (!is_at_work(s)) {
		busy |= serve(s);
		busy |= begin(s);
	}
	look(s);
	atomic_store_explicit(&s->rounds, s->rounds + 1, memory_order_relaxed);
	return busy;
}

/* ---- rest ----------------------------------------------------------------------------------- */

/* Spinning is for when a core is idle: not while more lanes are at work than there are cores beside
 * ours. */
static void look_at_cores(struct sched *s)
{
	bool free_core = lanes_active(&s->lanes) + 1 <= s->core.n_cores;
	uint32_t client_spin_us = free_core ? s->core.config->spin_us : 0;

	s->spin_look_ns = s->core.now_ns + SPIN_LOOK_NS;
	s->spin_ns = client_spin_us * UINT64_C(1000);
	s->input_wait.spins = client_spin_us > 0;
	if (atomic_load_explicit(&s->board->client_spin_us, memory_order_relaxed) != client_spin_us)
		atomic_store_explicit(&s->board->client_spin_us, client_spin_us,
				      memory_order_relaxed);
}

static bool has_spun_enough(struct sched *s)
{
	if (s->core.now_ns >= s->spin_look_ns)
		look_at_cores(s);
	if (is_at_work(s) || (s->spin_ns && input_wait_soon(&s->input_wait)))
		return false;
	return s->core.now_ns - s->active_ns >= s->spin_ns;
}

static uint64_t next_deadline_ns(const struct sched *s)
{
	const uint64_t deadlines[] = {
		s->core.next_tick_ns,		waits_deadline_ns(&s->waits),
		window_deadline_ns(&s->window), input_wait_deadline_ns(&s->input_wait),
		sched_tiers_deadline_ns(s),
	};
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < sizeof(deadlines) / sizeof(*deadlines); i++)
		first = deadlines[i] < first ? deadlines[i] : first;
	return first;
}

static uint64_t until_ns(const struct sched *s, uint64_t deadline_ns)
{
	uint64_t now_ns = s->core.clock();

	if (deadline_ns == UINT64_MAX)
		return UINT64_MAX;
	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* asleep, fence, last look, wait: who publishes after the look sees asleep and rings
 * (proto/ring.h). */
static void sleep_until_bell(struct sched *s)
{
	ring_fall_asleep(s->board);
	if (!lanes_waiting(&s->lanes) && !requests_any(&s->core.requests) &&
	    !atomic_load(&s->stopping))
		doorbell_wait(&s->doorbell, until_ns(s, next_deadline_ns(s)));
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
			s->active_ns = s->core.now_ns;
		else
			rest(s);
	}
	return NULL;
}

/* ---- birth and end -------------------------------------------------------------------------- */

static int commit_extent(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;

	return s->core.ops->extent_commit(s->core.backend, extent);
}

static void release_extent(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;

	s->core.ops->extent_release(s->core.backend, extent);
}

static int make_store(struct sched *s)
{
	const struct config *config = s->core.config;
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

	return store_new(&of, &s->core.store);
}

static int start_thread(struct sched *s)
{
	int r = threads_start(&s->thread, sched_main, s);

	s->started = r == 0;
	return r;
}

static void make_parts(struct sched *s)
{
	struct sched_core *core = &s->core;

	core->clock = monotonic_ns;
	core->n_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	TAILQ_INIT(&core->lanes);
	step_queues_init(&core->steps);
	handle_table_init(&core->seqs);
	LIST_INIT(&s->sessions);
	LIST_INIT(&s->ended_sessions);
	LIST_INIT(&s->models);
	s->lanes = (struct lanes){.core = core, .input_wait = &s->input_wait};
	input_wait_init(&s->input_wait, core);
	waits_init(&s->waits, core);
	batch_init(&s->batch, core);
	window_init(&s->window, core, &s->batch);
	streamed_init(&s->streamed, core);
}

int sched_make(const struct config *config, const struct backend_ops *ops, struct backend *backend,
	       struct abi_board *board, struct sched **ret)
{
	struct sched *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->board = board;
	s->core.config = config;
	s->core.ops = ops;
	s->core.backend = backend;
	int r = requests_init(&s->core.requests);

	if (r < 0) {
		free(s);
		return r;
	}
	make_parts(s);
	r = doorbell_init(&s->doorbell);
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
	if (s->tiers.on && core_failed(&s->core))
		return;
	if (s->core.store)
		sched_tiers_flush(s);
	store_free(s->core.store);
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
	if (s->batch.in_flight)
		batch_fail(&s->batch);
	verbs_end_all(s);
	batch_done(&s->batch);
	streamed_done(&s->streamed);
	free_store(s);
	handle_table_done(&s->core.seqs);
	requests_done(&s->core.requests);
	doorbell_done(&s->doorbell);
	lanes_done(&s->lanes);
	free(s);
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
	return atomic_load_explicit(&s->rounds, memory_order_relaxed);
}

bool sched_failed(const struct sched *s)
{
	return core_failed(&s->core);
}
