/*
 * seq.c - a sequence from its opening to its end, and what becomes of it when an entry fails.
 *
 * A sequence of the scheduler is the store's, a handle, and how far its live extension has come.
 * Once an entry that it depends on has failed, the first failure stays with it: whatever needs
 * what was lost ends with that failure's status and reason until a trim, or an extend that
 * succeeds.
 */
#include "seq.h"

#include "complete.h"
#include "pace.h"
#include "summary.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

/* Takes over store_seq, also when it fails. */
static int seq_new(struct sched_core *core, const struct seq_open *open,
		   struct store_seq *store_seq, struct sched_seq **ret)
{
	struct sched_seq *seq = calloc(1, sizeof(*seq));
	int r = seq ? handle_add(&core->seqs, seq) : -ENOMEM;

	if (r < 0) {
		store_seq_close(store_seq, core->now_ns);
		free(seq);
		return r;
	}
	seq->session = open->session;
	seq->lane = open->lane;
	seq->model = open->model;
	seq->store = store_seq;
	LIST_INSERT_HEAD(&open->session->seqs, seq, link);
	open->session->n_seqs++;
	open->lane->n_seqs++;
	*ret = seq;
	return 0;
}

/* KV of some heads is no KV of others. */
static uint64_t salt_of(const struct seq_open *open)
{
	const struct split_heads *heads = &open->model->heads;

	return heads->all ? XXH3_64bits_withSeed(heads, sizeof(*heads), open->salt) : open->salt;
}

int seq_open(struct sched_core *core, const struct seq_open *open, struct sched_seq **ret,
	     struct store_match *ret_match)
{
	struct store_open what = {
		.model = open->model->store,
		.domain = open->session->domain,
		.salt = salt_of(open),
		.tokens = *open->tokens,
		.n_tokens = open->n_tokens,
		.give = open->tokens,
		.at_home = open->model->shape.split == WORK_HOME,
		.home = open->model->shape.home,
	};
	struct store_seq *store_seq;
	struct store_match match;
	int r = store_seq_open(core->store, &what, core->now_ns, &store_seq, &match);

	if (r == 0)
		r = seq_new(core, open, store_seq, ret);
	if (r < 0)
		return r;
	open->session->tokens_matched += match.cached;
	if (open->model->program)
		pace_opened(core, *ret);
	*ret_match = match;
	return 0;
}

int seq_fork(struct sched_core *core, struct sched_seq *seq, struct sched_seq **ret)
{
	struct seq_open open = {.session = seq->session, .lane = seq->lane, .model = seq->model};
	struct store_seq *store_seq;
	int r = store_seq_fork(seq->store, core->now_ns, &store_seq);

	if (r == 0)
		r = seq_new(core, &open, store_seq, ret);
	if (r == 0)
		(*ret)->sparse = seq->sparse;
	return r;
}

static enum abi_reason reason_of_store(int r)
{
	switch (r) {
	case -ENOSPC:
		return ABI_NO_ROOM;
	case -EDQUOT:
		return ABI_OVER_QUOTA;
	case -EBUSY:
		return ABI_STILL_EXTENDED;
	case -EMLINK:
		return ABI_TOO_MANY_NODES;
	case -E2BIG:
		return ABI_TOO_MANY_TOKENS;
	case -EINVAL:
		return ABI_TOO_LONG;
	case -EIO:
		return ABI_BACKEND_FAILED;
	default:
		return ABI_NO_MEMORY;
	}
}

struct outcome outcome_of_store(int r, uint32_t where)
{
	return r == 0 ? OUTCOME_OK : outcome_bad(r, reason_of_store(r), where);
}

void seq_clear_extension(struct sched_seq *seq)
{
	free(seq->parents);
	seq->parents = NULL;
	seq->next_layer = 0;
	seq->draft = false;
	seq->computed = false;
}

void seq_note_failure(struct sched_seq *seq, const struct outcome *outcome)
{
	if (seq->failure.ticket)
		return;
	seq->failure = (struct seq_failure){
		.ticket = outcome->cause ? outcome->cause : seq->lane->accepted,
		.status = outcome->status,
		.reason = outcome->reason,
	};
}

void seq_void(struct sched_core *core, struct sched_seq *seq, const struct outcome *outcome)
{
	store_seq_void(seq->store, core->now_ns);
	seq_clear_extension(seq);
	seq_note_failure(seq, outcome);
	seq->voided = true;
}

struct outcome seq_failed_before(const struct sched_seq *seq, uint32_t where)
{
	return (struct outcome){.status = seq->failure.status,
				.reason = seq->failure.reason,
				.where = where,
				.cause = seq->failure.ticket};
}

void seq_free(struct sched_core *core, struct sched_seq *seq)
{
	store_seq_close(seq->store, core->now_ns);
	seq_clear_extension(seq);
	summary_drop(core, seq);
	handle_remove(&core->seqs, seq->handle);
	LIST_REMOVE(seq, link);
	seq->session->n_seqs--;
	seq->lane->n_seqs--;
	free(seq);
}
