/*
 * decode_slow.h - which tokens were slow, and what else went on meanwhile.
 *
 * A token counts with the first of these kinds of which something overlaps it, in their order. One
 * is slow if it took SLOW_TIMES as long as half of all do; it was late alone if less than half of
 * the processes had a slow one at that time: they had passes without it.
 */
#ifndef COPPICE_BENCH_DECODE_SLOW_H
#define COPPICE_BENCH_DECODE_SLOW_H

#include <stdint.h>

#define SLOW_TIMES 1.3
#define SLOW_EVENTS 16384u /* of each process; what comes later is not kept */

enum slow_kind {
	SLOW_PROMPT, /* who joins has its prompt computed */
	SLOW_ANEW, /* another process has begun its sequences anew */
	SLOW_PROGRAM, /* who joins gets program and memory */
	SLOW_WEIGHTS,
	SLOW_SESSION,
	SLOW_LEAVES,
	SLOW_STAYS, /* who has joined decodes */
	SLOW_NOTHING,
	SLOW_KINDS,
};

struct slow_event {
	uint64_t begin_ns, end_ns;
	enum slow_kind kind;
	uint32_t process;
};

/* One writer. */
struct slow_events {
	uint32_t n;
	struct slow_event of[SLOW_EVENTS];
};

struct slow_token {
	uint64_t begin_ns, end_ns;
	uint32_t process; /* 0 to 63 */
};

struct slow_figures {
	double p50_ms;
	uint32_t n, n_slow, n_late_alone;
	struct {
		uint32_t n, n_slow;
		double most_ms;
	} of[SLOW_KINDS];
};

const char *slow_name(enum slow_kind kind);
void slow_note(struct slow_events *events, const struct slow_event *event);
/* Sorts both. n_tokens > 0 of n_processes. Ends the program where there is no memory. */
void slow_count(struct slow_token *tokens, uint32_t n_tokens, struct slow_event *events,
		uint32_t n_events, uint32_t n_processes, struct slow_figures *ret);

#endif
