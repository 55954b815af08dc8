/*
 * attack_watch.c - see attack_watch.h. Victims are processes: their times lie in memory that they
 * share with the test, the last of each kind in a ring.
 */
#include "attack_watch.h"

#include "control_harness.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <dirent.h>
#include <fcntl.h>
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
	struct took {
		float ms, held_ms;
	} took[TIMES];
};

struct shared {
	struct ring rings[WATCH_KINDS];
};

struct watch {
	struct shared *shared; /* owned: a mapping */
	uint64_t from[WATCH_KINDS];
	int daemon_fds[WATCH_THREADS]; /* owned: schedstat of each, n_threads of them */
	unsigned n_threads;
	char path[40];
	int notify_fd; /* owned */
	pthread_t hearer;
	pthread_mutex_t lock; /* of what follows, and of n_threads */
	struct watch_since fed;
	uint64_t silence_ns;
};

double watch_seconds(void)
{
	const char *seconds = getenv("ATTACK_SECONDS");

	return seconds ? strtod(seconds, NULL) : 0;
}

/* ---- the daemon's threads ---- */

/* Nothing by a thread that has ended. */
static struct watch_had had_by(int schedstat_fd)
{
	char text[80] = "", *end;
	struct watch_had had;

	if (pread(schedstat_fd, text, sizeof(text) - 1, 0) <= 0)
		return (struct watch_had){0};
	had.computed_ns = strtoull(text, &end, 10);
	had.waited_ns = strtoull(end, NULL, 10);
	return had;
}

/* Where kernels do not count it, nobody would be held up by anything. */
static bool has_computed(const struct watch *w)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < w->n_threads; i++)
		ns += had_by(w->daemon_fds[i]).computed_ns;
	return ns > 0;
}

void watch_daemon(struct watch *w, pid_t pid)
{
	const struct dirent *entry;
	char path[300];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	pthread_mutex_lock(&w->lock);
	while (w->n_threads < WATCH_THREADS && (entry = readdir(dir))) {
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			w->daemon_fds[w->n_threads++] = fd;
	}
	pthread_mutex_unlock(&w->lock);
	closedir(dir);
	assert_true(has_computed(w));
}

static uint64_t own_wait_ns(void)
{
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	uint64_t ns = had_by(fd).waited_ns;

	close(fd);
	return ns;
}

struct watch_since watch_now(const struct watch *w)
{
	struct watch_since now = {.own_wait_ns = own_wait_ns()};

	for (unsigned i = 0; i < w->n_threads; i++)
		now.threads[i] = had_by(w->daemon_fds[i]);
	now.clock_ns = clock_now_ns();
	return now;
}

static uint64_t ns_between(uint64_t begin, uint64_t end)
{
	return end > begin ? end - begin : 0;
}

uint64_t watch_went_by_ns(const struct watch *w, const struct watch_since *since)
{
	struct watch_since now = watch_now(w);
	uint64_t waited_ns = 0;

	for (unsigned i = 0; i < WATCH_THREADS; i++)
		waited_ns = max_u64(waited_ns, ns_between(since->threads[i].waited_ns,
							  now.threads[i].waited_ns));
	return ns_between(waited_ns, now.clock_ns - since->clock_ns);
}

/* ---- the watchdog ---- */

static void note_feeding(struct watch *w)
{
	pthread_mutex_lock(&w->lock);
	w->silence_ns = max_u64(w->silence_ns, watch_went_by_ns(w, &w->fed));
	w->fed = watch_now(w);
	pthread_mutex_unlock(&w->lock);
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
	w->fed = watch_now(w);
	pthread_mutex_init(&w->lock, NULL);
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
	pthread_mutex_destroy(&w->lock);
	close(w->notify_fd);
	while (w->n_threads > 0)
		close(w->daemon_fds[--w->n_threads]);
	munmap(w->shared, sizeof(*w->shared));
	free(w);
}

const char *watch_notify_path(const struct watch *w)
{
	return w->path;
}

