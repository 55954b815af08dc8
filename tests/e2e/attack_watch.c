/*
 * attack_watch.c - see attack_watch.h. Victims are processes: their times lie in memory that they
 * share with the test, the last of each kind in a ring.
 */
#include "attack_watch.h"

#include "control_harness.h"
#include "proto/clock.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMES (1u << 20) /* of a kind; a power of two */
#define UNDER_WAY_TRIES 6000 /* of 5 ms */

struct ring {
	_Atomic uint64_t n; /* one writer */
	float ms[TIMES];
};

struct shared {
	struct ring rings[WATCH_KINDS];
};

struct watch {
	struct shared *shared; /* owned: a mapping */
	uint64_t from[WATCH_KINDS];
	char path[40];
	int notify_fd; /* owned */
	pthread_t hearer;
	_Atomic uint64_t fed_ns, silence_ns;
};

double watch_seconds(void)
{
	const char *seconds = getenv("ATTACK_SECONDS");

	return seconds ? strtod(seconds, NULL) : 0;
}

/* ---- the watchdog ---- */

static void note_feeding(struct watch *w)
{
	uint64_t now = clock_now_ns(), silence = now - w->fed_ns;

	if (silence > w->silence_ns)
		w->silence_ns = silence;
	w->fed_ns = now;
}

static void *hear(void *arg)
{
	struct watch *w = arg;
	char said[512];

	for (ssize_t n; (n = recv(w->notify_fd, said, sizeof(said) - 1, 0)) > 0;) {
		said[n] = 0;
		if (strstr(said, "WATCHDOG=1"))
			note_feeding(w);
	}
	return NULL;
}

static void listen_for_watchdog(struct watch *w)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int n = snprintf(w->path, sizeof(w->path), "@coppice-attack-%d", (int)getpid());

	memcpy(name.sun_path + 1, w->path + 1, (size_t)n - 1);
	w->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(w->notify_fd >= 0);
	assert_int_equal(bind(w->notify_fd, (const struct sockaddr *)&name,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)),
			 0);
	w->fed_ns = clock_now_ns();
	assert_int_equal(pthread_create(&w->hearer, NULL, hear, w), 0);
}

struct watch *watch_new(void)
{
	struct watch *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->shared = mmap(NULL, sizeof(*w->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->shared != MAP_FAILED);
	listen_for_watchdog(w);
	return w;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	shutdown(w->notify_fd, SHUT_RDWR);
	pthread_join(w->hearer, NULL);
	close(w->notify_fd);
	munmap(w->shared, sizeof(*w->shared));
	free(w);
}

const char *watch_notify_path(const struct watch *w)
{
	return w->path;
}

void watch_listen(struct watch *w)
{
	w->silence_ns = 0;
}

uint64_t watch_silence_ns(const struct watch *w)
{
	uint64_t silence = clock_now_ns() - w->fed_ns;

	return silence > w->silence_ns ? silence : w->silence_ns;
}

/* ---- processors ---- */

/* The first of them that belongs to a place, of n. */
static int first_of(enum watch_place place, int n)
{
	return place == WATCH_DAEMON ? 0 : place == WATCH_VICTIMS ? n / 2 : n / 2 + n / 4;
}

void watch_place(enum watch_place place)
{
	static cpu_set_t all;
	static int n;
	cpu_set_t own;
	int from, to, at = 0;

	if (n == 0) {
		assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
		n = CPU_COUNT(&all);
	}
	if (n < 4)
		return;
	from = first_of(place, n);
	to = place == WATCH_OTHERS ? n : first_of(place + 1, n);
	CPU_ZERO(&own);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && at++ >= from && at <= to)
			CPU_SET(i, &own);
	assert_int_equal(sched_setaffinity(0, sizeof(own), &own), 0);
}

/* ---- times ---- */

void watch_add(struct watch *w, enum watch_kind kind, uint64_t ns)
{
	struct ring *r = &w->shared->rings[kind];
	uint64_t n = atomic_load_explicit(&r->n, memory_order_relaxed);

	r->ms[n % TIMES] = (float)ns / 1e6f;
	atomic_store_explicit(&r->n, n + 1, memory_order_release); /* take_times acquires */
}

void watch_begin(struct watch *w)
{
	for (int i = 0; i < WATCH_KINDS; i++)
		w->from[i] = w->shared->rings[i].n;
	watch_listen(w);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static struct watch_times times_of(float *ms, uint32_t n)
{
	qsort(ms, n, sizeof(*ms), compare);
	return (struct watch_times){n, (double)ms[n / 2], (double)ms[(uint64_t)n * 99 / 100],
				    (double)ms[n - 1]};
}

/* The first began before. */
static struct watch_times take_times(const struct ring *r, uint64_t from, uint64_t to)
{
	uint64_t n = to - from - 1 < TIMES ? to - from - 1 : TIMES;
	float *ms = calloc(n, sizeof(*ms));
	struct watch_times times;

	assert_non_null(ms);
	for (uint64_t i = 0; i < n; i++)
		ms[i] = r->ms[(to - n + i) % TIMES];
	times = times_of(ms, (uint32_t)n);
	free(ms);
	return times;
}

static void take_kind(struct watch *w, enum watch_kind kind, struct watch_times *ret)
{
	struct ring *r = &w->shared->rings[kind];
	uint64_t to = atomic_load_explicit(&r->n, memory_order_acquire);

	if (to == 0) /* nobody does it */
		return;
	for (int i = 0; i < UNDER_WAY_TRIES && r->n <= to && kind != WATCH_JOINS; i++)
		sleep_ms(5);
	to = atomic_load_explicit(&r->n, memory_order_acquire);
	assert_true(to > w->from[kind] + 1);
	*ret = take_times(r, w->from[kind], to);
}

void watch_end(struct watch *w, struct watched *ret)
{
	double silence_ms = (double)watch_silence_ns(w) / 1e6;

	for (int i = 0; i < WATCH_KINDS; i++)
		take_kind(w, (enum watch_kind)i, &ret->times[i]);
	ret->silence_ms = fmax(silence_ms, (double)watch_silence_ns(w) / 1e6);
}

/* ---- the table ---- */

void watch_print_head(void)
{
	printf("| what another does | a step: p50, p99, worst, ms | beyond the neighbour's "
	       "| a token: p50, p99, worst | beyond | control, worst | root joins, worst "
	       "| watchdog, silent | MiB at most, left | as before after |\n"
	       "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

static void print_times(const struct watch_times *t, const struct watch_times *beside)
{
	if (t->n)
		printf(" %.2f, %.2f, %.1f |", t->p50_ms, t->p99_ms, t->most_ms);
	else
		printf(" |");
	if (beside && t->n)
		printf(" %+.1f |", t->most_ms - beside->most_ms);
	else
		printf(" |");
}

void watch_print(const char *name, const struct watched *f, const struct watched *beside)
{
	printf("| ");
	for (const char *c = name; *c; c++)
		putchar(*c == '_' ? ' ' : *c);
	printf(" |");
	for (int i = WATCH_STEPS; i <= WATCH_TOKENS; i++)
		print_times(&f->times[i], beside ? &beside->times[i] : NULL);
	printf(" %.1f | %.1f | %.0f | %.0f, %.0f | %.0f |\n", f->times[WATCH_CONTROL].most_ms,
	       f->times[WATCH_JOINS].most_ms, f->silence_ms, f->most_mib, f->left_mib,
	       f->settled_ms);
	fflush(stdout);
}
