/*
 * decode_cancel_test.c - a client that does not want the rest of a decode any more, by the library.
 */
#include "decode_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N_LONG 8000u /* of 8,192 positions: a second and more */

struct decode_service service = {.options = {"--batch-budget-ms=1"}};

static uint64_t decode_long(struct decode_client *client, struct coppice_seq *seq,
			    const uint32_t *ids, uint32_t n)
{
	const struct coppice_decode_seq part = {.seq = seq, .ids = ids, .n_new = n};
	const struct coppice_decode decode = {.size = sizeof(decode), .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_decode(client->lane, &decode, &ticket), 0);
	return ticket;
}

/* More of it than a moment has time for. */
static void long_text(uint32_t first, uint32_t *ids)
{
	for (uint32_t i = 0; i < N_LONG; i++)
		ids[i] = (first + i * 7) % DECODE_VOCAB;
}

static void the_rest_is_not_computed(void **state)
{
	static uint32_t ids[N_LONG];
	struct decode_client client;
	struct coppice_result result;
	struct coppice_match match;
	struct coppice_seq *seq;
	uint64_t ticket;
	uint32_t n_tokens = 0, n_live = 0;

	(void)state;
	long_text(3, ids);
	decode_client_open(&client, &service);
	seq = decode_open(&client, ids, 1, &match);
	ticket = decode_long(&client, seq, ids, N_LONG);
	while (n_tokens == 0) {
		assert_int_equal(coppice_poll(client.lane, ticket, &result), -EAGAIN);
		assert_int_equal(coppice_seq_length(seq, &n_tokens), 0);
	}
	assert_int_equal(coppice_decode_cancel(client.lane, ticket), 0);
	assert_int_equal(coppice_wait(client.lane, ticket, COPPICE_SECONDS(60)), -ECANCELED);
	assert_non_null(strstr(coppice_explain(client.c), "coppice_decode_cancel"));
	assert_int_equal(coppice_poll(client.lane, ticket, &result), 0);
	assert_int_equal(coppice_seq_length(seq, &n_tokens), 0);
	assert_in_range(n_tokens, 1, N_LONG - 1);
	assert_int_equal(result.value, n_tokens);
	assert_int_equal(coppice_seq_live(seq, &n_live), 0);
	assert_int_equal(n_live, 0);
	assert_int_equal(decode_run(&client, seq, ids + n_tokens, 3), 3);
	coppice_seq_close(seq);
	decode_client_close(&client);
}

struct waiter {
	struct coppice_lane *lane;
	uint64_t ticket;
	int result;
};

static void *wait_for_it(void *arg)
{
	struct waiter *waiter = arg;

	waiter->result = coppice_wait(waiter->lane, waiter->ticket, COPPICE_SECONDS(60));
	return NULL;
}

static void another_thread_cancels_what_one_waits_for(void **state)
{
	static uint32_t ids[N_LONG];
	struct decode_client client;
	struct coppice_match match;
	struct coppice_seq *seq;
	struct waiter waiter;
	pthread_t thread;

	(void)state;
	long_text(5, ids);
	decode_client_open(&client, &service);
	seq = decode_open(&client, ids, 1, &match);
	waiter = (struct waiter){client.lane, decode_long(&client, seq, ids, N_LONG), 0};
	assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &waiter), 0);
	assert_int_equal(coppice_decode_cancel(client.lane, waiter.ticket), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(waiter.result, -ECANCELED);
	coppice_seq_close(seq);
	decode_client_close(&client);
}

static void what_is_no_decode_is_not_cancelled(void **state)
{
	struct decode_client client;
	struct coppice_seq *seq;
	uint64_t nop;

	(void)state;
	decode_client_open(&client, &service);
	assert_int_equal(coppice_decode_cancel(client.lane, 1), -EINVAL);
	assert_int_equal(coppice_nop(client.lane, &nop), 0);
	assert_int_equal(coppice_decode_cancel(client.lane, nop), -EINVAL);
	assert_non_null(strstr(coppice_explain(client.c), "no decode"));
	assert_int_equal(coppice_decode_cancel(client.lane, 0), -EINVAL);
	seq = decode_prompt(&client, service.ids, 5);
	assert_int_equal(coppice_decode_cancel(client.lane, nop + 1), 0);
	assert_int_equal(decode_run(&client, seq, service.ids + 5, 1), 1);
	coppice_seq_close(seq);
	decode_client_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rest_is_not_computed),
		cmocka_unit_test(another_thread_cancels_what_one_waits_for),
		cmocka_unit_test(what_is_no_decode_is_not_cancelled),
	};

	return cmocka_run_group_tests(tests, decode_setup, decode_teardown);
}
