/*
 * threads.c - a job is published, joined and left through one word.
 *
 * state: OPEN | number of workers that have joined. The caller publishes a job by setting OPEN; a
 * worker joins by incrementing while OPEN is set and leaves by decrementing. The caller clears OPEN
 * when no unit is left and waits for 0. epoch counts jobs, for sleepers; a worker that slept
 * through one joins the next.
 */
#include "threads.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN (UINT32_C(1) << 31)
#define MXCSR_DAZ 0x0040u /* of x86: subnormal inputs are 0 */
#define MXCSR_FTZ 0x8000u /* and outputs */
#define SPINS 2000 /* some microseconds: less than a futex wake-up takes */

struct worker {
	struct threads *threads;
	pthread_t id;
	uint32_t thread;
};

struct threads {
	/* published by the release that sets OPEN, read after the acquire that joins */
	struct threads_job job;

	_Alignas(64) _Atomic uint32_t state;
	_Alignas(64) _Atomic uint32_t next; /* unit to take */
	_Atomic uint64_t n_done; /* units, ever */
	_Alignas(64) _Atomic uint32_t epoch;
	_Atomic bool stop;
	uint32_t idle_spins; /* 0 where a spinning worker would take somebody's core */
	_Atomic uint64_t idle_ns; /* and more of them, for so long */
	bool flushes; /* subnormal floats are 0; set before any job */
	uint32_t n_begun, before; /* the caller's, and what its MXCSR was before */
	uint32_t n_cores;
	uint32_t n_workers;
	struct worker *workers; /* owned, [n_workers] */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* What was set before. */
static uint32_t flush(const struct threads *t)
{
#ifdef __x86_64__
	uint32_t before = __builtin_ia32_stmxcsr();

	if (t->flushes)
		__builtin_ia32_ldmxcsr(before | MXCSR_FTZ | MXCSR_DAZ);
	return before;
#else
	(void)t;
	return 0;
#endif
}

static void flush_no_more(const struct threads *t, uint32_t before)
{
#ifdef __x86_64__
	if (t->flushes)
		__builtin_ia32_ldmxcsr(before);
#else
	(void)t;
	(void)before;
#endif
}

void threads_begin(struct threads *t)
{
	if (t->n_begun++ == 0)
		t->before = flush(t);
}

void threads_end(struct threads *t)
{
	if (--t->n_begun == 0)
		flush_no_more(t, t->before);
}

static bool time_is_up(const struct threads_job *job, uint32_t n_done)
{
	return job->until_ns != UINT64_MAX && n_done % job->look_every == 0 &&
	       clock_now_ns() >= job->until_ns;
}

static void take_units(struct threads *t, uint32_t thread)
{
	for (uint32_t n = 1;; n++) {
		uint32_t unit = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);

		if (unit >= t->job.n_units)
			break;
		t->job.run(t->job.arg, thread, unit);
		atomic_fetch_add_explicit(&t->n_done, 1, memory_order_relaxed);
		if (time_is_up(&t->job, n))
			break;
	}
}

