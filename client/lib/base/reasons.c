/*
 * reasons.c - the table of enum abi_reason: each has one sentence, which says what was wrong and
 * what to do. A step's sentence names the sequence where the reason is about one.
 */
#include "reasons.h"

#include "proto/abi.h"

#include <errno.h>

static const struct reason reasons[ABI_N_REASONS] = {
	[ABI_OK] = {"the daemon gave no reason", false},
	[ABI_BAD_KIND] = {"the daemon does not know this kind of entry; library and daemon "
			  "are of different versions",
			  false},
	[ABI_BAD_TICKET] = {"the entry's number is out of order; the lane's memory was written "
			    "by something other than the library",
			    false},
	[ABI_BAD_BODY] = {"the entry's data is out of range or of the wrong size; the lane's "
			  "memory was written by something other than the library",
			  false},
	[ABI_BAD_FLAGS] = {"the daemon does not know a flag of the entry, or not on this kind; "
			   "library and daemon are of different versions",
			   false},
	[ABI_NO_TOKENS] = {"there are no tokens; give at least one", true},
	[ABI_TOO_MANY_TOKENS] = {"there are too many tokens for one entry, or for the daemon's "
				 "limit on a sequence; extend by fewer",
				 true},
	[ABI_STALE_SEQ] = {"the sequence is closed or belongs to another session; use a handle "
			   "that coppice_seq_open or coppice_seq_fork gave on this connection",
			   true},
	[ABI_WRONG_LANE] = {"the sequence belongs to another lane; use the lane it was opened on",
			    true},
	[ABI_SEQ_TWICE] = {"the sequence stands in the step twice; give it once, with all its new "
			   "tokens",
			   true},
	[ABI_MIXED_MODELS] = {"the sequence is of another model than the step's first; submit one "
			      "step per model",
			      true},
	[ABI_WRONG_LAYER] = {"this layer is not the next one of the sequence's extension; submit "
			     "layers from 0, each once, in order",
			     true},
	[ABI_WRONG_COUNT] = {"n_new is not the length of the sequence's extension; give as many "
			     "rows as coppice_seq_extend announced",
			     true},
	[ABI_NOT_EXTENDED] = {"the sequence has no live tokens; call coppice_seq_extend or "
			      "coppice_seq_draft first",
			      true},
	[ABI_STILL_EXTENDED] = {"layers of the last extension are missing; submit them first, or "
				"drop it with coppice_seq_trim",
				false},
	[ABI_NOT_ACCEPTED] = {"a draft awaits its verdict; call coppice_seq_accept or "
			      "coppice_seq_trim first",
			      false},
	[ABI_NOT_DRAFT] = {"the live tokens are no draft; only those of coppice_seq_draft are "
			   "accepted",
			   false},
	[ABI_BAD_INDICES] = {"the accepted indices are no ascending path of the draft; start at a "
			     "child of the sequence and follow parents",
			     false},
	[ABI_BAD_PARENTS] = {"a parent does not come before its token; give the index of an "
			     "earlier draft token, or UINT32_MAX for the sequence itself",
			     false},
	[ABI_BAD_ARENA] = {"the arena is not of this connection or was freed; free arenas after "
			   "the steps that use them",
			   true},
	[ABI_OUT_OF_ARENA] = {"rows reach beyond the end of the arena; check pointers, strides "
			      "and n_new",
			      true},
	[ABI_MISALIGNED] = {"a pointer or stride is not aligned to the model's dtype (lse: to 4 "
			    "bytes)",
			    true},
	[ABI_NO_ROOM] = {"the KV pool is full and nothing in it can be evicted; close sequences "
			 "or retry later",
			 false},
	[ABI_OVER_QUOTA] = {"the domain's share of the KV pool (domain_percent, domain_bytes) is "
			    "used up; close sequences or unpin",
			    false},
	[ABI_VOID] = {"an earlier entry of this extension failed, or the daemon had no memory to "
		      "publish its tokens; call coppice_seq_trim, then extend again",
		      true},
	[ABI_TOO_LONG] = {"the sequence has fewer tokens than are to be kept", false},
	[ABI_TOO_MANY_SEQS] = {"there are too many sequences; split the step, or close some",
			       false},
	[ABI_DRAINING] = {"the daemon is draining and takes no new work; connect to another, or "
			  "retry when it is back",
			  false},
	[ABI_SESSION_ENDED] = {"the session or the lane ended before the entry was served", false},
	[ABI_BACKEND_FAILED] = {"the attention backend failed; trim and retry, and see the "
				"daemon's log",
				false},
	[ABI_NO_MEMORY] = {"the daemon is out of memory; retry later", false},
	[ABI_BAD_SPARSE] =
		{"tau must be above 0 and at most 1, stride 8 or 16, block_tokens a power "
		 "of two from 8 x stride to 65,536",
		 false},
	[ABI_NO_SPARSE] = {"the daemon's backend cannot estimate blocks; leave tau at 1", false},
	[ABI_TOO_MANY_PROMPTS] =
		{"token ids of prompts that are not computed yet take as much of the daemon's "
		 "memory as they may (domain_prompt_bytes, prompt_bytes); compute some, or close "
		 "them",
		 false},
	[ABI_NO_PROGRAM] = {"the sequence's model is one of coppice_model_open, which its apps "
			    "compute; decode sequences of a coppice_program_new",
			    true},
	[ABI_HAS_PROGRAM] = {"the daemon computes the sequence's model by its program; use "
			     "coppice_decode",
			     true},
	[ABI_BAD_TOKEN] = {"a token id is not below the program's n_vocab", true},
	[ABI_TOO_FAR] = {"the sequence would have more tokens than the program's max_positions",
			 true},
	[ABI_BAD_WANT] = {"want, n_top (1 to 64 with COPPICE_WANT_TOP, else 0) or out_stride is "
			  "none that the daemon knows",
			  false},
	[ABI_TOO_MANY_ROWS] = {"more than 256 rows are wanted of one entry", false},
	[ABI_TOO_MANY_NODES] = {"other sequences leave the path at as many places as the daemon "
				"takes (max_path_nodes); close some that fork from it",
				true},
	[ABI_CANCELLED] = {"it was cancelled (coppice_decode_cancel); its sequences keep what was "
			   "published before",
			   false},
	[ABI_BAD_WORD] = {"the step has no such pair of words; the lane's memory was written by "
			  "something other than the library",
			  false},
};

/* Of steps that were in flight already: -ECANCELED. */
static const struct reason cancellations[ABI_N_REASONS] = {
	[ABI_BAD_ARENA] = {"an arena that it uses was freed while it was in flight; free arenas "
			   "after the steps that use them",
			   false},
	[ABI_STALE_SEQ] =
		{"one of its sequences was closed while it was in flight; close sequences "
		 "after their last step",
		 true},
};

const struct reason *reason_of(uint16_t reason, int32_t status)
{
	static const struct reason unknown = {
		"the daemon gave a reason that this library does not know; the library is older",
		false,
	};

	if (reason >= ABI_N_REASONS)
		return &unknown;
	if (status == -ECANCELED && cancellations[reason].sentence)
		return &cancellations[reason];
	return reasons[reason].sentence ? &reasons[reason] : &unknown;
}
