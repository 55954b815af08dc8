/*
 * sched_ahead_test.c - documents decoded token by token, by plans of which each takes in some
 * tokens and the next is made ahead. argv[1]: the module of the backend, without which there are no
 * such plans.
 */
#include "documents.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define CLIENTS 2u
#define LEAST_RENEWALS 6u /* a plan takes in 40 tokens at most: for 448 of them there are 11 */

static uint64_t open_document(struct client *c, uint32_t doc)
{
	uint32_t first = document_token(doc, 0);
	float o[DOC_LAYERS][DOC_ROW];
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(c, &first, 1, &seq, &match), 0);
	document_compute(c, seq, doc, 0, DOC_CHUNK, o);
	return seq;
}

/* Each by a client of its own, in turns. */
static void documents_are_right_token_by_token(void **state)
{
	struct fixture *f = *state;
	struct client c[CLIENTS];
	uint64_t seqs[CLIENTS];
	float o[DOC_LAYERS][DOC_ROW];

	f->h.config.pool_bytes = 64u << 20;
	f->h.config.host_tier_bytes = 0;
	harness_start(&f->h);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		client_start(&c[i], &f->h, 1, &document_shape, DOC_ARENA_BYTES);
		seqs[i] = open_document(&c[i], i);
	}
	for (uint32_t pos = DOC_CHUNK; pos < DOC_TOKENS; pos++) {
		for (uint32_t i = 0; i < CLIENTS; i++) {
			document_compute(&c[i], seqs[i], i, pos, 1, o);
			if ((pos + 1) % DOC_CHUNK == 0)
				assert_close(o, document_expected[i][pos / DOC_CHUNK]);
		}
	}
	if (f->h.ops->prepare)
		assert_true(f->h.sched->core.stats.plans_ahead >= CLIENTS * LEAST_RENEWALS);
	for (uint32_t i = 0; i < CLIENTS; i++)
		client_end(&c[i]);
	harness_stop(&f->h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(documents_are_right_token_by_token, documents_setup,
						documents_teardown),
	};
	int r = documents_init(argc, argv);

	return r ? r : cmocka_run_group_tests(tests, documents_expect, NULL);
}
