/*
 * busy.c - see busy.h. All rows of a session lie at the same place of its arena, whatever is in
 * them: what comes out is nobody's concern.
 */
#include "busy.h"

#include "client/coppice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHUNK BUSY_ROWS_MAX
#define REST_US 100

struct busy_session {
	struct coppice *c;
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	uint16_t *arena; /* k, v of CHUNK rows each, q, o of a step's */
	uint64_t tickets[BUSY_AHEAD_MAX]; /* of steps [n_done, n_asked), round about */
	uint64_t n_done, n_asked;
};

/* Of a session, but for what it has decoded since. */
static uint32_t path_tokens(const struct busy *b)
{
	return (b->n_tokens + CHUNK - 2) / CHUNK * CHUNK;
}

/* Returns r. */
static int tell(int r, const struct busy_session *s)
{
	if (r < 0)
		fprintf(stderr, "a busy client: %s\n", coppice_explain(s->c));
	return r;
}

/* Elements of k or v, of q or o. */
static size_t kv_elements(const struct busy *b)
{
	return (size_t)CHUNK * b->kv_heads * b->dim;
}

static size_t q_elements(const struct busy *b)
{
	return (size_t)b->rows * b->q_heads * b->dim;
}

/* Rows of the path are attended by nobody: they have no q and no o. */
static int ask(const struct busy *b, struct busy_session *s, uint32_t n, bool append_only,
	       uint64_t *ret_ticket)
{
	uint16_t *q = append_only ? NULL : s->arena + 2 * kv_elements(b);
	struct coppice_step_seq rows = {.seq = s->seq,
					.n_new = n,
					.q = q,
					.k = s->arena,
					.v = s->arena + kv_elements(b),
					.o = q ? q + q_elements(b) : NULL};
	struct coppice_step step = {.seqs = &rows, .n_seqs = 1, .append_only = append_only};
	static const uint32_t ids[CHUNK];
	int r = coppice_seq_extend(s->seq, ids, n, NULL);

	return r ? r : coppice_step(s->lane, &step, ret_ticket);
}

/* The oldest of those that have been asked for. Returns its status. */
static int await(struct busy_session *s)
{
	return coppice_wait(s->lane, s->tickets[s->n_done++ % BUSY_AHEAD_MAX], COPPICE_FOREVER);
}

/* As many chunks on their way as steps are later: none waits for the daemon to hear of it. */
static int path_make(const struct busy *b, struct busy_session *s)
{
	int r = 0;

	for (uint32_t at = 0; at < path_tokens(b) && !r; at += CHUNK) {
		if (s->n_asked - s->n_done == b->ahead)
			r = await(s);
		if (r == 0)
			r = ask(b, s, CHUNK, true, &s->tickets[s->n_asked++ % BUSY_AHEAD_MAX]);
	}
	while (r == 0 && s->n_done < s->n_asked)
		r = await(s);
	s->n_done = s->n_asked = 0;
	return r;
}

static int arena_make(const struct busy *b, struct busy_session *s)
{
	struct coppice_arena *arena;
	int r = coppice_arena_new(s->c, COPPICE_HOST,
				  2 * (kv_elements(b) + q_elements(b)) * sizeof(uint16_t), &arena);

	if (r == 0)
		s->arena = coppice_arena_base(arena);
	return r;
}

/* With a salt of its own nothing is shared; with a common one the first makes the path, and the
 * others find it. */
static int path_find(const struct busy *b, struct busy_session *s, uint32_t model, uint32_t number)
{
	bool is_there = b->one_path && number > 1;
	uint32_t n = is_there ? path_tokens(b) + 1 : 1;
	uint32_t *ids = calloc(n, sizeof(*ids));
	struct coppice_match match = {0};
	int r = ids ? coppice_seq_open(s->lane, model, ids, n, b->one_path ? 0 : number, &s->seq,
				       &match)
		    : -ENOMEM;

	free(ids);
	if (r == 0 && !is_there)
		r = path_make(b, s);
	return r == 0 && is_there && match.cached < path_tokens(b) ? -ENOENT : r;
}

static int session_start(const struct busy *b, struct busy_session *s, const char *socket,
			 uint32_t number)
{
	struct coppice_model_info info = {.name = "busy",
					  .n_layers = 1,
					  .n_q_heads = b->q_heads,
					  .n_kv_heads = b->kv_heads,
					  .head_dim = b->dim,
					  .dtype = COPPICE_BF16};
	uint32_t model;
	int r = coppice_connect(&s->c, socket);

	if (r == 0)
		r = coppice_model_open(s->c, &info, &model);
	if (r == 0)
		r = arena_make(b, s);
	if (r == 0)
		r = coppice_lane_new(s->c, &s->lane);
	return r ? r : path_find(b, s, model, number);
}

/* From time to time behind the path again: else it would grow until the pool is full. */
static int ask_more(const struct busy *b, struct busy_session *s)
{
	int r = 0;

	if (s->n_asked % (CHUNK / b->rows) == 0)
		r = coppice_seq_trim(s->seq, path_tokens(b), NULL);
	return r ? r : ask(b, s, b->rows, false, &s->tickets[s->n_asked % BUSY_AHEAD_MAX]);
}

/* Takes what has been done, asks for as much more. */
static int session_go_on(const struct busy *b, struct busy_session *s, bool *ret_moved)
{
	struct coppice_result result = {0};
	int r = 0;

	while (s->n_done < s->n_asked && r == 0) {
		r = coppice_poll(s->lane, s->tickets[s->n_done % BUSY_AHEAD_MAX], &result);
		if (r == 0)
			r = result.status;
		if (r == 0)
			s->n_done++;
	}
	for (r = r == -EAGAIN ? 0 : r; r == 0 && s->n_asked - s->n_done < b->ahead; s->n_asked++) {
		r = ask_more(b, s);
		*ret_moved = true;
	}
	return r;
}

static int decode(const struct busy *b, struct busy_session *sessions)
{
	pid_t parent = getppid();
	int r = 0;

	while (r == 0 && getppid() == parent) {
		bool moved = false;

		for (uint32_t i = 0; i < b->n_sessions && r == 0; i++)
			r = tell(session_go_on(b, &sessions[i], &moved), &sessions[i]);
		if (!moved)
			usleep(REST_US);
	}
	return r;
}

int busy_run(const struct busy *busy, const char *socket, int said)
{
	struct busy_session *sessions = calloc(busy->n_sessions, sizeof(*sessions));
	int r = sessions ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < busy->n_sessions && r == 0; i++)
		r = tell(session_start(busy, &sessions[i], socket, i + 1), &sessions[i]);
	if (r == 0)
		r = write(said, "r", 1) == 1 ? decode(busy, sessions) : -EPIPE;
	for (uint32_t i = 0; sessions && i < busy->n_sessions; i++)
		coppice_close(sessions[i].c);
	free(sessions);
	return r;
}
