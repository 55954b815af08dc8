/*
 * client_failure_test.c - libcoppice's sentences of entries that failed, word for word, over a lane
 * that nobody serves.
 */
#include "client/lib/base/explain.h"
#include "client/lib/base/reasons.h"
#include "client/lib/lane/failure.h"
#include "proto/ring.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
	struct coppice c;
	struct coppice_lane lane;
	_Atomic uint32_t alive;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->c.key = 77;
	f->alive = 1;
	f->c.alive = &f->alive;
	f->lane.c = &f->c;
	f->lane.segment.shared = calloc(1, sizeof(*f->lane.segment.shared));
	assert_non_null(f->lane.segment.shared);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	free(f->lane.segment.shared);
	free(f);
	return 0;
}

/* The next entry was of this kind and has ended so. */
static void add(struct fixture *f, enum abi_kind kind, struct abi_completion completion)
{
	completion.ticket = ++f->lane.submitted;
	f->lane.notes[ring_slot(completion.ticket)] = (struct lane_note){
		.kind = (uint16_t)kind,
		.layer = 3,
	};
	f->lane.segment.shared->completions[ring_slot(completion.ticket)] = completion;
}

/* Of the last entry. */
static void assert_sentence(struct fixture *f, const char *sentence)
{
	struct abi_completion last = ring_completion(f->lane.segment.shared, f->lane.submitted);

	assert_int_equal(failure_explain(&f->lane, &last), last.status);
	assert_string_equal(explain_last(f->c.key), sentence);
}

static void what_failed_by_itself(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_EXTEND, (struct abi_completion){.status = -ENOSPC, .reason = ABI_NO_ROOM});
	assert_sentence(f, "extend (ticket 1): the KV pool is full and nothing in it can be "
			   "evicted; close sequences or retry later (No space left on device)");
	add(f, ABI_STEP,
	    (struct abi_completion){.status = -EINVAL, .reason = ABI_MISALIGNED, .where = 2});
	assert_sentence(f, "step of layer 3 (ticket 2): sequence 2: a pointer or stride is not "
			   "aligned to the model's dtype (lse: to 4 bytes) (Invalid argument)");
}

/* An extension is of one sequence. */
static void who_has_too_many_nodes(void **state)
{
	struct abi_completion failed = {.status = -EMLINK, .reason = ABI_TOO_MANY_NODES};
	struct fixture *f = *state;

	add(f, ABI_EXTEND, failed);
	assert_sentence(f, "extend (ticket 1): other sequences leave the path at as many places as "
			   "the daemon takes (max_path_nodes); close some that fork from it (Too "
			   "many links)");
	failed.where = 7;
	add(f, ABI_DECODE, failed);
	assert_sentence(f, "decode (ticket 2): sequence 7: other sequences leave the path at as "
			   "many places as the daemon takes (max_path_nodes); close some that fork "
			   "from it (Too many links)");
}

static void what_failed_because_an_extension_had(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_EXTEND, (struct abi_completion){.status = -EDQUOT, .reason = ABI_OVER_QUOTA});
	add(f, ABI_STEP,
	    (struct abi_completion){
		    .status = -EDQUOT, .reason = ABI_OVER_QUOTA, .where = 1, .cause = 1});
	assert_sentence(f,
			"step of layer 3 (ticket 2): sequence 1: extend (ticket 1) failed first: "
			"the domain's share of the KV pool (domain_percent, domain_bytes) is used "
			"up; close sequences or unpin; "
			"then extend again (Disk quota exceeded)");
}

static void what_failed_because_a_step_had(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_STEP, (struct abi_completion){.status = -EIO, .reason = ABI_BACKEND_FAILED});
	add(f, ABI_EXTEND,
	    (struct abi_completion){.status = -EIO, .reason = ABI_BACKEND_FAILED, .cause = 1});
	assert_sentence(f,
			"extend (ticket 2): step of layer 3 (ticket 1) failed first: the attention "
			"backend failed; trim and retry, and see the daemon's log; call "
			"coppice_seq_trim, then extend again (Input/output error)");
}

/* The step itself had succeeded. */
static void what_failed_because_tokens_were_not_published(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_STEP, (struct abi_completion){.status = 0});
	add(f, ABI_EXTEND,
	    (struct abi_completion){.status = -ENOMEM, .reason = ABI_NO_MEMORY, .cause = 1});
	assert_sentence(f, "extend (ticket 2): step of layer 3 (ticket 1) has computed tokens that "
			   "were not published: the daemon is out of memory; retry later; call "
			   "coppice_seq_trim, then extend again (Cannot allocate memory)");
}

