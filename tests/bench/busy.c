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
#define AHEAD_MAX 64u
#define REST_US 100

struct busy_session {
	struct coppice *c;
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	uint16_t *arena; /* q, k, v, o of CHUNK rows each */
	uint64_t tickets[AHEAD_MAX]; /* of steps [n_done, n_asked), round about */
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

static size_t row_elements(const struct busy *b)
{
	return (size_t)b->dim * (b->q_heads > b->kv_heads ? b->q_heads : b->kv_heads);
}

static int ask(const struct busy *b, struct busy_session *s, uint32_t n, bool append_only,
	       uint64_t *ret_ticket)
{
	size_t part = CHUNK * row_elements(b);
	struct coppice_step_seq rows = {.seq = s->seq,
					.n_new = n,
					.q = s->arena,
					.k = s->arena + part,
					.v = s->arena + 2 * part,
					.o = s->arena + 3 * part};
	struct coppice_step step = {.seqs = &rows, .n_seqs = 1, .append_only = append_only};
	static const uint32_t ids[CHUNK];
	int r = coppice_seq_extend(s->seq, ids, n, NULL);

	return r ? r : coppice_step(s->lane, &step, ret_ticket);
}

static int path_make(const struct busy *b, struct busy_session *s)
{
	uint64_t ticket = 0;
	int r = 0;

	for (uint32_t at = 0; at < path_tokens(b) && !r; at += CHUNK) {
		r = ask(b, s, CHUNK, true, &ticket);
		if (r == 0)
			r = coppice_wait(s->lane, ticket, COPPICE_FOREVER);
	}
	return r;
}

static int arena_make(const struct busy *b, struct busy_session *s)
{
	struct coppice_arena *arena;
	int r = coppice_arena_new(s->c, COPPICE_HOST,
				  4 * CHUNK * row_elements(b) * sizeof(uint16_t), &arena);

	if (r == 0)
		s->arena = coppice_arena_base(arena);
	return r;
}

/* A salt of its own: nothing is shared. */
static int session_start(const struct busy *b, struct busy_session *s, const char *socket,
			 uint32_t number)
{
	struct coppice_model_info info = {.name = "busy",
					  .n_layers = 1,
					  .n_q_heads = b->q_heads,
					  .n_kv_heads = b->kv_heads,
					  .head_dim = b->dim,
					  .dtype = COPPICE_BF16};
	uint32_t model, first = 0;
	int r = coppice_connect(&s->c, socket);

	if (r == 0)
		r = coppice_model_open(s->c, &info, &model);
	if (r == 0)
		r = arena_make(b, s);
	if (r == 0)
		r = coppice_lane_new(s->c, &s->lane);
	if (r == 0)
		r = coppice_seq_open(s->lane, model, &first, 1, number, &s->seq, NULL);
	return r ? r : path_make(b, s);
}

/* From time to time behind the path again: else it would grow until the pool is full. */
static int ask_more(const struct busy *b, struct busy_session *s)
{
	int r = 0;

	if (s->n_asked % (CHUNK / b->rows) == 0)
		r = coppice_seq_trim(s->seq, path_tokens(b), NULL);
	return r ? r : ask(b, s, b->rows, false, &s->tickets[s->n_asked % AHEAD_MAX]);
}

/* Takes what has been done, asks for as much more. */
static int session_go_on(const struct busy *b, struct busy_session *s, bool *ret_moved)
{
	struct coppice_result result = {0};
	int r = 0;

	while (s->n_done < s->n_asked && r == 0) {
		r = coppice_poll(s->lane, s->tickets[s->n_done % AHEAD_MAX], &result);
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
