/*
 * control_memory_test.c - what a client can have of the daemon's memory: token ids of prompts that
 * nobody computes.
 */
#include "control_harness.h"

#include <errno.h>
#include <string.h>

#define PROMPT_TOKENS (256u << 10)

static void start_with(struct harness *h, const char *flag, const char *other)
{
	h->flags[0] = flag;
	h->flags[1] = other;
	harness_start(h);
}

static void client_prepare(struct client *c)
{
	client_model(c);
	client_arena(c, PROMPT_TOKENS * sizeof(uint32_t));
	client_lane(c);
}

static uint64_t prompt_bytes(struct client *c)
{
	Coppice__Status status = COPPICE__STATUS__INIT;

	return client_verb(c, status, &status)->status->prompt_bytes;
}

static void prompts_of_all_sessions_of_a_user_count(void **state)
{
	struct harness *h = *state;
	Coppice__SeqClose m = COPPICE__SEQ_CLOSE__INIT;

	start_with(h, "--domain-prompt-bytes=1M", NULL);
	struct client a = client_open(h), b = client_open(h);

	client_prepare(&a);
	client_prepare(&b);
	m.seq = client_seq(&a, 1, 1, 1, PROMPT_TOKENS - 10)->seq->seq;
	assert_refused(client_seq(&b, 1, 1, 1, 11), -EDQUOT, "n_tokens", "domain_prompt_bytes");
	assert_int_equal(client_seq(&b, 1, 1, 1, 10)->code, 0);
	assert_int_equal(prompt_bytes(&b), 1 << 20);
	assert_int_equal(client_verb(&a, seq_close, &m)->code, 0);
	assert_int_equal(prompt_bytes(&b), 40);
	client_close(&b);
	count_becomes(&a, 1);
	assert_int_equal(prompt_bytes(&a), 0);
	client_close(&a);
}

static void prompts_of_all_users_count(void **state)
{
	struct harness *h = *state;

	start_with(h, "--prompt-bytes=1M", NULL);
	struct client c = client_open(h);

	client_prepare(&c);
	assert_int_equal(client_seq(&c, 1, 1, 1, PROMPT_TOKENS)->code, 0);
	assert_refused(client_seq(&c, 1, 1, 1, 1), -EDQUOT, "n_tokens", "(prompt_bytes)");
	client_close(&c);
}

static void open_send(struct client *c)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__SeqOpen m = COPPICE__SEQ_OPEN__INIT;

	m.model = m.lane = m.arena = 1;
	m.n_tokens = PROMPT_TOKENS;
	request.seq_open = &m;
	client_send(c, &request);
}

/* Copies on their way to the scheduler are memory, too. */
static void a_burst_of_opens_takes_no_more(void **state)
{
	enum { BURST = 64 };
	struct harness *h = *state;
	int n_open = 0;

	start_with(h, "--domain-prompt-bytes=1M", NULL);
	struct client c = client_open(h);

	client_prepare(&c);
	for (int i = 0; i < BURST; i++)
		open_send(&c);
	for (int i = 0; i < BURST; i++) {
		const Coppice__Reply *reply = client_receive(&c);

		n_open += reply->code == 0;
		if (reply->code != 0)
			assert_refused(reply, -EDQUOT, "n_tokens", "domain_prompt_bytes");
	}
	assert_int_equal(n_open, 1);
	assert_int_equal(prompt_bytes(&c), 1 << 20);
	client_close(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_BARE(epoll, prompts_of_all_sessions_of_a_user_count),
		HARNESS_BARE(epoll, prompts_of_all_users_count),
		HARNESS_BARE(epoll, a_burst_of_opens_takes_no_more),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
