/*
 * entry.c - what a client asks of a sequence, but for steps.
 *
 * Each is checked whole before anything changes: who is refused finds the sequence as it was. An
 * extension that fails leaves word of that with the sequence, as its client may not look.
 */
#include "entry.h"

#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/evicted.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/seq/summary.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAFT_TREE_MAX 1024 /* tokens: a longer one is no draft */
#define STRIDE_BLOCK_MIN 8u /* a block of sparse prefill has so many strides at least */
#define BLOCK_MAX 65536u

static int copy_parents(const uint32_t *parents, uint32_t n, uint32_t **ret)
{
	for (uint32_t i = 0; i < n; i++) {
		if (parents[i] != WORK_NONE && parents[i] >= i)
			return -EINVAL;
	}
	uint32_t *copy = malloc(n * sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	memcpy(copy, parents, n * sizeof(*copy));
	*ret = copy;
	return 0;
}

static struct outcome check_extend(const struct sched_core *core, const struct sched_seq *seq,
				   const struct abi_entry *e)
{
	bool tree = e->flags & ABI_EXTEND_PARENTS;

	if (e->flags & ~(uint32_t)(ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS))
		return outcome_bad(-EINVAL, ABI_BAD_FLAGS, 0);
	if (e->count == 0)
		return outcome_bad(-EINVAL, ABI_NO_TOKENS, 0);
	if (e->count > ABI_BODY_MAX_BYTES / sizeof(uint32_t) ||
	    e->count > core->config->max_seq_tokens - store_seq_n_tokens(seq->store))
		return outcome_bad(-E2BIG, ABI_TOO_MANY_TOKENS, 0);
	if (tree && e->count > DRAFT_TREE_MAX)
		return outcome_bad(-E2BIG, ABI_TOO_MANY_TOKENS, 0);
	if (e->body_bytes != e->count * sizeof(uint32_t) * (tree ? 2 : 1))
		return outcome_bad(-EINVAL, ABI_BAD_BODY, 0);
	if (seq->model->program)
		return outcome_bad(-EINVAL, ABI_HAS_PROGRAM, 0);
	if (seq->voided)
		return seq_failed_before(seq, 0);
	if (seq->computed)
		return outcome_bad(-EBUSY, ABI_NOT_ACCEPTED, 0);
	if (store_seq_n_live(seq->store))
		return outcome_bad(-EBUSY, ABI_STILL_EXTENDED, 0);
	return OUTCOME_OK;
}

static struct outcome extend(struct sched_core *core, struct sched_seq *seq,
			     const struct abi_entry *e, const uint32_t *body)
{
	struct outcome bad = check_extend(core, seq, e);
	uint32_t *parents = NULL;
	bool draft = e->flags & (ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS);

	if (bad.status)
		return bad;
	if (e->flags & ABI_EXTEND_PARENTS) {
		int r = copy_parents(body + e->count, e->count, &parents);

		if (r < 0)
			return outcome_bad(r, r == -EINVAL ? ABI_BAD_PARENTS : ABI_NO_MEMORY, 0);
	}
	int r = seq_extend(core, seq, body, e->count, draft);

	if (r < 0) {
		free(parents);
		return outcome_of_store(r, 0);
	}
	seq->parents = parents;
	seq->draft = draft;
	seq->next_layer = 0;
	seq->failure = (struct seq_failure){0};
	return OUTCOME_OK;
}

/* Who does not wait for it learns by the steps that follow why there is no extension. */
static struct outcome do_extend(struct sched_core *core, struct sched_seq *seq,
				const struct abi_entry *e, const uint32_t *body)
{
	struct outcome outcome = extend(core, seq, e, body);

	if (outcome.status)
		seq_note_failure(seq, &outcome);
	return outcome;
}

/* Accepted tokens are a path of the draft from the sequence on. */
static bool is_draft_path(const struct sched_seq *seq, const uint32_t *indices, uint32_t n)
{
	uint32_t n_live = store_seq_n_live(seq->store);
	uint32_t last = WORK_NONE;

	for (uint32_t j = 0; j < n; j++) {
		uint32_t i = indices[j];

		if (i >= n_live)
			return false;
		/* before the first: WORK_NONE */
		uint32_t parent = seq->parents ? seq->parents[i] : i - 1;

		if (parent != last)
			return false;
		last = i;
	}
	return true;
}

static int carry_out(struct sched_core *core, const struct sched_seq *seq,
		     const struct store_moves *moves)
{
	static_assert(sizeof(struct store_move) == sizeof(struct backend_move),
		      "one struct, two borders");
	return moves->n ? core->ops->move(core->backend, &seq->model->shape,
					  (const struct backend_move *)moves->moves, moves->n)
			: 0;
}

static struct outcome check_accept(const struct sched_seq *seq, const struct abi_entry *e,
				   const uint32_t *indices)
{
	if (e->flags)
		return outcome_bad(-EINVAL, ABI_BAD_FLAGS, 0);
	if (e->body_bytes != e->count * sizeof(uint32_t))
		return outcome_bad(-EINVAL, ABI_BAD_BODY, 0);
	if (seq->voided)
		return seq_failed_before(seq, 0);
	if (!store_seq_n_live(seq->store))
		return seq->failure.ticket ? seq_failed_before(seq, 0)
					   : outcome_bad(-EINVAL, ABI_NOT_EXTENDED, 0);
	if (!seq->draft)
		return outcome_bad(-EINVAL, ABI_NOT_DRAFT, 0);
	if (!seq->computed && e->count)
		return outcome_bad(-EBUSY, ABI_STILL_EXTENDED, 0);
	if (!is_draft_path(seq, indices, e->count))
		return outcome_bad(-EINVAL, ABI_BAD_INDICES, 0);
	return OUTCOME_OK;
}

/* Of rows that are published and were not moved nothing may be matched any more. */
static int accept_path(struct sched_core *core, struct sched_seq *seq, const uint32_t *indices,
		       uint32_t n, struct store_moves *moves)
{
	int r = store_seq_accept(seq->store, indices, n, core->now_ns, moves);

	if (r < 0 || carry_out(core, seq, moves) == 0)
		return r;
	core_fail(core);
	return -EIO;
}

static struct outcome do_accept(struct sched_core *core, struct sched_seq *seq,
				const struct abi_entry *e, const uint32_t *indices)
{
	struct outcome outcome = check_accept(seq, e, indices);

	if (outcome.status)
		return outcome;
	CLEANUP_FREE struct store_move *room = malloc((e->count + 1) * sizeof(*room));
	struct store_moves moves = {.moves = room};

	if (!room)
		return outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0);
	outcome = outcome_of_store(accept_path(core, seq, indices, e->count, &moves), 0);
	if (outcome.status) {
		seq_void(core, seq, &outcome);
		return outcome;
	}
	seq->session->tokens_computed += e->count;
	seq_clear_extension(seq);
	return outcome;
}

