/*
 * sched_fixture.c - the shape and ids that those tests have in common, and how an entry has to have
 * ended.
 */
#include "sched_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

const struct work_shape fixture_shape = {.n_layers = 2,
					 .n_q_heads = 4,
					 .n_kv_heads = 2,
					 .head_dim = 16,
					 .page_tokens = 16,
					 .dtype = WORK_FP32};
const uint32_t fixture_ids[FIXTURE_IDS] = {7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
					   17, 18, 19, 20, 21, 22, 23, 24, 25, 26};

void assert_ends_at(struct abi_completion got, int status, enum abi_reason reason, uint32_t where)
{
	assert_int_equal(got.status, status);
	assert_int_equal(got.reason, reason);
	assert_int_equal(got.where, where);
}

void assert_ends(struct abi_completion got, int status, enum abi_reason reason)
{
	assert_ends_at(got, status, reason, 0);
}

void assert_ends_as(struct abi_completion got, struct abi_completion first)
{
	assert_int_not_equal(first.status, 0);
	assert_int_equal(got.status, first.status);
	assert_int_equal(got.reason, first.reason);
	assert_int_equal(got.cause, first.ticket);
}

struct fixture *fixture_new(bool stepped)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct store_match match;

	harness_init(&f->h);
	f->h.stepped = stepped;
	harness_start(&f->h);
	client_start(&f->c, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&f->c, fixture_ids, 4, &f->seq, &match), 0);
	return f;
}

int fixture_setup(void **state)
{
	*state = fixture_new(false);
	return 0;
}

int fixture_setup_stepped(void **state)
{
	*state = fixture_new(true);
	return 0;
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;

	client_end(&f->c);
	harness_stop(&f->h);
	free(f);
	return 0;
}

uint64_t fixture_submit_step(struct fixture *f, uint32_t layer, uint32_t flags, uint64_t word)
{
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	return client_submit(&f->c,
			     (struct abi_entry){.kind = ABI_STEP,
						.count = 1,
						.layer = layer,
						.flags = flags,
						.arg = word},
			     &rec, sizeof(rec));
}

void fixture_extend(struct fixture *f)
{
	assert_ends(client_extend(&f->c, f->seq, fixture_ids, 4), 0, ABI_OK);
}

uint64_t fixture_done_word(const struct fixture *f, uint32_t word)
{
	return atomic_load_explicit(&f->c.lane->done_words[word], memory_order_acquire);
}