void watch_listen(struct watch *w)
{
	pthread_mutex_lock(&w->lock);
	w->silence_ns = 0;
	pthread_mutex_unlock(&w->lock);
}

double watch_silence_ms(struct watch *w)
{
	uint64_t ns;

	pthread_mutex_lock(&w->lock);
	ns = max_u64(w->silence_ns, watch_went_by_ns(w, &w->fed));
	pthread_mutex_unlock(&w->lock);
	return (double)ns / 1e6;
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

static uint64_t held_ns(const struct watch_since *since, const struct watch_since *now)
{
	uint64_t most_ns = 0;

	for (unsigned i = 0; i < WATCH_THREADS; i++)
		most_ns = max_u64(most_ns, ns_between(since->threads[i].computed_ns,
						      now->threads[i].computed_ns));
	return ns_between(ns_between(since->own_wait_ns, now->own_wait_ns), most_ns);
}

void watch_add(struct watch *w, enum watch_kind kind, struct watch_since since)
{
	uint64_t end_ns = clock_now_ns();
	struct watch_since now = watch_now(w);
	struct ring *r = &w->shared->rings[kind];
	uint64_t n = atomic_load_explicit(&r->n, memory_order_relaxed);

	r->took[n % TIMES] = (struct took){(float)(end_ns - since.clock_ns) / 1e6f,
					   (float)held_ns(&since, &now) / 1e6f};
	atomic_store_explicit(&r->n, n + 1, memory_order_release); /* take_times acquires */
}

void watch_begin(struct watch *w)
{
	for (int i = 0; i < WATCH_KINDS; i++)
		w->from[i] = w->shared->rings[i].n;
}

static int compare(const void *a, const void *b)
{
	float x = ((const struct took *)a)->ms, y = ((const struct took *)b)->ms;

	return (x > y) - (x < y);
}

static struct watch_times times_of(struct took *took, uint32_t n)
{
	float held_ms = 0;

	qsort(took, n, sizeof(*took), compare);
	for (uint32_t i = 0; i < n; i++)
		held_ms = fmaxf(held_ms, took[i].held_ms);
	return (struct watch_times){n,
				    (double)took[n / 2].ms,
				    (double)took[(uint64_t)n * 99 / 100].ms,
				    (double)took[n - 1].ms,
				    (double)took[n - min_u32(n, WATCH_OFTEN)].ms,
				    (double)held_ms};
}

static struct watch_times take_times(const struct ring *r, uint64_t from, uint64_t to)
{
	uint64_t n = to - from < TIMES ? to - from : TIMES;
	struct took *took = calloc(n, sizeof(*took));
	struct watch_times times;

	assert_non_null(took);
	for (uint64_t i = 0; i < n; i++)
		took[i] = r->took[(to - n + i) % TIMES];
	times = times_of(took, (uint32_t)n);
	free(took);
	return times;
}

static void take_kind(struct watch *w, enum watch_kind kind, struct watch_times *ret)
{
	struct ring *r = &w->shared->rings[kind];
	uint64_t to = atomic_load_explicit(&r->n, memory_order_acquire);
	uint64_t enough = w->from[kind] + (kind == WATCH_CONTROL ? 1 : WATCH_OFTEN);

	if (to == 0) /* nobody does it */
		return;
	if (kind != WATCH_JOINS)
		enough = max_u64(enough, to + 1);
	for (int i = 0; i < UNDER_WAY_TRIES && r->n < enough; i++)
		sleep_ms(5);
	to = atomic_load_explicit(&r->n, memory_order_acquire);
	assert_true(to >= enough);
	*ret = take_times(r, w->from[kind], to);
}

void watch_end(struct watch *w, struct watched *ret)
{
	double silence_ms = watch_silence_ms(w);

	for (int i = 0; i < WATCH_KINDS; i++)
		take_kind(w, (enum watch_kind)i, &ret->times[i]);
	ret->silence_ms = fmax(silence_ms, watch_silence_ms(w));
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
