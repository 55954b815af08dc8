/*
 * busy.h - a user who is never done: sessions of one process, each of which decodes behind a path
 * and always has steps waiting in its lane.
 *
 * So nobody comes late for a turn of his, however slow the machine is. For measures of who has how
 * much of the backend's time.
 */
#ifndef COPPICE_BENCH_BUSY_H
#define COPPICE_BENCH_BUSY_H

#include <stdbool.h>
#include <stdint.h>

#define BUSY_ROWS_MAX 256u
#define BUSY_AHEAD_MAX 64u

struct busy {
	uint32_t n_sessions;
	uint32_t n_tokens; /* of each path */
	bool one_path; /* of all sessions, made once: else each has its own */
	uint32_t q_heads, kv_heads, dim; /* of a model of one layer, bf16 */
	uint32_t rows; /* of a step, 1 to BUSY_ROWS_MAX */
	uint32_t ahead; /* steps that a session has waiting, 1 to BUSY_AHEAD_MAX */
};

/* A byte to said once all paths are there; then they decode for as long as the parent lives.
 * Ends with 0, or what failed is on stderr. */
int busy_run(const struct busy *busy, const char *socket, int said);

#endif
