/*
 * attack_watch.h - each time that the victims of an attack waited, and for how long the watchdog
 * heard nothing.
 *
 * A time by the clock is as long as the machine is busy. What nobody else lengthens is what the
 * daemon has computed meanwhile: a step that waits for another user's batch waits for all of it.
 *
 * With ATTACK_SECONDS=N the tests of attacks print them as lines of a table, of N seconds for each
 * neighbour and each attack, for people, of a machine that is quiet. What victims are told is
 * checked as ever, and what is left at the end; times are not. Of the processors that the test may
 * use the daemon has half, the victims a quarter, and who attacks the rest, where there are four or
 * more.
 */
#ifndef ATTACK_WATCH_H
#define ATTACK_WATCH_H

#include "tests/sanitized.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TIMES_ARE_TOLD (!SANITIZED)

enum watch_kind { WATCH_STEPS, WATCH_TOKENS, WATCH_CONTROL, WATCH_JOINS, WATCH_KINDS };
enum watch_place { WATCH_DAEMON, WATCH_VICTIMS, WATCH_OTHERS };

/* So many times are no accident. */
#define WATCH_OFTEN (TIMES_ARE_TOLD ? 4u : 1u)

struct watch;

struct watch_times {
	uint32_t n;
	double p50_ms, p99_ms, most_ms;
	double often_ms; /* the WATCH_OFTEN-th longest, or the shortest of fewer */
	double held_ms; /* the longest that a thread of the daemon has computed meanwhile */
};

#define WATCH_THREADS 64 /* of the daemon, at most: the others are not looked at */

struct watch_had {
	uint64_t computed_ns, waited_ns; /* on a processor, for a processor */
};

struct watch_since {
	uint64_t clock_ns;
	uint64_t own_wait_ns; /* for a processor */
	struct watch_had threads[WATCH_THREADS];
};

struct watched {
	struct watch_times times[WATCH_KINDS];
	double silence_ms; /* of the watchdog */
	double most_mib, left_mib; /* beyond what the daemon had before */
	double settled_ms; /* until all else was as before */
};

/* The watchdog's time: it is fed every third of it, 100 ms. */
#define WATCHDOG_US 300000

/* ATTACK_SECONDS; 0: nobody asks. */
double watch_seconds(void);
/* Made before the daemon, whose NOTIFY_SOCKET it is. */
struct watch *watch_new(void);
void watch_free(struct watch *w);
const char *watch_notify_path(const struct watch *w);
/* The watchdog is listened to from now on; for how long, as by watch_went_by_ns, it has heard
 * nothing since, at most, now included. */
void watch_listen(struct watch *w);
double watch_silence_ms(struct watch *w);

/* The calling process, and those it starts. */
void watch_place(enum watch_place place);
/* Those threads that the daemon has by now are looked at, by who is started from then on. */
void watch_daemon(struct watch *w, pid_t pid);
struct watch_since watch_now(const struct watch *w);
/* How long that is ago, less the longest for which a thread of the daemon has waited for a
 * processor: on a busy machine as much is done in it as on another. */
uint64_t watch_went_by_ns(const struct watch *w, const struct watch_since *since);
/* By a victim, and by who joins: what began then has ended. What the daemon has computed while he
 * himself waited for a processor has not held him up. */
void watch_add(struct watch *w, enum watch_kind kind, struct watch_since since);
/* What is under way at the beginning and at the end counts, and is waited for, and so are more,
 * until often_ms can be told of them. What nobody does has n 0. */
void watch_begin(struct watch *w);
void watch_end(struct watch *w, struct watched *ret);

void watch_print_head(void);
/* beside: the neighbour's; NULL: it is a neighbour, or nobody. */
void watch_print(const char *name, const struct watched *f, const struct watched *beside);

#endif
