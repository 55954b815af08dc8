/*
 * decode_draft_test.c - trees of tokens on trial, of a program's sequences: what a row says is what
 * it says of the same tokens in a row, accepted tokens are everybody's, and a draft that goes
 * leaves nothing.
 */
#include "decode_fixture.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT 200u
#define TOKENS 24u
#define NONE UINT32_MAX
/* Where a token's ancestors lie decides in which order they are summed up: 64 of them, to fp32. */
#define BOUND (64 * 0x1p-22)

struct decode_service service;

struct plain {
	uint32_t ids[TOKENS + 1]; /* the likeliest, one after the other */
	float logits[TOKENS][DECODE_VOCAB]; /* behind ids[i] */
};

static uint32_t likeliest(const struct coppice_row *row)
{
	return row->top[0].id;
}

/* Behind the prompt, without drafts. */
static void run_plain(struct decode_client *client, const uint32_t *prompt, struct plain *ret)
{
	struct coppice_seq *seq = decode_anew(client, prompt, PROMPT);

	ret->ids[0] = likeliest(decode_row(client));
	for (uint32_t i = 0; i < TOKENS; i++) {
		decode_run(client, seq, &ret->ids[i], 1);
		memcpy(ret->logits[i], decode_logits(client), sizeof(ret->logits[i]));
		ret->ids[i + 1] = likeliest(decode_row(client));
	}
	coppice_seq_close(seq);
}

static int run_draft(struct decode_client *client, const struct coppice_decode_seq *part)
{
	const struct coppice_decode decode = {.size = sizeof(decode),
					      .seqs = part,
					      .n_seqs = 1,
					      .want = COPPICE_WANT_TOP | COPPICE_WANT_LOGITS,
					      .n_top = 20,
					      .out = client->out};
	uint64_t ticket;
	int r = coppice_decode(client->lane, &decode, &ticket);

	return r < 0 ? r : coppice_wait(client->lane, ticket, COPPICE_SECONDS(60));
}

static const struct coppice_row *draft_row(const struct decode_client *client, uint32_t row)
{
	return (const void *)(client->out +
			      row * (sizeof(struct coppice_row) + DECODE_VOCAB * sizeof(float)));
}

static void assert_near(const struct coppice_row *row, const float *logits)
{
	const float *got = (const float *)(const void *)(row + 1);
	double off = 0, all = 0;

	for (uint32_t i = 0; i < DECODE_VOCAB; i++) {
		off += pow((double)got[i] - (double)logits[i], 2);
		all += pow((double)logits[i], 2);
	}
	if (decode_on_gpu())
		assert_true(sqrt(off) <= 41 * 0x1p-9 * sqrt(all));
	else if (!(sqrt(off) <= BOUND * sqrt(all)))
		fail_msg("logits are off by %g of their length", sqrt(off / all));
}

/*      +-- right -- right again        rows 0, 2
 *      |       +--- wrong              row 3
 *      +-- wrong -- and on             rows 1, 4
 */
static const uint32_t parents[5] = {NONE, NONE, 0, 0, 1};

/* On a GPU its rounding may turn two that are near each other. */
static void assert_likeliest(const struct coppice_row *row, uint32_t id)
{
	if (!decode_on_gpu())
		assert_int_equal(likeliest(row), id);
}

static void tokens_with_drafts_are_those_without(void **state)
{
	static const uint32_t stay[] = {0, 2};
	static struct plain plain;
	struct decode_client client;
	struct coppice_match match;
	struct coppice_seq *seq;
	uint32_t all[PROMPT + TOKENS];

	(void)state;
	decode_client_open(&client, &service);
	run_plain(&client, service.ids, &plain);
	seq = decode_anew(&client, service.ids, PROMPT);
	for (uint32_t t = 0; t + 1 < TOKENS; t += 2) {
		uint32_t ids[5] = {plain.ids[t], plain.ids[t] ^ 1, plain.ids[t + 1],
				   plain.ids[t + 1] ^ 1, 'x'};
		const struct coppice_decode_seq part = {.seq = seq,
							.ids = ids,
							.n_new = 5,
							.parents = parents};

		assert_int_equal(run_draft(&client, &part), 0);
		assert_near(draft_row(&client, 0), plain.logits[t]);
		assert_near(draft_row(&client, 2), plain.logits[t + 1]);
		assert_likeliest(draft_row(&client, 0), plain.ids[t + 1]);
		assert_likeliest(draft_row(&client, 2), plain.ids[t + 2]);
		assert_int_equal(coppice_seq_accept(seq, stay, 2, NULL), 0);
	}
	memcpy(all, service.ids, PROMPT * sizeof(*all));
	memcpy(all + PROMPT, plain.ids, TOKENS * sizeof(*all));
	decode_open(&client, all, PROMPT + TOKENS, &match);
	assert_int_equal(match.cached, PROMPT + TOKENS - 1);
	decode_client_close(&client);
}

