/*
 * step_check.c - what a client says of a step, against what the daemon knows.
 *
 * The body is the daemon's own copy, so that what was checked is what is used. A part that passes
 * has addresses of the backend's, all of whose rows lie in arenas of the lane's session. A step is
 * taken whole or refused whole: what it named by right is void then, as its layer will not come.
 */
#include "step_check.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/seq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DECODE_MAX_NEW 16 /* longer extensions are prefill, unless they are draft trees */
#define STEP_FLAGS (ABI_STEP_APPEND_ONLY | ABI_STEP_STREAM | ABI_STEP_WORDS | ABI_STEP_TELL)
/* Rows of a step's draft trees; more are done tree by tree, as prefill is. */
#define DECODE_MAX_DRAFTS 1024

/* A tensor of a part: n rows of row_bytes, stride apart. */
struct tensor {
	uint64_t offset;
	uint32_t stride;
	uint64_t row_bytes;
	uint32_t align; /* a power of two */
};

static enum abi_reason tensor_check(const struct sched_arena *arena, const struct tensor *t,
				    uint32_t n_rows)
{
	if ((t->offset | t->stride) & (t->align - 1))
		return ABI_MISALIGNED;
	if (t->offset >= arena->bytes || t->row_bytes > arena->bytes - t->offset)
		return ABI_OUT_OF_ARENA;
	uint64_t room = arena->bytes - t->offset - t->row_bytes;

	return (uint64_t)(n_rows - 1) * t->stride > room ? ABI_OUT_OF_ARENA : ABI_OK;
}

static enum abi_reason check_inputs(const struct sched_core *core, const struct sched_lane *lane,
				    const struct abi_step_seq *rec, bool append_only,
				    struct step_part *part)
{
	const struct work_shape *shape = &part->seq->model->shape;
	struct backend_io *io = &part->io;
	uint32_t elt = (uint32_t)work_dtype_bytes(shape->dtype);
	uint64_t q_row = (uint64_t)shape->n_q_heads * shape->head_dim * elt;
	uint64_t k_row = (uint64_t)shape->n_kv_heads * shape->head_dim * elt;
	const struct sched_arena *arena = session_arena(core, lane->session, rec->arena_in);
	const struct tensor q = {rec->q, rec->q_stride, q_row, elt};
	const struct tensor k = {rec->k, rec->k_stride, k_row, elt};
	const struct tensor v = {rec->v, rec->v_stride, k_row, elt};
	enum abi_reason bad = arena ? ABI_OK : ABI_BAD_ARENA;

	if (!bad && !append_only)
		bad = tensor_check(arena, &q, rec->n_new);
	if (!bad)
		bad = tensor_check(arena, &k, rec->n_new);
	if (!bad)
		bad = tensor_check(arena, &v, rec->n_new);
	if (bad)
		return bad;
	io->q = arena->base + rec->q;
	io->k = arena->base + rec->k;
	io->v = arena->base + rec->v;
	io->q_stride = rec->q_stride;
	io->k_stride = rec->k_stride;
	io->v_stride = rec->v_stride;
	return ABI_OK;
}

static enum abi_reason check_outputs(const struct sched_core *core, const struct sched_lane *lane,
				     const struct abi_step_seq *rec, struct step_part *part)
{
	const struct work_shape *shape = &part->seq->model->shape;
	struct backend_io *io = &part->io;
	uint32_t elt = (uint32_t)work_dtype_bytes(shape->dtype);
	const struct sched_arena *arena = session_arena(core, lane->session, rec->arena_out);
	const struct tensor o = {rec->o, rec->o_stride,
				 (uint64_t)shape->n_q_heads * shape->head_dim * elt, elt};
	const struct tensor lse = {rec->lse, rec->lse_stride, shape->n_q_heads * sizeof(float),
				   sizeof(float)};
	enum abi_reason bad = arena ? tensor_check(arena, &o, rec->n_new) : ABI_BAD_ARENA;

	if (!bad && rec->lse != ABI_NO_OFFSET)
		bad = tensor_check(arena, &lse, rec->n_new);
	if (bad)
		return bad;
	io->o = arena->base + rec->o;
	io->o_stride = rec->o_stride;
	io->lse = rec->lse == ABI_NO_OFFSET ? 0 : arena->base + rec->lse;
	io->lse_stride = rec->lse_stride;
	return ABI_OK;
}

