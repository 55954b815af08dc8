/*
 * unread_test.c - what is unread of a real socket's packets, against who counts them one by one.
 */
#include "daemon/session/unread.h"
#include "proto/channel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define N_PACKETS 20000u

struct pair {
	int ours, theirs;
	struct unread unread;
	/* what is under way: has the packet descriptors? */
	bool has_fds[256];
	uint64_t n_sent, n_read;
};

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	int fds[2];

	assert_non_null(p);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	p->ours = fds[0];
	p->theirs = fds[1];
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	close(p->ours);
	if (p->theirs >= 0)
		close(p->theirs);
	free(p);
	return 0;
}

static void send_one(struct pair *p, size_t bytes, bool has_fds)
{
	static const uint8_t data[CHANNEL_MAX_BYTES];
	const struct channel_fds fds = {&p->ours, has_fds};

	if (channel_send(p->ours, data, bytes, &fds, MSG_DONTWAIT) < 0)
		return;
	unread_add(&p->unread, has_fds);
	p->has_fds[p->n_sent++ % 256] = has_fds;
}

static void read_one(struct pair *p)
{
	static uint8_t data[CHANNEL_MAX_BYTES];
	int fds[CHANNEL_MAX_FDS];
	struct channel_fds_room room = {fds, CHANNEL_MAX_FDS};

	if (p->n_read == p->n_sent)
		return;
	assert_true(channel_recv(p->theirs, data, sizeof(data), &room, 0) > 0);
	while (room.n--)
		close(fds[room.n]);
	p->n_read++;
}

static uint32_t naive(const struct pair *p)
{
	uint32_t n = 0;

	for (uint64_t i = p->n_read; i < p->n_sent; i++)
		n += p->has_fds[i % 256];
	return n * UNREAD_FDS_AN_ANSWER;
}

/* Of short packets twice as many may seem unread as are, of long ones all that were sent. */
static void never_too_few_and_none_once_all_are_read(void **state)
{
	struct pair *p = *state;
	const char *text = getenv("COPPICE_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : (unsigned)getpid();

	print_message("COPPICE_SEED=%u\n", seed);
	for (uint32_t i = 0; i < N_PACKETS; i++) {
		bool fits = p->n_sent - p->n_read < 200 &&
			    unread_fds(&p->unread, p->ours) + UNREAD_FDS_AN_ANSWER <=
				    UNREAD_ANSWERS_MAX * UNREAD_FDS_AN_ANSWER;

		if (fits && rand_r(&seed) % 2)
			send_one(p, 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 100 : 40000),
				 rand_r(&seed) % 2);
		else if (rand_r(&seed) % 64)
			read_one(p);
		else
			while (p->n_read < p->n_sent)
				read_one(p);
		assert_true(unread_fds(&p->unread, p->ours) >= naive(p));
		if (p->n_read == p->n_sent)
			assert_int_equal(unread_fds(&p->unread, p->ours), 0);
	}
}

static void what_is_read_counts_no_more_while_others_wait(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 1000; i++) {
		send_one(p, 20, true);
		send_one(p, 20, false);
		if (i >= 4) {
			read_one(p);
			read_one(p);
		}
		assert_true(unread_fds(&p->unread, p->ours) <= 2 * naive(p));
	}
}

static void a_socket_that_its_client_closes_has_none(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 3; i++)
		send_one(p, 20, true);
	assert_int_equal(unread_fds(&p->unread, p->ours), 3 * UNREAD_FDS_AN_ANSWER);
	shutdown(p->ours, SHUT_RDWR);
	assert_int_equal(unread_fds(&p->unread, p->ours), 3 * UNREAD_FDS_AN_ANSWER);
	close(p->theirs);
	p->theirs = -1;
	assert_int_equal(unread_fds(&p->unread, p->ours), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(never_too_few_and_none_once_all_are_read),
		CASE(what_is_read_counts_no_more_while_others_wait),
		CASE(a_socket_that_its_client_closes_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