static void a_branch_says_what_a_fork_says(void **state)
{
	struct decode_client client;
	struct coppice_seq *seq, *fork;
	uint32_t ids[5] = {'a', 'b', 'c', 'd', 'e'}, branch[] = {'b', 'e'}, kept;
	float logits[DECODE_VOCAB];
	struct coppice_decode_seq part = {.ids = ids, .n_new = 5, .parents = parents};

	(void)state;
	decode_client_open(&client, &service);
	seq = part.seq = decode_anew(&client, service.ids, PROMPT);
	assert_int_equal(coppice_seq_fork(seq, &fork), 0);
	decode_run(&client, fork, branch, 2);
	memcpy(logits, decode_logits(&client), sizeof(logits));
	assert_int_equal(run_draft(&client, &part), 0);
	assert_near(draft_row(&client, 4), logits);
	assert_int_equal(coppice_seq_accept(seq, NULL, 0, NULL), 0);
	assert_int_equal(coppice_seq_length(seq, &kept), 0);
	assert_int_equal(kept, PROMPT);
	decode_run(&client, seq, branch, 2);
	decode_assert_same(&client, logits);
	decode_client_close(&client);
}

static void expect_words(struct decode_client *client, int r, int error, const char *words)
{
	assert_int_equal(r, error);
	if (!strstr(coppice_explain(client->c), words))
		fail_msg("\"%s\" does not say \"%s\"", coppice_explain(client->c), words);
}

static void what_is_no_draft_is_refused(void **state)
{
	uint32_t ids[65] = {0}, bad[65] = {NONE, 1};
	struct coppice_decode_seq two[2] = {{.ids = ids, .n_new = 1, .parents = parents},
					    {.ids = ids, .n_new = 1}};
	struct coppice_decode_seq part = {.ids = ids, .n_new = 2, .parents = bad};
	struct coppice_decode decode = {.size = sizeof(decode), .seqs = two, .n_seqs = 2};
	struct decode_client client;
	struct coppice_seq *fork;

	(void)state;
	decode_client_open(&client, &service);
	part.seq = two[0].seq = decode_anew(&client, service.ids, PROMPT);
	two[1].seq = decode_anew(&client, service.ids + 1, PROMPT);
	expect_words(&client, run_draft(&client, &part), -EINVAL, "a parent does not come before");
	part.n_new = 65;
	expect_words(&client, run_draft(&client, &part), -EINVAL, "give 64 at most");
	expect_words(&client, coppice_decode(client.lane, &decode, NULL), -EINVAL,
		     "of all sequences, or of none");
	part.n_new = 5;
	part.parents = parents;
	assert_int_equal(run_draft(&client, &part), 0);
	expect_words(&client, run_draft(&client, &part), -EBUSY, "a draft awaits its verdict");
	part.parents = NULL;
	expect_words(&client, run_draft(&client, &part), -EBUSY, "a draft awaits its verdict");
	assert_int_equal(coppice_seq_fork(part.seq, &fork), -EBUSY);
	assert_int_equal(coppice_seq_trim(part.seq, PROMPT, NULL), 0);
	assert_int_equal(run_draft(&client, &part), 0);
	decode_client_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_with_drafts_are_those_without),
		cmocka_unit_test(a_branch_says_what_a_fork_says),
		cmocka_unit_test(what_is_no_draft_is_refused),
	};

	return cmocka_run_group_tests(tests, decode_setup, decode_teardown);
}