/* Another entry has its slot: what it was is not known any more, its number is. */
static void a_cause_that_is_long_ago(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_EXTEND, (struct abi_completion){.status = -ENOSPC, .reason = ABI_NO_ROOM});
	for (uint32_t i = 0; i < ABI_LANE_SLOTS; i++)
		add(f, ABI_NOP, (struct abi_completion){.status = 0});
	add(f, ABI_STEP,
	    (struct abi_completion){.status = -ENOSPC, .reason = ABI_NO_ROOM, .cause = 1});
	assert_sentence(f,
			"step of layer 3 (ticket 258): sequence 0: entry (ticket 1) failed first: "
			"the KV pool is full and nothing in it can be evicted; close sequences "
			"or retry later; call coppice_seq_trim, then extend again (No space left "
			"on device)");
}

static void what_was_cancelled(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_STEP, (struct abi_completion){.status = -ECANCELED, .reason = ABI_BAD_ARENA});
	assert_sentence(f,
			"step of layer 3 (ticket 1): an arena that it uses was freed while it was "
			"in flight; free arenas after the steps that use them (Operation "
			"canceled)");
	add(f, ABI_STEP,
	    (struct abi_completion){.status = -ECANCELED, .reason = ABI_STALE_SEQ, .where = 4});
	assert_sentence(f, "step of layer 3 (ticket 2): sequence 4: one of its sequences was "
			   "closed while it was in flight; close sequences after their last step "
			   "(Operation canceled)");
	add(f, ABI_EXTEND,
	    (struct abi_completion){.status = -ECANCELED, .reason = ABI_STALE_SEQ, .cause = 2});
	assert_sentence(f, "extend (ticket 3): step of layer 3 (ticket 2) failed first: one of its "
			   "sequences was closed while it was in flight; close sequences after "
			   "their last step; call coppice_seq_trim, then extend again "
			   "(Operation canceled)");
}

static void what_a_decode_lacked_is_told_by_sequence(void **state)
{
	struct fixture *f = *state;

	add(f, ABI_DECODE,
	    (struct abi_completion){.status = -EINVAL, .reason = ABI_BAD_TOKEN, .where = 2});
	assert_sentence(f, "decode (ticket 1): sequence 2: a token id is not below the program's "
			   "n_vocab (Invalid argument)");
	add(f, ABI_DECODE,
	    (struct abi_completion){.status = -EINVAL, .reason = ABI_OUT_OF_ARENA, .where = 2});
	assert_sentence(f, "decode (ticket 2): rows reach beyond the end of the arena; check "
			   "pointers, strides and n_new (Invalid argument)");
}

static void a_decode_that_failed_says_what_was_published(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;

	add(f, ABI_DECODE,
	    (struct abi_completion){.status = -ENOSPC, .reason = ABI_NO_ROOM, .published = 300});
	atomic_store(&f->lane.segment.shared->done, 1);
	assert_int_equal(coppice_poll(&f->lane, 1, &result), 0);
	assert_int_equal(result.status, -ENOSPC);
	assert_int_equal(result.value, 300);
	assert_int_equal(result.cause, 0);
}

static void every_reason_has_a_sentence_of_its_own(void **state)
{
	(void)state;
	for (uint16_t i = 0; i < ABI_N_REASONS; i++) {
		assert_non_null(reason_of(i, -EINVAL)->sentence);
		for (uint16_t j = 0; j < i; j++)
			assert_string_not_equal(reason_of(i, -EINVAL)->sentence,
						reason_of(j, -EINVAL)->sentence);
	}
	assert_non_null(strstr(reason_of(ABI_N_REASONS, -EINVAL)->sentence, "is older"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_failed_by_itself),
		TEST(who_has_too_many_nodes),
		TEST(what_failed_because_an_extension_had),
		TEST(what_failed_because_a_step_had),
		TEST(what_failed_because_tokens_were_not_published),
		TEST(a_cause_that_is_long_ago),
		TEST(what_was_cancelled),
		TEST(what_a_decode_lacked_is_told_by_sequence),
		TEST(a_decode_that_failed_says_what_was_published),
		cmocka_unit_test(every_reason_has_a_sentence_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
