/*
 * decode_tiers_test.c - a program's KV below the pool: what left it for host memory, or for a file
 * and the daemon before, comes back, and the tokens behind it have the bits that they had.
 */
#include "decode_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_TOKENS 2000u /* of a document: 5 MB of 12 */
#define N_DOCUMENTS 4u

static char file_flag[64];
#define FILE_PATH (file_flag + sizeof("--file-tier=") - 1)

struct decode_service service = {.options = {"--pool=12M", "--extent=2M", "--host-tier=64M",
					     "--file-tier-bytes=64M", file_flag}};

struct document {
	uint32_t ids[N_TOKENS + 1];
	float logits[DECODE_VOCAB]; /* behind all of them */
};
static struct document documents[N_DOCUMENTS];

static void document_write(struct document *d, uint32_t number)
{
	for (uint32_t i = 0; i <= N_TOKENS; i++)
		d->ids[i] = (number * 31 + i * 7 + (i >> 5)) % DECODE_VOCAB;
}

/* The last token goes by itself, as it will once the others are found. What a test before has left
 * below the pool comes back first: each document is computed once. */
static void document_compute(struct decode_client *client, struct document *d)
{
	struct coppice_match match;
	struct coppice_seq *seq = decode_open(client, d->ids, N_TOKENS, &match);

	if (match.pending)
		assert_int_equal(coppice_seq_wait(seq, COPPICE_SECONDS(60), &match), 0);
	if (match.cached < N_TOKENS)
		decode_run(client, seq, d->ids + match.cached, N_TOKENS - match.cached);
	decode_run(client, seq, d->ids + N_TOKENS, 1);
	if (match.cached == N_TOKENS)
		decode_assert_same(client, d->logits);
	memcpy(d->logits, decode_logits(client), sizeof(d->logits));
	coppice_seq_close(seq);
}

/* More than the pool has room for, the first of them the oldest. */
static void documents_compute(struct decode_client *client)
{
	for (uint32_t i = 0; i < N_DOCUMENTS; i++) {
		document_write(&documents[i], i);
		document_compute(client, &documents[i]);
	}
}

/* With what comes from below, or with what is there. */
static void document_is_found(struct decode_client *client, const struct document *d, bool wait)
{
	struct coppice_match match;
	struct coppice_seq *seq = decode_open(client, d->ids, N_TOKENS + 1, &match);

	assert_true(match.pending > 0);
	if (wait) {
		assert_int_equal(coppice_seq_wait(seq, COPPICE_SECONDS(60), &match), 0);
		assert_int_equal(match.cached, N_TOKENS);
	}
	decode_run(client, seq, d->ids + match.cached, N_TOKENS + 1 - match.cached);
	decode_assert_same(client, d->logits);
	coppice_seq_close(seq);
}

static void what_went_to_host_memory_comes_back(void **state)
{
	struct decode_client client;

	(void)state;
	decode_client_open(&client, &service);
	documents_compute(&client);
	document_is_found(&client, &documents[0], true);
	document_is_found(&client, &documents[1], true);
	decode_client_close(&client);
}

/* Who does not wait computes it beside what comes. */
static void who_does_not_wait_for_it_computes_it(void **state)
{
	struct decode_client client;

	(void)state;
	decode_client_open(&client, &service);
	documents_compute(&client);
	document_is_found(&client, &documents[0], false);
	document_is_found(&client, &documents[1], false);
	decode_client_close(&client);
}

/* Two read it again at once, while a third one's tokens go on. */
static void tokens_go_on_beside_what_comes_back(void **state)
{
	struct decode_client clients[2], other;
	struct coppice_match matches[2];
	struct coppice_seq *seqs[2], *seq;

	(void)state;
	decode_client_open(&other, &service);
	documents_compute(&other);
	seq = decode_prompt(&other, service.ids, 100);
	for (int i = 0; i < 2; i++) {
		decode_client_open(&clients[i], &service);
		seqs[i] = decode_open(&clients[i], documents[i].ids, N_TOKENS + 1, &matches[i]);
	}
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(decode_run(&other, seq, service.ids + 100 + i, 1), 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(coppice_seq_wait(seqs[i], COPPICE_SECONDS(60), &matches[i]), 0);
		decode_run(&clients[i], seqs[i], documents[i].ids + matches[i].cached,
			   N_TOKENS + 1 - matches[i].cached);
		decode_assert_same(&clients[i], documents[i].logits);
	}
	for (int i = 0; i < 2; i++)
		decode_client_close(&clients[i]);
	decode_client_close(&other);
}

/* A file of its tier, where the kernel has io_uring. */
static bool has_file(void)
{
	return strstr(decode_listing("--json status"), "\"file\"");
}

static void what_is_in_the_file_outlives_the_daemon(void **state)
{
	struct decode_client client;

	if (!has_file())
		skip();
	decode_client_open(&client, &service);
	documents_compute(&client);
	decode_client_close(&client);
	assert_int_equal(decode_teardown(state), 0);
	assert_int_equal(decode_setup(state), 0);
	decode_client_open(&client, &service);
	for (uint32_t i = 0; i < 2; i++)
		document_is_found(&client, &documents[i], true);
	decode_client_close(&client);
}

static int setup(void **state)
{
	snprintf(file_flag, sizeof(file_flag), "--file-tier=/tmp/coppice-decode-tier-%d", getpid());
	return decode_setup(state);
}

static int teardown(void **state)
{
	int r = decode_teardown(state);

	unlink(FILE_PATH);
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_went_to_host_memory_comes_back),
		cmocka_unit_test(who_does_not_wait_for_it_computes_it),
		cmocka_unit_test(tokens_go_on_beside_what_comes_back),
		cmocka_unit_test(what_is_in_the_file_outlives_the_daemon),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