static struct outcome do_trim(struct sched_core *core, struct sched_seq *seq,
			      const struct abi_entry *e)
{
	if (e->flags || e->body_bytes)
		return outcome_bad(-EINVAL, e->flags ? ABI_BAD_FLAGS : ABI_BAD_BODY, 0);
	if (e->arg > store_seq_n_tokens(seq->store))
		return outcome_bad(-EINVAL, ABI_TOO_LONG, 0);
	int r = store_seq_trim(seq->store, (uint32_t)e->arg, core->now_ns);

	if (r < 0)
		return outcome_of_store(r, 0);
	seq_clear_extension(seq);
	summary_cut(seq, (uint32_t)e->arg);
	seq->voided = false;
	seq->failure = (struct seq_failure){0};
	return OUTCOME_OK;
}

static struct outcome do_fork(struct sched_core *core, struct sched_seq *seq,
			      const struct abi_entry *e)
{
	struct sched_seq *twin = NULL;

	if (e->flags || e->body_bytes)
		return outcome_bad(-EINVAL, e->flags ? ABI_BAD_FLAGS : ABI_BAD_BODY, 0);
	if (seq->voided)
		return seq_failed_before(seq, 0);
	if (core->draining)
		return outcome_bad(-ESHUTDOWN, ABI_DRAINING, 0);
	if (seq->session->n_seqs >= core->config->max_seqs)
		return outcome_bad(-EUSERS, ABI_TOO_MANY_SEQS, 0);
	int r = seq_fork(core, seq, &twin);

	if (r == -EDQUOT || r == -ENOBUFS)
		return outcome_bad(-EDQUOT, ABI_TOO_MANY_PROMPTS, 0);
	if (r < 0)
		return outcome_of_store(r, 0);
	return (struct outcome){.value = twin->handle};
}

/* What a client asks for is possible. */
static bool sparse_is_sane(const struct abi_sparse *wish)
{
	uint32_t block = wish->block_tokens;

	return wish->tau > 0 && wish->tau <= 1 && (wish->stride == 8 || wish->stride == 16) &&
	       block > 0 && block <= BLOCK_MAX && block % WORK_TILE_TOKENS == 0 &&
	       block % (STRIDE_BLOCK_MIN * wish->stride) == 0 && (block & (block - 1)) == 0;
}

static struct outcome do_sparse(struct sched_core *core, struct sched_seq *seq,
				const struct abi_entry *e, const void *body)
{
	struct abi_sparse wish;

	if (e->flags)
		return outcome_bad(-EINVAL, ABI_BAD_FLAGS, 0);
	if (e->body_bytes != sizeof(wish))
		return outcome_bad(-EINVAL, ABI_BAD_BODY, 0);
	memcpy(&wish, body, sizeof(wish));
	if (!sparse_is_sane(&wish))
		return outcome_bad(-EINVAL, ABI_BAD_SPARSE, 0);
	if (wish.tau < 1 && !core->ops->estimate)
		return outcome_bad(-EOPNOTSUPP, ABI_NO_SPARSE, 0);
	seq->sparse = wish;
	return OUTCOME_OK;
}

struct outcome entry_do(struct sched_core *core, struct sched_lane *lane, const struct abi_entry *e)
{
	struct sched_seq *seq = handle_find(&core->seqs, lane->session, e->seq);
	const uint32_t *words = (const uint32_t *)(const void *)lane->body;

	if (!seq)
		return outcome_bad(-ESTALE, ABI_STALE_SEQ, 0);
	if (seq->lane != lane)
		return outcome_bad(-EINVAL, ABI_WRONG_LANE, 0);
	switch (e->kind) {
	case ABI_EXTEND:
		return do_extend(core, seq, e, words);
	case ABI_ACCEPT:
		return do_accept(core, seq, e, words);
	case ABI_TRIM:
		return do_trim(core, seq, e);
	case ABI_SPARSE:
		return do_sparse(core, seq, e, words);
	default:
		return do_fork(core, seq, e);
	}
}