static enum abi_reason check_seq(struct sched_core *core, const struct sched_lane *lane,
				 const struct abi_entry *e, const struct step_part *part,
				 uint32_t n_live)
{
	struct sched_seq *seq = part->seq;

	if (seq->lane != lane)
		return ABI_WRONG_LANE;
	if (seq->last_step == core->n_steps)
		return ABI_SEQ_TWICE;
	seq->last_step = core->n_steps;
	if (seq->model->program)
		return ABI_HAS_PROGRAM;
	if (seq->voided)
		return ABI_VOID;
	if (lane->step.model && seq->model != lane->step.model)
		return ABI_MIXED_MODELS;
	if (n_live == 0 || seq->computed)
		return seq->failure.ticket ? ABI_VOID : ABI_NOT_EXTENDED;
	if (e->layer != seq->next_layer)
		return ABI_WRONG_LAYER;
	if (part->n_new != n_live)
		return ABI_WRONG_COUNT;
	return ABI_OK;
}

static void add_weight(struct step *step, const struct step_part *part)
{
	step->n_pairs += (int64_t)part->n_new * part->n_seen;
	step->n_tokens += part->n_seen;
	step->n_nodes += part->n_seen ? store_seq_most_nodes(part->seq->store) : 0;
}

static enum abi_reason check_part(struct sched_core *core, struct sched_lane *lane,
				  const struct abi_entry *e, const struct abi_step_seq *rec,
				  struct step_part *part)
{
	struct sched_seq *seq = handle_find(&core->seqs, lane->session, rec->seq);
	bool append_only = e->flags & ABI_STEP_APPEND_ONLY;
	enum abi_reason bad = ABI_STALE_SEQ;

	*part = (struct step_part){.seq = seq,
				   .n_new = rec->n_new,
				   .arena_in = rec->arena_in,
				   .arena_out = rec->arena_out};
	if (!seq)
		return bad;
	struct store_seq_view view = store_seq_view(seq->store);

	bad = check_seq(core, lane, e, part, view.n_live);
	if (bad)
		return bad;
	part->n_seen = append_only ? 0 : view.n_tokens + part->n_new;
	bad = check_inputs(core, lane, rec, append_only, part);
	if (!bad && !append_only)
		bad = check_outputs(core, lane, rec, part);
	add_weight(&lane->step, part);
	lane->step.model = seq->model;
	lane->step.n_draft_rows += seq->parents ? rec->n_new : 0;
	if (seq->parents ? lane->step.n_draft_rows > DECODE_MAX_DRAFTS
			 : rec->n_new > DECODE_MAX_NEW)
		lane->step.kind = STEP_PREFILL;
	return bad;
}

static struct outcome refused_part(const struct step *step, enum abi_reason reason, uint32_t where)
{
	switch (reason) {
	case ABI_STALE_SEQ:
		return outcome_bad(-ESTALE, reason, where);
	case ABI_VOID:
		return seq_failed_before(step->parts[where].seq, where);
	default:
		return outcome_bad(-EINVAL, reason, where);
	}
}

bool step_may_be_sparse(const struct step_part *part)
{
	const struct abi_sparse *wish = &part->seq->sparse;

	return wish->tau > 0 && wish->tau < 1 && part->n_new > DECODE_MAX_NEW &&
	       !part->seq->draft && part->io.o;
}

/* As if nothing of it were shared, within the step or with others. */
static void weigh(struct step *step)
{
	step->pairs_ns = (double)step->n_pairs * step->model->pair_ns;
	step->alone_ns = step->model->cost.fixed_ns + step->pairs_ns +
			 path_ns(step->model, (double)step->n_tokens, (double)step->n_nodes);
}

