/*
 * entry.c - what a lane does to one sequence: extend, draft, accept, trim, sparse, fork. step.c has
 * the steps.
 *
 * Each is one entry, whose effect the daemon checks: what is refused here is only what would not
 * fit an entry. A fork alone waits, because its handle comes with its completion.
 */
#include "seq.h"

#include "client/lib/base/sized.h"
#include "client/lib/lane/submit.h"
#include "client/lib/lane/wait.h"

#include <errno.h>
#include <string.h>

#define MAX_TOKENS 32768u /* ids and parents together fill ABI_BODY_MAX_BYTES */
#define MAX_TREE_TOKENS 1024u /* the daemon takes no larger draft tree */
static_assert(MAX_TOKENS * 2 * sizeof(uint32_t) == ABI_BODY_MAX_BYTES, "both fit");

struct tokens {
	const char *what; /* the public function, for the sentence */
	const uint32_t *ids;
	const uint32_t *parents; /* or NULL */
	uint32_t n;
};

/* Refuses what does not fit, then publishes the entry with ids and parents as its body. */
static int submit_tokens(struct coppice_seq *seq, const struct tokens *tokens,
			 struct abi_entry entry, uint64_t *ret_ticket)
{
	uint32_t most = tokens->parents ? MAX_TREE_TOKENS : MAX_TOKENS;
	size_t bytes = tokens->n * sizeof(uint32_t);
	struct reservation place;
	int r;

	if (tokens->n > most)
		return explain(seq->lane->c->key, -EINVAL,
			       "%s: %u tokens are more than one entry holds; split them, at most "
			       "%u at a time",
			       tokens->what, tokens->n, most);
	r = submit_begin(seq->lane, tokens->parents ? 2 * bytes : bytes, &place);
	if (r < 0)
		return r;
	if (bytes)
		memcpy(place.body, tokens->ids, bytes);
	if (bytes && tokens->parents)
		memcpy((uint8_t *)place.body + bytes, tokens->parents, bytes);
	entry.seq = seq->handle;
	entry.count = tokens->n;
	submit_end(seq->lane, &place, entry, ret_ticket);
	return 0;
}

static int check_some(struct coppice_seq *seq, const struct tokens *tokens)
{
	int r = connection_check(seq->lane->c);

	if (r < 0)
		return r;
	if (tokens->n == 0 || !tokens->ids)
		return explain(seq->lane->c->key, -EINVAL,
			       "%s: there are no tokens; give at least one", tokens->what);
	return seq_check_unasked(seq, tokens->what);
}

int coppice_seq_extend(struct coppice_seq *seq, const uint32_t *ids, uint32_t n,
		       uint64_t *ret_ticket)
{
	struct tokens tokens = {.what = "coppice_seq_extend", .ids = ids, .n = n};
	struct abi_entry entry = {.kind = ABI_EXTEND};
	int r = check_some(seq, &tokens);

	return r < 0 ? r : submit_tokens(seq, &tokens, entry, ret_ticket);
}

int coppice_seq_draft(struct coppice_seq *seq, const uint32_t *ids, const uint32_t *parents,
		      uint32_t n, uint64_t *ret_ticket)
{
	struct tokens tokens = {
		.what = "coppice_seq_draft",
		.ids = ids,
		.parents = parents,
		.n = n,
	};
	struct abi_entry entry = {
		.kind = ABI_EXTEND,
		.flags = ABI_EXTEND_DRAFT | (parents ? ABI_EXTEND_PARENTS : 0),
	};
	int r = check_some(seq, &tokens);

	return r < 0 ? r : submit_tokens(seq, &tokens, entry, ret_ticket);
}

int coppice_seq_accept(struct coppice_seq *seq, const uint32_t *indices, uint32_t n,
		       uint64_t *ret_ticket)
{
	struct tokens tokens = {.what = "coppice_seq_accept", .ids = indices, .n = n};
	int r = connection_check(seq->lane->c);

	if (r < 0)
		return r;
	if (n && !indices)
		return explain(seq->lane->c->key, -EINVAL,
			       "coppice_seq_accept: there are no indices; give %u, or n = 0 to "
			       "drop the draft",
			       n);
	return submit_tokens(seq, &tokens, (struct abi_entry){.kind = ABI_ACCEPT}, ret_ticket);
}

int coppice_seq_trim(struct coppice_seq *seq, uint32_t n_tokens, uint64_t *ret_ticket)
{
	struct tokens tokens = {.what = "coppice_seq_trim"};
	struct abi_entry entry = {.kind = ABI_TRIM, .arg = n_tokens};

	return submit_tokens(seq, &tokens, entry, ret_ticket);
}

#define SPARSE_TAU 0.97
#define SPARSE_STRIDE 8u
#define SPARSE_BLOCK_TOKENS 128u

int coppice_seq_sparse(struct coppice_seq *seq, const struct coppice_sparse *sparse,
		       uint64_t *ret_ticket)
{
	struct sized_caller caller = {seq->lane->c->key, "coppice_seq_sparse"};
	const struct abi_sparse body = {
		.tau = sparse->tau != 0 ? sparse->tau : SPARSE_TAU,
		.stride = sparse->stride ? sparse->stride : SPARSE_STRIDE,
		.block_tokens = sparse->block_tokens ? sparse->block_tokens : SPARSE_BLOCK_TOKENS,
		.sink_blocks = sparse->sink_blocks,
		.recent_blocks = sparse->recent_blocks,
	};
	struct abi_entry entry = {.kind = ABI_SPARSE, .seq = seq->handle};
	struct reservation place;
	int r = sized_check(caller, sparse, sizeof(*sparse));

	if (r == 0)
		r = submit_begin(seq->lane, sizeof(body), &place);

	if (r < 0)
		return r;
	memcpy(place.body, &body, sizeof(body));
	submit_end(seq->lane, &place, entry, ret_ticket);
	return 0;
}

/* Submits a fork; where the lane is full, once its oldest entry has left. */
static int submit_fork(struct coppice_seq *seq, uint64_t *ret_ticket)
{
	struct tokens tokens = {.what = "coppice_seq_fork"};
	struct abi_entry entry = {.kind = ABI_FORK};
	int r;

	while ((r = submit_tokens(seq, &tokens, entry, ret_ticket)) == -EAGAIN) {
		r = wait_oldest(seq->lane, COPPICE_FOREVER);
		if (r < 0)
			return r;
	}
	return r;
}

int coppice_seq_fork(struct coppice_seq *seq, struct coppice_seq **ret)
{
	struct abi_completion completion;
	struct coppice_seq *forked;
	uint64_t ticket;
	int r = submit_fork(seq, &ticket);

	if (r == 0)
		r = wait_completion(seq->lane, ticket, COPPICE_FOREVER, &completion);
	if (r < 0)
		return r;
	forked = seq_new(seq->lane, completion.value, &seq->model);
	if (!forked) {
		seq_release(seq->lane->c, completion.value);
		return explain(seq->lane->c->key, -ENOMEM, "coppice_seq_fork: out of memory");
	}
	forked->match = seq->match;
	*ret = forked;
	return 0;
}
