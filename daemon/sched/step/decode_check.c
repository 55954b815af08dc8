/*
 * decode_check.c - what a client says of tokens, against what the daemon knows.
 *
 * The body is the daemon's own copy: a head, a record a sequence, and the ids of all of them. What
 * is refused has changed nothing, as tokens are appended by the pass that runs them.
 */
#include "decode_check.h"

#include "daemon/base/grow.h"
#include "daemon/program/held_program.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/seq/seq.h"
#include "proto/ring.h"

#include <errno.h>
#include <string.h>

#define WANTS (ABI_WANT_TOP | ABI_WANT_SCORE | ABI_WANT_LOGITS | ABI_WANT_HIDDEN)

static_assert(sizeof(struct abi_row) == sizeof(struct program_row), "one struct, two borders");
static_assert((int)ABI_WANT_TOP == (int)PROGRAM_WANT_TOP &&
		      (int)ABI_WANT_SCORE == (int)PROGRAM_WANT_SCORE &&
		      (int)ABI_WANT_LOGITS == (int)PROGRAM_WANT_LOGITS &&
		      (int)ABI_WANT_HIDDEN == (int)PROGRAM_WANT_HIDDEN,
	      "one enum, two borders");

/* The body in its three parts. */
struct body {
	struct abi_decode head;
	const struct abi_decode_seq *seqs;
	const uint32_t *ids;
	const uint32_t *parents; /* NULL: no draft */
	uint32_t n_ids;
};

static enum abi_reason body_read(const struct sched_lane *lane, const struct abi_entry *e,
				 struct body *ret)
{
	uint64_t seqs_bytes = (uint64_t)e->count * sizeof(*ret->seqs);
	uint64_t least = sizeof(ret->head) + seqs_bytes;
	bool draft = e->flags & ABI_EXTEND_PARENTS;
	uint32_t id_bytes = sizeof(uint32_t) * (draft ? 2 : 1);

	if (e->flags & ~(uint32_t)(draft ? ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS : 0))
		return ABI_BAD_FLAGS;
	if (e->count == 0)
		return ABI_NO_TOKENS;
	if (e->body_bytes < least || (e->body_bytes - least) % id_bytes)
		return ABI_BAD_BODY;
	memcpy(&ret->head, lane->body, sizeof(ret->head));
	ret->seqs = (const void *)(lane->body + sizeof(ret->head));
	ret->ids = (const void *)(lane->body + least);
	ret->n_ids = (uint32_t)((e->body_bytes - least) / id_bytes);
	ret->parents = draft ? ret->ids + ret->n_ids : NULL;
	return ABI_OK;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static enum abi_reason seq_check(struct sched_core *core, const struct sched_lane *lane,
				 struct sched_seq *seq)
{
	if (!seq)
		return ABI_STALE_SEQ;
	if (seq->lane != lane)
		return ABI_WRONG_LANE;
	if (seq->last_step == core->n_steps)
		return ABI_SEQ_TWICE;
	seq->last_step = core->n_steps;
	if (!seq->model->program)
		return ABI_NO_PROGRAM;
	if (seq->voided)
		return ABI_VOID;
	if (seq->draft)
		return ABI_NOT_ACCEPTED;
	return lane->step.model && seq->model != lane->step.model ? ABI_MIXED_MODELS : ABI_OK;
}

static enum abi_reason tokens_check(const struct sched_core *core, const struct sched_seq *seq,
				    const uint32_t *ids, uint32_t n)
{
	const struct program *program = &seq->model->program->program;
	uint32_t n_tokens = store_seq_n_tokens(seq->store);

	if (n == 0)
		return ABI_NO_TOKENS;
	if (n_tokens > core->config->max_seq_tokens || n > core->config->max_seq_tokens - n_tokens)
		return ABI_TOO_MANY_TOKENS;
	if (n_tokens > program->max_positions || n > program->max_positions - n_tokens)
		return ABI_TOO_FAR;
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] >= program->n_vocab)
			return ABI_BAD_TOKEN;
	return ABI_OK;
}

static enum abi_reason draft_check(const uint32_t *parents, uint32_t n)
{
	if (n > ABI_DECODE_DRAFT_MAX)
		return ABI_TOO_MANY_TOKENS;
	for (uint32_t i = 0; i < n; i++)
		if (parents[i] != WORK_NONE && parents[i] >= i)
			return ABI_BAD_PARENTS;
	return ABI_OK;
}

/* Where the next part begins, of ids and of rows that are wanted. */
struct cursor {
	uint32_t id, out;
};

static enum abi_reason part_check(struct sched_core *core, struct sched_lane *lane,
				  const struct body *body, uint32_t index, struct cursor *at)
{
	const struct abi_decode_seq *rec = &body->seqs[index];
	struct sched_seq *seq = handle_find(&core->seqs, lane->session, rec->seq);
	enum abi_reason bad = seq_check(core, lane, seq);
	uint32_t n_wanted = body->head.want && rec->first_wanted < rec->n_new
				    ? rec->n_new - rec->first_wanted
				    : 0;

	lane->step.parts[index] = (struct step_part){.seq = seq, .arena_out = body->head.arena};
	if (!bad && rec->n_new > body->n_ids - at->id)
		bad = ABI_BAD_BODY;
	if (!bad)
		bad = tokens_check(core, seq, body->ids + at->id, rec->n_new);
	if (!bad && body->parents)
		bad = draft_check(body->parents + at->id, rec->n_new);
	if (!bad && n_wanted > ABI_DECODE_ROWS_MAX - at->out)
		bad = ABI_TOO_MANY_ROWS;
	if (bad)
		return bad;
	lane->step.model = seq->model;
	lane->decode.parts[index] = (struct decode_part){.n_new = rec->n_new,
							 .first_wanted = rec->first_wanted,
							 .first_id = at->id,
							 .first_out = at->out};
	at->id += rec->n_new;
	at->out += n_wanted;
	return ABI_OK;
}