static bool join(struct threads *t)
{
	uint32_t state = atomic_load_explicit(&t->state, memory_order_relaxed);

	while (state & OPEN) {
		/* acquire: pairs with the release that set OPEN in threads_run */
		if (atomic_compare_exchange_weak_explicit(&t->state, &state, state + 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

static void leave(struct threads *t)
{
	/* release: the caller's acquire of 0 sees what the units wrote */
	if (atomic_fetch_sub_explicit(&t->state, 1, memory_order_release) == 1)
		futex_wake_all(&t->state);
}

static bool spin(struct threads *t, uint32_t seen)
{
	for (uint32_t i = 0; i < t->idle_spins; i++) {
		if (atomic_load_explicit(&t->epoch, memory_order_relaxed) != seen)
			return true;
		relax();
	}
	return false;
}

static uint32_t wait_epoch(struct threads *t, uint32_t seen)
{
	uint64_t idle_ns = atomic_load_explicit(&t->idle_ns, memory_order_relaxed);
	uint64_t start_ns = idle_ns ? clock_now_ns() : 0;
	uint32_t epoch;

	while (!spin(t, seen) && idle_ns && t->idle_spins && clock_now_ns() - start_ns < idle_ns)
		;
	/* acquire: pairs with the release that counts epoch, so that OPEN or stop is seen */
	while ((epoch = atomic_load_explicit(&t->epoch, memory_order_acquire)) == seen)
		futex_wait(&t->epoch, seen);
	return epoch;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t epoch = 0;

	while (!atomic_load_explicit(&w->threads->stop, memory_order_relaxed)) {
		if (join(w->threads)) {
			flush(w->threads);
			take_units(w->threads, w->thread);
			leave(w->threads);
		}
		epoch = wait_epoch(w->threads, epoch);
	}
	return NULL;
}

static int start_worker(struct threads *t)
{
	struct worker *w = &t->workers[t->n_workers];
	char name[16];
	int r;

	*w = (struct worker){.threads = t, .thread = t->n_workers + 1};
	snprintf(name, sizeof(name), "kernels-%u", w->thread % 1000);
	r = thread_start(name, work, w, &w->id);
	if (r)
		return r;
	t->n_workers++;
	return 0;
}

static uint32_t n_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

int threads_new(uint32_t n, struct threads **ret)
{
	struct threads *t = NULL;
	uint32_t cores = n_cores();
	int r = 0;

	n = n ? n : cores;
	if (posix_memalign((void **)&t, 64, sizeof(*t)))
		return -ENOMEM;
	*t = (struct threads){.idle_spins = n < cores ? SPINS : 0, .n_cores = cores};
	t->workers = calloc(n, sizeof(*t->workers));
	if (!t->workers)
		r = -ENOMEM;
	while (r == 0 && t->n_workers + 1 < n)
		r = start_worker(t);
	if (r) {
		threads_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void threads_free(struct threads *t)
{
	if (!t)
		return;
	atomic_store_explicit(&t->stop, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->epoch, 1, memory_order_release);
	futex_wake_all(&t->epoch);
	for (uint32_t i = 0; i < t->n_workers; i++)
		pthread_join(t->workers[i].id, NULL);
	free(t->workers);
	free(t);
}

void threads_flush_subnormals(struct threads *t)
{
	t->flushes = true;
}

void threads_watch(struct threads *t, uint64_t ns)
{
	atomic_store_explicit(&t->idle_ns, ns, memory_order_relaxed);
}

uint32_t threads_count(const struct threads *t)
{
	return t->n_workers + 1;
}

uint32_t threads_at_once(const struct threads *t)
{
	return min_u32(threads_count(t), t->n_cores);
}

uint64_t threads_progress(const struct threads *t)
{
	return atomic_load_explicit(&t->n_done, memory_order_relaxed);
}

static void close_job(struct threads *t)
{
	uint32_t state = atomic_fetch_and_explicit(&t->state, ~OPEN, memory_order_relaxed) & ~OPEN;

	for (uint32_t i = 0; state != 0; i++) {
		if (i < SPINS)
			relax();
		else
			futex_wait(&t->state, state);
		state = atomic_load_explicit(&t->state, memory_order_relaxed);
	}
	/* acquire: pairs with the release in leave() */
	(void)atomic_load_explicit(&t->state, memory_order_acquire);
}

static uint32_t run_alone(struct threads *t)
{
	uint32_t unit = t->job.first;
	uint64_t n_done = atomic_load_explicit(&t->n_done, memory_order_relaxed);

	while (unit < t->job.n_units) {
		t->job.run(t->job.arg, 0, unit++);
		/* nobody else counts meanwhile */
		atomic_store_explicit(&t->n_done, ++n_done, memory_order_relaxed);
		if (time_is_up(&t->job, unit - t->job.first))
			break;
	}
	return unit;
}

static uint32_t run_all(struct threads *t)
{
	const struct threads_job *job = &t->job;
	uint32_t next;

	atomic_store_explicit(&t->next, job->first, memory_order_relaxed);
	atomic_store_explicit(&t->state, OPEN, memory_order_release);
	atomic_fetch_add_explicit(&t->epoch, 1, memory_order_release);
	futex_wake_all(&t->epoch);
	take_units(t, 0);
	close_job(t);
	next = atomic_load_explicit(&t->next, memory_order_relaxed);
	return min_u32(next, job->n_units);
}

/* Runs t->job, which its caller has made there. */
static uint32_t run_job(struct threads *t)
{
	const struct threads_job *job = &t->job;
	bool alone = job->alone || t->n_workers == 0 || job->n_units < job->first + 2;
	uint32_t next;

	threads_begin(t);
	next = alone ? run_alone(t) : run_all(t);
	threads_end(t);
	return next;
}

uint32_t threads_run_until(struct threads *t, const struct threads_job *job)
{
	t->job = *job;
	return run_job(t);
}

void threads_run(struct threads *t, threads_unit run, void *arg, uint32_t n_units, bool alone)
{
	if (n_units == 0)
		return;
	t->job = (struct threads_job){
		.run = run, .arg = arg, .n_units = n_units, .alone = alone, .until_ns = UINT64_MAX};
	run_job(t);
}
