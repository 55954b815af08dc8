/*
 * attack_watch.h - each time that the victims of an attack waited, and for how long the watchdog
 * heard nothing: figures for people, of a machine that is quiet.
 *
 * With ATTACK_SECONDS=N the tests of attacks print them as lines of a table, of N seconds for each
 * neighbour and each attack. What victims are told is checked as ever, and what is left at the end;
 * times are not. Of the processors that the test may use the daemon has half, the victims a
 * quarter, and who attacks the rest, where there are four or more.
 */
#ifndef ATTACK_WATCH_H
#define ATTACK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum watch_kind { WATCH_STEPS, WATCH_TOKENS, WATCH_CONTROL, WATCH_JOINS, WATCH_KINDS };
enum watch_place { WATCH_DAEMON, WATCH_VICTIMS, WATCH_OTHERS };

struct watch;

struct watch_times {
	uint32_t n;
	double p50_ms, p99_ms, most_ms;
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
/* The watchdog is listened to from now on; for how long it has heard nothing since, at most, now
 * included. */
void watch_listen(struct watch *w);
uint64_t watch_silence_ns(const struct watch *w);

/* The calling process, and those it starts. */
void watch_place(enum watch_place place);
/* By a victim, and by who joins. */
void watch_add(struct watch *w, enum watch_kind kind, uint64_t ns);
/* What is under way at the end counts, and is waited for. What nobody has done has n 0. */
void watch_begin(struct watch *w);
void watch_end(struct watch *w, struct watched *ret);

void watch_print_head(void);
/* beside: the neighbour's; NULL: it is a neighbour, or nobody. */
void watch_print(const char *name, const struct watched *f, const struct watched *beside);

#endif
