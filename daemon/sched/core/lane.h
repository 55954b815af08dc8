/*
 * lane.h - a lane, and where the step is that it holds.
 *
 * A lane serves its entries in order and holds one step at most: nothing behind it is looked at
 * until it is free again. Where its step is, one word says, and step_move alone changes it:
 *
 *      decode     FREE > AWAITING_INPUT > RUNNABLE <> HELD
 *                                            RUNNABLE > IN_BATCH > COMPLETED > FREE
 *      prefill    FREE > AWAITING_INPUT > WAITING_TURN > IN_BATCH, a slice at a time, till FREE
 *      cut        RUNNABLE > WAITING_TURN, then as prefill
 *      streamed   either > WAITING_TURN <> STREAMING, a slice at a time, till FREE
 *      refused    FREE > AWAITING_INPUT > REFUSED > FREE
 *      tokens     FREE > AWAITING_PASS <> IN_PASS, a chunk at a time, till FREE
 *
 * Who awaits no input leaves out that state; what a batch must leave out is RUNNABLE again.
 *
 *      FREE            it holds none
 *      AWAITING_INPUT  checked; a stream has not written its inputs yet
 *      REFUSED         is to fail, but no sooner than the stream has written its word
 *      RUNNABLE        decode: the next batch window decides on it
 *      HELD            decode: waits a moment for company
 *      WAITING_TURN    prefill, from its arrival on, cut or streamed: a slice at a time, in turns
 *      IN_BATCH        the backend has it, or is about to
 *      STREAMING       attention over its path, which is longer than the pool, is under way
 *      AWAITING_PASS   tokens of a program: the next pass decides how many of them it takes
 *      IN_PASS         the backend has some of them, or is about to
 *      COMPLETED       its entry is: the sequences are to follow before anything else is served
 *
 * A step fails from wherever it is, but for STREAMING: what is under way for several is given up
 * first. Each state has its queue.
 */
#ifndef COPPICED_LANE_H
#define COPPICED_LANE_H

#include "state.h"

#include <assert.h>

enum step_state {
	STEP_FREE,
	STEP_AWAITING_INPUT,
	STEP_REFUSED,
	STEP_RUNNABLE,
	STEP_HELD,
	STEP_WAITING_TURN,
	STEP_IN_BATCH,
	STEP_STREAMING,
	STEP_COMPLETED,
	STEP_AWAITING_PASS,
	STEP_IN_PASS,
	STEP_N_STATES
};

/* CUT: decode that takes too long for one batch, done in slices as prefill is. STREAMED: prefill or
 * decode over paths that are not all on the device. TOKENS: of a program, all layers at once. */
enum step_kind { STEP_DECODE, STEP_PREFILL, STEP_CUT, STEP_STREAMED, STEP_TOKENS };

/* One sequence of a step, checked and with addresses instead of offsets. */
struct step_part {
	struct sched_seq *seq;
	uint32_t n_new;
	uint32_t first_row; /* of a program's draft: so many of its rows were in passes before */
	uint32_t n_seen; /* tokens that its last row sees; 0: it only appends */
	uint32_t arena_in, arena_out;
	struct backend_io io;
};

/* It has rows, and they see nothing. */
static inline bool part_only_appends(const struct step_part *part)
{
	return part->n_new > 0 && part->n_seen == 0;
}

/* What slices saw of their paths that ask for sparse prefill, of what there was. */
struct step_seen {
	double attended, tokens; /* a slice's path, times its rows */
	double mass, rows; /* the estimated share of it, times its rows */
};

/* A step that passed all checks. */
struct step {
	enum step_kind kind;
	struct sched_model *model;
	uint32_t layer;
	uint32_t n_parts;
	struct step_part *parts; /* owned, grows, [n_parts] */
	uint32_t parts_room;
	uint32_t n_draft_rows; /* of draft trees */
	/* of all parts: pairs of a row and a token, tokens and nodes of paths */
	int64_t n_pairs, n_tokens, n_nodes;
	/* what it is modelled to take with no other, sharing nothing; arithmetic's part of it */
	double alone_ns, pairs_ns;
	bool by_stream; /* a stream writes its inputs, and says so in `ready` */
	/* address of a word that the device writes the ticket into; 0: none */
	uint64_t device_word;
	uint32_t word_arena; /* where that is; 0: none */
	struct step_seen seen;
	uint32_t next_part, next_row; /* where the next slice begins */
	uint64_t arrival_ns; /* 0: it was refused */
	uint64_t done_ns; /* when it was done, as far as nothing failed; 0: it is not */
};