/* The sequences that a refused step named: their layer will not come any more. */
static void void_named(struct sched_core *core, struct sched_lane *lane,
		       const struct outcome *outcome)
{
	const struct abi_step_seq *recs = (const struct abi_step_seq *)(const void *)lane->body;
	uint32_t n = lane->step.n_parts;

	for (uint32_t i = 0; i < n; i++) {
		struct sched_seq *seq = handle_find(&core->seqs, lane->session, recs[i].seq);

		if (seq && seq->lane == lane && store_seq_n_live(seq->store))
			seq_void(core, seq, outcome);
	}
}

/* A word that the device is to write: the session's own, on the device. */
static enum abi_reason check_device_word(const struct sched_core *core, struct sched_lane *lane,
					 const struct abi_entry *e)
{
	const struct sched_arena *arena;

	if (!(e->flags & ABI_STEP_TELL))
		return ABI_OK;
	arena = e->seq <= UINT32_MAX ? session_arena(core, lane->session, (uint32_t)e->seq) : NULL;
	if (!arena || !arena->device)
		return ABI_BAD_ARENA;
	if (e->arg % sizeof(uint64_t))
		return ABI_MISALIGNED;
	if (e->arg >= arena->bytes)
		return ABI_OUT_OF_ARENA;
	lane->step.device_word = arena->base + e->arg;
	lane->step.word_arena = (uint32_t)e->seq;
	return ABI_OK;
}

/* What the device writes to the host's memory may be there later than a word in its own. */
static bool outputs_are_near(const struct sched_core *core, const struct sched_lane *lane)
{
	for (uint32_t i = 0; i < lane->step.n_parts; i++) {
		const struct sched_arena *arena =
			session_arena(core, lane->session, lane->step.parts[i].arena_out);

		if (!arena || !arena->device)
			return false;
	}
	return true;
}

static enum abi_reason check_entry(const struct abi_entry *e)
{
	if (e->flags & ~(uint32_t)STEP_FLAGS ||
	    (e->flags & ABI_STEP_STREAM && e->flags & ABI_STEP_WORDS) ||
	    (e->flags & ABI_STEP_TELL && !(e->flags & ABI_STEP_STREAM)))
		return ABI_BAD_FLAGS;
	if (e->flags & ABI_STEP_WORDS && e->arg >= ABI_LANE_WORDS)
		return ABI_BAD_WORD;
	if (e->count == 0)
		return ABI_NO_TOKENS;
	return e->body_bytes == (uint64_t)e->count * sizeof(struct abi_step_seq) ? ABI_OK
										 : ABI_BAD_BODY;
}

/* All but the room of its parts. Field by field: to clear so many bytes at once takes long to
 * begin. */
static void step_begin(struct step *step, const struct abi_entry *e)
{
	step->kind = STEP_DECODE;
	step->model = NULL;
	step->layer = e->layer;
	step->n_parts = e->count;
	step->n_draft_rows = 0;
	step->n_pairs = step->n_tokens = step->n_nodes = 0;
	step->alone_ns = step->pairs_ns = 0;
	step->by_stream = e->flags & ABI_STEP_STREAM;
	step->device_word = 0;
	step->word_arena = 0;
	step->seen = (struct step_seen){0};
	step->next_part = step->next_row = 0;
	step->arrival_ns = step->done_ns = 0;
}

struct outcome step_check(struct sched_core *core, struct sched_lane *lane,
			  const struct abi_entry *e)
{
	const struct abi_step_seq *recs = (const struct abi_step_seq *)(const void *)lane->body;
	struct step *step = &lane->step;
	enum abi_reason bad = check_entry(e);
	uint32_t where = 0;

	if (bad)
		return outcome_bad(-EINVAL, bad, 0);
	if (GROW(step->parts, step->parts_room, lane_room(lane, e->count)) < 0)
		return outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0);
	step_begin(step, e);
	core->n_steps++;
	bad = check_device_word(core, lane, e);
	for (uint32_t i = 0; i < e->count && !bad; i++) {
		bad = check_part(core, lane, e, &recs[i], &step->parts[i]);
		where = i;
	}
	if (bad) {
		struct outcome outcome = refused_part(step, bad, where);

		void_named(core, lane, &outcome);
		return outcome;
	}
	step->arrival_ns = core->now_ns;
	weigh(step);
	if (step->device_word && !outputs_are_near(core, lane))
		step->device_word = 0;
	return OUTCOME_OK;
}
