/*
 * decode.c - tokens of a program's sequences become one entry: a head, a record a sequence, ids,
 * and of drafts parents.
 *
 * What only the daemon knows (how long a sequence is, the arena's end) is checked there.
 */
#include "client/coppice_program.h"
#include "client/lib/base/sized.h"
#include "client/lib/lane/submit.h"
#include "client/lib/lane/wait.h"
#include "client/lib/memory/arena.h"
#include "client/lib/seq/seq.h"
#include "proto/ring.h"

#include <errno.h>
#include <string.h>

#define MAX_TOKENS 32768u /* of a sequence */

static_assert(sizeof(struct coppice_row) == sizeof(struct abi_row), "what crosses is what is told");
static_assert(COPPICE_ROWS_MAX == ABI_DECODE_ROWS_MAX && COPPICE_TOP_MAX == ABI_TOP_MAX,
	      "what crosses is what is told");
static_assert(COPPICE_DECODE_DRAFT_MAX == ABI_DECODE_DRAFT_MAX, "what crosses is what is told");

static const char what[] = "coppice_decode";

static bool is_draft(const struct coppice_decode *decode)
{
	return decode->seqs[0].parents;
}

static int check_seq(struct coppice *c, uint32_t i, const struct coppice_decode_seq *s)
{
	if (!s->seq || s->seq->lane->c != c)
		return explain(c->key, -EINVAL, "%s: sequence %u is none of this connection", what,
			       i);
	if (s->n_new == 0 || s->n_new > MAX_TOKENS || !s->ids)
		return explain(c->key, -EINVAL, "%s: sequence %u has %u tokens: give 1 to %u", what,
			       i, s->ids ? s->n_new : 0, MAX_TOKENS);
	if (s->seq->model.n_vocab == 0)
		return explain(c->key, -EINVAL,
			       "%s: sequence %u is of a model that apps compute; use "
			       "coppice_seq_extend and coppice_step",
			       what, i);
	if (s->parents && s->n_new > ABI_DECODE_DRAFT_MAX)
		return explain(c->key, -EINVAL,
			       "%s: sequence %u has a draft of %u tokens: give %u at most", what, i,
			       s->n_new, ABI_DECODE_DRAFT_MAX);
	return seq_check_unasked(s->seq, what);
}

static int check(struct coppice *c, const struct coppice_decode *decode, size_t *ret_bytes)
{
	struct sized_caller caller = {c->key, what};
	size_t bytes = sizeof(struct abi_decode);
	int r = connection_check(c);

	if (r == 0)
		r = sized_check(caller, decode, sizeof(*decode));
	if (r == 0 && (decode->n_seqs == 0 || !decode->seqs))
		r = explain(c->key, -EINVAL, "%s: there are no sequences", what);
	for (uint32_t i = 0; r == 0 && i < decode->n_seqs; i++) {
		r = check_seq(c, i, &decode->seqs[i]);
		if (r == 0 && !decode->seqs[i].parents != !decode->seqs[0].parents)
			r = explain(c->key, -EINVAL,
				    "%s: give parents of all sequences, or of none: drafts go by "
				    "themselves",
				    what);
		bytes += sizeof(struct abi_decode_seq) +
			 decode->seqs[i].n_new * sizeof(uint32_t) * (is_draft(decode) ? 2 : 1);
		if (r == 0 && bytes > ABI_BODY_MAX_BYTES)
			r = explain(c->key, -EINVAL,
				    "%s: the tokens of %u sequences are more than one entry holds; "
				    "split them",
				    what, i + 1);
	}
	*ret_bytes = bytes;
	return r;
}

static uint32_t row_bytes(const struct coppice_decode *decode)
{
	const struct model *model = &decode->seqs[0].seq->model;
	uint32_t bytes = sizeof(struct coppice_row);

	if (decode->want & COPPICE_WANT_LOGITS)
		bytes += model->n_vocab * (uint32_t)sizeof(float);
	if (decode->want & COPPICE_WANT_HIDDEN)
		bytes += model->hidden * (uint32_t)sizeof(float);
	return bytes;
}

static int make_head(struct coppice *c, const struct coppice_decode *decode, struct abi_decode *ret)
{
	struct arena_span last = {0};
	struct arena_place place;

	*ret = (struct abi_decode){.want = decode->want, .n_top = decode->n_top};
	if (!decode->want)
		return 0;
	place = arena_place_of(c, decode->out, &last);
	if (place.arena == 0)
		return explain(c->key, -EINVAL,
			       "%s: out does not lie in an arena of this connection; allocate it "
			       "from coppice_arena_new",
			       what);
	ret->arena = place.arena;
	ret->out = place.offset;
	ret->stride = decode->out_stride ? decode->out_stride : row_bytes(decode);
	return 0;
}

static void write_body(const struct coppice_decode *decode, const struct abi_decode *head,
		       uint8_t *body)
{
	uint8_t *ids;

	memcpy(body, head, sizeof(*head));
	body += sizeof(*head);
	ids = body + decode->n_seqs * sizeof(struct abi_decode_seq);
	for (uint32_t i = 0; i < decode->n_seqs; i++) {
		const struct coppice_decode_seq *s = &decode->seqs[i];
		const struct abi_decode_seq record = {s->seq->handle, s->n_new, s->first_wanted};

		memcpy(body + i * sizeof(record), &record, sizeof(record));
		memcpy(ids, s->ids, s->n_new * sizeof(*s->ids));
		ids += s->n_new * sizeof(*s->ids);
	}
	for (uint32_t i = 0; i < decode->n_seqs && is_draft(decode); i++) {
		const struct coppice_decode_seq *s = &decode->seqs[i];

		memcpy(ids, s->parents, s->n_new * sizeof(*s->parents));
		ids += s->n_new * sizeof(*s->parents);
	}
}

int coppice_decode(struct coppice_lane *lane, const struct coppice_decode *decode,
		   uint64_t *ret_ticket)
{
	struct reservation place;
	struct abi_decode head;
	size_t bytes = 0;
	int r = check(lane->c, decode, &bytes);

	if (r == 0)
		r = make_head(lane->c, decode, &head);
	if (r == 0)
		r = submit_begin(lane, bytes, &place);
	if (r < 0)
		return r;
	write_body(decode, &head, place.body);
	submit_end(lane, &place,
		   (struct abi_entry){.kind = ABI_DECODE,
				      .flags = is_draft(decode) ? ABI_EXTEND_PARENTS : 0,
				      .count = decode->n_seqs},
		   ret_ticket);
	return 0;
}

static int submit(struct coppice_lane *lane, const void *decode, uint64_t *ret_ticket)
{
	return coppice_decode(lane, decode, ret_ticket);
}

int coppice_decode_wait(struct coppice_lane *lane, const struct coppice_decode *decode,
			uint64_t timeout_ns, uint64_t *ret_ticket)
{
	return wait_submitted(lane, submit, decode, timeout_ns, ret_ticket);
}

int coppice_decode_cancel(struct coppice_lane *lane, uint64_t ticket)
{
	int r = lane_check_ticket(lane, ticket);

	if (r < 0 || lane->submitted - ticket >= ABI_LANE_SLOTS)
		return r;
	if (lane->notes[ring_slot(ticket)].kind != ABI_DECODE)
		return explain(lane->c->key, -EINVAL,
			       "coppice_decode_cancel: ticket %llu is no decode's",
			       (unsigned long long)ticket);
	ring_cancel(lane->segment.shared, ticket);
	return 0;
}
