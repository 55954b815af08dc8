/*
 * step.c - a step's pointers become places in arenas, natural strides are filled in, and the entry
 * goes out.
 *
 * Records are made in the ring, where the daemon will read them: nothing is taken there before the
 * entry is published, so that a step with a mistake just leaves them. What only the daemon knows
 * (layers, live tokens, the arena's end) is checked there.
 */
#include "step.h"

#include "client/lib/base/sized.h"
#include "client/lib/lane/wait.h"
#include "client/lib/memory/arena.h"
#include "client/lib/seq/seq.h"

#include <errno.h>

#define MAX_SEQS ((uint32_t)(ABI_BODY_MAX_BYTES / sizeof(struct abi_step_seq)))

static int explain_tensor(struct coppice *c, uint32_t index, const char *name, const char *wrong)
{
	return explain(c->key, -EINVAL, "coppice_step: %s of sequence %u %s", name, index, wrong);
}

/* One tensor of a sequence, and where its place is to be noted. *arena: of those before it that
 * belong with it; 0: it is the first. */
struct tensor {
	const char *name;
	const void *pointer;
	uint32_t *arena;
	uint64_t *offset;
};

static int explain_place(struct coppice *c, uint32_t index, const struct tensor *t, uint32_t arena)
{
	if (!t->pointer)
		return explain_tensor(c, index, t->name, "is NULL");
	if (arena == 0)
		return explain_tensor(c, index, t->name,
				      "does not lie in an arena of this connection; allocate it "
				      "from coppice_arena_new");
	return explain_tensor(c, index, t->name,
			      "lies in another arena than its fellows; q, k and v belong "
			      "in one, o and lse in one");
}

static inline int place_tensor(struct coppice *c, uint32_t index, struct tensor t,
			       struct arena_span *last)
{
	struct arena_place place = arena_place_of(c, t.pointer, last);

	if (place.arena == 0 || (*t.arena && *t.arena != place.arena))
		return explain_place(c, index, &t, place.arena);
	*t.arena = place.arena;
	*t.offset = place.offset;
	return 0;
}

static inline int place_inputs(struct coppice *c, uint32_t i, const struct coppice_step *step,
			       struct abi_step_seq *record, struct arena_span *last)
{
	const struct coppice_step_seq *s = &step->seqs[i];
	uint32_t *arena = &record->arena_in;
	int r = place_tensor(c, i, (struct tensor){"k", s->k, arena, &record->k}, last);

	if (r == 0)
		r = place_tensor(c, i, (struct tensor){"v", s->v, arena, &record->v}, last);
	if (r == 0 && !step->append_only)
		r = place_tensor(c, i, (struct tensor){"q", s->q, arena, &record->q}, last);
	return r;
}

static inline int place_outputs(struct coppice *c, uint32_t i, const struct coppice_step *step,
				struct abi_step_seq *record, struct arena_span *last)
{
	const struct coppice_step_seq *s = &step->seqs[i];
	uint32_t *arena = &record->arena_out;
	int r;

	/* Nothing comes out: no place is looked at. */
	if (step->append_only) {
		record->arena_out = record->arena_in;
		return 0;
	}
	r = place_tensor(c, i, (struct tensor){"o", s->o, arena, &record->o}, last);
	if (r == 0 && s->lse)
		r = place_tensor(c, i, (struct tensor){"lse", s->lse, arena, &record->lse}, last);
	return r;
}

static uint32_t stride_or(uint32_t stride, uint32_t natural)
{
	return stride ? stride : natural;
}

static int check_seq(struct coppice *c, uint32_t index, const struct coppice_step_seq *s)
{
	if (!s->seq)
		return explain_tensor(c, index, "the handle", "is NULL");
	if (s->seq->lane->c != c)
		return explain_tensor(c, index, "the handle", "belongs to another connection");
	if (s->n_new == 0)
		return explain_tensor(c, index, "n_new", "is 0; give at least one token");
	if (s->pad || s->reserved[0] || s->reserved[1])
		return explain_tensor(c, index, "a reserved word",
				      "is not 0; this library has no meaning for it");
	return 0;
}

/* Made here and put there at once: the place is the ring's, whose lines the daemon's processor
 * has. */
static int make_record(struct coppice *c, uint32_t i, const struct coppice_step *step,
		       struct abi_step_seq *ret, struct arena_span *last)
{
	const struct coppice_step_seq *s = &step->seqs[i];
	int r = check_seq(c, i, s);

	if (r < 0)
		return r;
	struct abi_step_seq record = {
		.seq = s->seq->handle,
		.lse = ABI_NO_OFFSET,
		.q_stride = stride_or(s->q_stride, s->seq->model.q_row_bytes),
		.k_stride = stride_or(s->k_stride, s->seq->model.kv_row_bytes),
		.v_stride = stride_or(s->v_stride, s->seq->model.kv_row_bytes),
		.o_stride = stride_or(s->o_stride, s->seq->model.q_row_bytes),
		.lse_stride = stride_or(s->lse_stride, s->seq->model.lse_row_bytes),
		.n_new = s->n_new,
	};

	r = place_inputs(c, i, step, &record, last);
	if (r == 0)
		r = place_outputs(c, i, step, &record, last);
	*ret = record;
	return r;
}

int step_check(struct coppice *c, const struct coppice_step *step)
{
	struct sized_caller caller = {c->key, "coppice_step"};
	int r = connection_check(c);

	if (r == 0)
		r = sized_check(caller, step, sizeof(*step));
	if (r < 0)
		return r;
	if (step->n_seqs == 0 || !step->seqs)
		return explain(c->key, -EINVAL, "coppice_step: there are no sequences");
	if (step->n_seqs > MAX_SEQS)
		return explain(c->key, -EINVAL,
			       "coppice_step: %u sequences are more than one step holds; split "
			       "them, at most %u at a time",
			       step->n_seqs, MAX_SEQS);
	return 0;
}

int step_records(struct coppice *c, const struct coppice_step *step, struct abi_step_seq *ret)
{
	struct arena_span last = {0};
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < step->n_seqs; i++)
		r = make_record(c, i, step, &ret[i], &last);
	return r;
}

int step_prepare(struct coppice_lane *lane, const struct coppice_step *step,
		 struct reservation *ret)
{
	int r = step_check(lane->c, step);

	if (r == 0)
		r = submit_begin(lane, step->n_seqs * sizeof(struct abi_step_seq), ret);
	return r < 0 ? r : step_records(lane->c, step, ret->body);
}

struct abi_entry step_entry(const struct coppice_step *step)
{
	return (struct abi_entry){
		.kind = ABI_STEP,
		.flags = step->append_only ? ABI_STEP_APPEND_ONLY : 0,
		.layer = step->layer,
		.count = step->n_seqs,
	};
}

int coppice_step(struct coppice_lane *lane, const struct coppice_step *step, uint64_t *ret_ticket)
{
	struct reservation place;
	int r = step_prepare(lane, step, &place);

	if (r == 0)
		submit_end(lane, &place, step_entry(step), ret_ticket);
	return r;
}

static int submit(struct coppice_lane *lane, const void *step, uint64_t *ret_ticket)
{
	return coppice_step(lane, step, ret_ticket);
}

int coppice_step_wait(struct coppice_lane *lane, const struct coppice_step *step,
		      uint64_t timeout_ns, uint64_t *ret_ticket)
{
	return wait_submitted(lane, submit, step, timeout_ns, ret_ticket);
}
