/*
 * failure.c - the sentences of entries that failed.
 *
 * A sentence says which entry it was, what was wrong, and what to do. An entry that failed because
 * an earlier one of its sequence had has that one's status and reason, and names it: what to do
 * then is to make good what that one lost. What the earlier one was is known for as long as its
 * slot is its own.
 */
#include "failure.h"

#include "client/lib/base/reasons.h"
#include "proto/ring.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64

static const char *kind_name(uint16_t kind)
{
	static const char *const names[ABI_N_KINDS] = {
		[ABI_NOP] = "nop",	 [ABI_STEP] = "step",	  [ABI_EXTEND] = "extend",
		[ABI_ACCEPT] = "accept", [ABI_TRIM] = "trim",	  [ABI_FORK] = "fork",
		[ABI_SPARSE] = "sparse", [ABI_DECODE] = "decode",
	};

	return kind < ABI_N_KINDS ? names[kind] : "entry";
}

/* What is remembered of an entry; NULL: another has its slot. */
static const struct lane_note *note_of(const struct coppice_lane *lane, uint64_t ticket)
{
	return lane->submitted - ticket < ABI_LANE_SLOTS ? &lane->notes[ring_slot(ticket)] : NULL;
}

/* "step of layer 3 (ticket 7)" */
static void say_name(const struct coppice_lane *lane, uint64_t ticket, char ret[NAME_BYTES])
{
	const struct lane_note *note = note_of(lane, ticket);
	const char *kind = note ? kind_name(note->kind) : "entry";
	char layer[32] = "";

	if (note && note->kind == ABI_STEP)
		snprintf(layer, sizeof(layer), " of layer %u", note->layer);
	snprintf(ret, NAME_BYTES, "%s%s (ticket %llu)", kind, layer, (unsigned long long)ticket);
}

/* A step that succeeded, and whose tokens were not published then. */
static bool was_published_in_vain(const struct coppice_lane *lane, uint64_t ticket)
{
	struct abi_completion completion = ring_completion(lane->segment.shared, ticket);

	return completion.ticket == ticket && completion.status == 0;
}

/* What is said in front of the reason of the entry that failed first, and behind it. */
struct cause {
	char before[NAME_BYTES + 64];
	const char *after;
};

static struct cause say_cause(const struct coppice_lane *lane, uint64_t ticket)
{
	static const char trim[] = "; call coppice_seq_trim, then extend again";
	const struct lane_note *note = note_of(lane, ticket);
	bool is_extend = note && note->kind == ABI_EXTEND;
	struct cause cause = {.after = is_extend ? "; then extend again" : trim};
	const char *what = "failed first";
	char name[NAME_BYTES];

	if (was_published_in_vain(lane, ticket))
		what = "has computed tokens that were not published";
	say_name(lane, ticket, name);
	snprintf(cause.before, sizeof(cause.before), "%s %s: ", name, what);
	return cause;
}

static bool is_of_memory(uint16_t reason)
{
	return reason == ABI_BAD_ARENA || reason == ABI_OUT_OF_ARENA || reason == ABI_MISALIGNED;
}

/* A decode has one output, of all its sequences. */
static bool names_seq(uint16_t kind, const struct abi_completion *completion)
{
	if (kind != ABI_STEP && kind != ABI_DECODE)
		return false;
	if (completion->cause)
		return true;
	if (kind == ABI_DECODE && is_of_memory(completion->reason))
		return false;
	return reason_of(completion->reason, completion->status)->names_seq;
}

/* "sequence 2: " where the completion's `where` is one's index in a step or decode. */
static void say_seq(const struct coppice_lane *lane, const struct abi_completion *completion,
		    char ret[NAME_BYTES])
{
	const struct lane_note *note = note_of(lane, completion->ticket);

	ret[0] = 0;
	if (note && names_seq(note->kind, completion))
		snprintf(ret, NAME_BYTES, "sequence %u: ", completion->where);
}

int failure_explain(struct coppice_lane *lane, const struct abi_completion *completion)
{
	const struct reason *reason = reason_of(completion->reason, completion->status);
	const char *error = strerrordesc_np(-completion->status);
	struct cause cause = {.after = ""};
	char name[NAME_BYTES], seq[NAME_BYTES];

	if (completion->cause)
		cause = say_cause(lane, completion->cause);
	say_name(lane, completion->ticket, name);
	say_seq(lane, completion, seq);
	return explain(lane->c->key, completion->status, "%s: %s%s%s%s (%s)", name, seq,
		       cause.before, reason->sentence, cause.after,
		       error ? error : "no error of this system");
}