/* One sequence of a decode entry. */
struct decode_part {
	uint32_t n_new, first_wanted;
	uint32_t first_id; /* of the entry's ids */
	uint32_t first_out; /* of the entry's rows that are wanted */
	uint32_t n_done; /* published, or of a draft live */
};

/* A decode entry that passed all checks; its sequences are its step's parts, whose n_new are those
 * tokens that the pass has. */
struct decode {
	struct decode_part *parts; /* owned, grows, [step.n_parts] */
	uint32_t parts_room;
	const uint32_t *ids; /* in the lane's body */
	const uint32_t *parents; /* the same; NULL: it is no draft */
	uint64_t out; /* the backend's address */
	uint32_t stride;
	uint32_t want, n_top;
	uint64_t pass; /* number of the last that it was in */
	uint64_t pass_ns; /* when that began, or ended; 0: it was in none; and whose it was */
	const struct sched_model *pass_of;
	uint64_t awaited; /* number of the last that waited for it */
	uint32_t n_rows; /* that it has there */
	bool newcomer; /* its sequence was opened right before */
};

/* How a lane keeps company: seq/pace.h. All zero: it has decoded nothing yet. */
struct pace {
	uint32_t n_met; /* how many met in its last decode job; 0: none was */
	uint32_t n_layers;
	uint32_t next_layer;
	uint64_t held_until_ns; /* its step was to wait for company until then at most; 0: not */
	uint64_t done_ns; /* when its last decode step completed; 0: never */
	/* its next one has been waited for since then, until then at most; 0: not, or it is
	 * charged */
	uint64_t awaited_ns, awaited_until_ns;
	/* from completion to the next step: [0] within a token, [1] to the next token's first
	 * layer */
	double lag_ns[2];
	uint32_t n_lags; /* that they were learned from */
	double layer_ns; /* from completion to completion within a token */
	const struct sched_model *model;
	const struct sched_seq *seq; /* the first of its last step: what it may share with others */
};

struct sched_lane {
	TAILQ_ENTRY(sched_lane) link; /* of the scheduler: all lanes, oldest first */
	LIST_ENTRY(sched_lane) session_link;
	struct sched_session *session;
	uint32_t number; /* in its session */
	uint64_t serial; /* among all lanes ever */
	uint32_t poll; /* index in the scheduler's polls */
	struct abi_lane *shared; /* lent by the loop; hostile */
	int notify_fd; /* lent; -1: none */
	uint64_t accepted; /* tickets taken from the ring; ours, never read back */
	uint32_t word; /* the entry's pair of words; ABI_LANE_WORDS: none */
	bool broken; /* its words made no sense: not served any more */
	uint32_t n_seqs;
	uint64_t active_ns; /* when it last had an entry */
	uint8_t *body; /* owned, ABI_BODY_MAX_BYTES: the one copy of an entry's body */

	enum step_state state; /* step_move's */
	TAILQ_ENTRY(sched_lane) state_link; /* step_move's */
	uint64_t moved; /* step_move's: counts, so that of two lanes one came first */
	struct step step;
	struct decode decode; /* step.kind TOKENS */
	struct outcome refusal; /* REFUSED: how the step ends */
	uint64_t await_since_ns, await_look_ns; /* AWAITING_INPUT, REFUSED: input_wait.h */
	struct pace pace;
	/* A sequence of a program was opened, and no tokens have come since: seq/pace.h. */
	const struct sched_model *opened;
	uint64_t opened_ns;
	bool is_away; /* core/away.h */
	int64_t away_alone_ns; /* of its last step, as the next */
	double away_pairs_ns;
};
TAILQ_HEAD(sched_lane_queue, sched_lane);