static struct outcome refused(const struct sched_lane *lane, enum abi_reason reason, uint32_t where)
{
	switch (reason) {
	case ABI_STALE_SEQ:
		return outcome_bad(-ESTALE, reason, where);
	case ABI_TOO_MANY_TOKENS:
	case ABI_TOO_FAR:
		return outcome_bad(-E2BIG, reason, where);
	case ABI_NOT_ACCEPTED:
		return outcome_bad(-EBUSY, reason, where);
	case ABI_VOID:
		return seq_failed_before(lane->step.parts[where].seq, where);
	default:
		return outcome_bad(-EINVAL, reason, where);
	}
}

/* ---- results -------------------------------------------------------------------------------- */

static uint64_t row_bytes(const struct abi_decode *head, const struct program *program)
{
	uint64_t bytes = sizeof(struct abi_row);

	if (head->want & ABI_WANT_LOGITS)
		bytes += (uint64_t)program->n_vocab * sizeof(float);
	if (head->want & ABI_WANT_HIDDEN)
		bytes += (uint64_t)program->hidden * sizeof(float);
	return bytes;
}

static enum abi_reason want_check(const struct abi_decode *head, uint64_t bytes)
{
	bool top = head->want & ABI_WANT_TOP;

	if (head->want & ~(uint32_t)WANTS || head->n_top > ABI_TOP_MAX || top != (head->n_top > 0))
		return ABI_BAD_WANT;
	if ((head->out | head->stride) % sizeof(float))
		return ABI_MISALIGNED;
	return head->stride < bytes ? ABI_BAD_WANT : ABI_OK;
}

static enum abi_reason results_check(const struct sched_core *core, struct sched_lane *lane,
				     const struct abi_decode *head, uint32_t n_rows)
{
	const struct sched_arena *arena = session_arena(core, lane->session, head->arena);
	uint64_t bytes = row_bytes(head, &lane->step.model->program->program);
	enum abi_reason bad = n_rows ? want_check(head, bytes) : ABI_OK;

	if (n_rows == 0 || bad)
		return bad;
	if (!arena)
		return ABI_BAD_ARENA;
	if (head->out >= arena->bytes || bytes > arena->bytes - head->out ||
	    (uint64_t)(n_rows - 1) * head->stride > arena->bytes - head->out - bytes)
		return ABI_OUT_OF_ARENA;
	lane->decode.out = arena->base + head->out;
	lane->decode.stride = head->stride;
	lane->decode.want = head->want;
	lane->decode.n_top = head->n_top;
	return ABI_OK;
}

/* ---- the entry ------------------------------------------------------------------------------ */

static int entry_begin(const struct sched_core *core, struct sched_lane *lane, uint32_t n_named)
{
	uint32_t n = lane_room(lane, n_named);
	struct step *step = &lane->step;
	struct decode *decode = &lane->decode;

	if (GROW(step->parts, step->parts_room, n) < 0 ||
	    GROW(decode->parts, decode->parts_room, n) < 0)
		return -ENOMEM;
	*step = (struct step){.kind = STEP_TOKENS,
			      .parts = step->parts,
			      .parts_room = step->parts_room,
			      .n_parts = n,
			      .arrival_ns = core->now_ns};
	*decode = (struct decode){.parts = decode->parts,
				  .parts_room = decode->parts_room,
				  .pass = decode->pass,
				  .pass_ns = decode->pass_ns,
				  .pass_of = decode->pass_of,
				  .awaited = decode->awaited};
	return 0;
}

struct outcome decode_check(struct sched_core *core, struct sched_lane *lane,
			    const struct abi_entry *e)
{
	struct cursor at = {0};
	struct body body = {0};
	enum abi_reason bad = body_read(lane, e, &body);
	uint32_t where = 0;

	if (bad)
		return outcome_bad(-EINVAL, bad, 0);
	if (ring_is_cancelled(lane->shared, lane->accepted))
		return outcome_bad(-ECANCELED, ABI_CANCELLED, 0);
	if (entry_begin(core, lane, e->count) < 0)
		return outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0);
	core->n_steps++;
	for (uint32_t i = 0; i < e->count && !bad; i++) {
		bad = part_check(core, lane, &body, i, &at);
		where = i;
	}
	if (!bad && at.id != body.n_ids)
		bad = ABI_BAD_BODY;
	if (!bad)
		bad = results_check(core, lane, &body.head, at.out);
	if (bad) {
		lane->step.arrival_ns = 0;
		return refused(lane, bad, where);
	}
	lane->decode.ids = body.ids;
	lane->decode.parents = body.parents;
	pace_arrived(core, lane);
	return OUTCOME_OK;
}