/* Lanes by the state of their steps, in order of arrival. */
struct step_queues {
	struct sched_lane_queue lanes[STEP_N_STATES];
	uint32_t n[STEP_N_STATES], n_lanes;
	uint64_t n_moves;
	bool changed; /* since the batch window last looked */
};

static inline void step_queues_init(struct step_queues *q)
{
	*q = (struct step_queues){0};
	for (int i = 0; i < STEP_N_STATES; i++)
		TAILQ_INIT(&q->lanes[i]);
}

static inline bool step_may_move(enum step_state from, enum step_state to)
{
#define TO(state) (1u << STEP_##state)
	static const uint16_t moves[STEP_N_STATES] = {
		[STEP_FREE] = TO(AWAITING_INPUT) | TO(REFUSED) | TO(RUNNABLE) | TO(WAITING_TURN) |
			      TO(AWAITING_PASS),
		[STEP_AWAITING_INPUT] = TO(RUNNABLE) | TO(WAITING_TURN) | TO(REFUSED) | TO(FREE),
		[STEP_REFUSED] = TO(FREE),
		[STEP_RUNNABLE] = TO(HELD) | TO(IN_BATCH) | TO(WAITING_TURN) | TO(FREE),
		[STEP_HELD] = TO(RUNNABLE) | TO(WAITING_TURN) | TO(FREE),
		[STEP_WAITING_TURN] = TO(IN_BATCH) | TO(STREAMING) | TO(FREE),
		[STEP_IN_BATCH] = TO(COMPLETED) | TO(RUNNABLE) | TO(WAITING_TURN) | TO(FREE),
		[STEP_STREAMING] = TO(STREAMING) | TO(WAITING_TURN),
		[STEP_COMPLETED] = TO(FREE),
		[STEP_AWAITING_PASS] = TO(IN_PASS) | TO(FREE),
		[STEP_IN_PASS] = TO(AWAITING_PASS) | TO(FREE),
	};
#undef TO
	return moves[from] >> to & 1;
}

/* To the end of that state's queue. */
static inline void step_move(struct step_queues *q, struct sched_lane *lane, enum step_state to)
{
	assert(step_may_move(lane->state, to));
	TAILQ_REMOVE(&q->lanes[lane->state], lane, state_link);
	q->n[lane->state]--;
	lane->state = to;
	lane->moved = ++q->n_moves;
	TAILQ_INSERT_TAIL(&q->lanes[to], lane, state_link);
	q->n[to]++;
	q->changed = true;
}

static inline struct sched_lane *step_first(const struct step_queues *q, enum step_state state)
{
	return TAILQ_FIRST(&q->lanes[state]);
}

/* Room for the parts of an entry that names so many sequences: who names more than the lane has is
 * found out at the first that it has not. */
static inline uint32_t lane_room(const struct sched_lane *lane, uint32_t n_named)
{
	return n_named <= lane->n_seqs ? n_named : lane->n_seqs + 1;
}

/* Of its decode entry. */
static inline uint32_t decode_tokens_left(const struct sched_lane *lane)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		n += lane->decode.parts[i].n_new - lane->decode.parts[i].n_done;
	return n;
}

/* The same that are published; of a draft none is. */
static inline uint32_t decode_tokens_done(const struct sched_lane *lane)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < lane->step.n_parts && !lane->decode.parents; i++)
		n += lane->decode.parts[i].n_done;
	return n;
}

/* Its inputs are there: it can run, or does, or has. */
static inline bool step_is_there(const struct sched_lane *lane)
{
	return lane->state >= STEP_RUNNABLE;
}

/* Whose lane it is was there then at the latest: it came, or was done. 0: it was refused. */
static inline uint64_t step_seen_ns(const struct step *step)
{
	return step->done_ns ? step->done_ns : step->arrival_ns;
}

/* Steps of which step_is_there holds. */
static inline uint32_t step_n_there(const struct step_queues *q)
{
	return q->n_lanes - q->n[STEP_FREE] - q->n[STEP_AWAITING_INPUT] - q->n[STEP_REFUSED];
}

#endif
