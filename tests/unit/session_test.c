/* session_test.c - who waits for a connection that says nothing, and how much one session asks. */
#include "proto/clock.h"
#include "daemon/session/begin.h"
#include "daemon/session/life.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)

struct fixture {
	struct config config; /* no arenas, no lanes */
	struct sessions home;
	int theirs[3];
	uint32_t n;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->home.config = &f->config;
	TAILQ_INIT(&f->home.list);
	*state = f;
	return 0;
}

/* What is left of it the test has ended: settling it frees it. */
static int tear_down(void **state)
{
	struct fixture *f = *state;
	struct session *s, *next;

	for (s = TAILQ_FIRST(&f->home.list); s; s = next) {
		next = TAILQ_NEXT(s, entry);
		s->n_requests = 0;
		session_end(s, "the test is over");
		session_free_if_over(s);
	}
	assert_int_equal(f->home.n_connections, 0);
	while (f->n > 0)
		close(f->theirs[--f->n]);
	free(f);
	return 0;
}

static struct session *session_add(struct fixture *f, enum session_state as, uint64_t for_ns)
{
	struct session *s = calloc(1, sizeof(*s));
	int fds[2];

	assert_non_null(s);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	f->theirs[f->n++] = fds[1];
	s->home = &f->home;
	s->state = as;
	s->connected_ns = clock_now_ns() - for_ns;
	s->fd = fds[0];
	s->peer.pidfd = s->doorbell_fd = -1;
	TAILQ_INSERT_TAIL(&f->home.list, s, entry);
	f->home.n_connections++;
	return s;
}

static void test_who_says_no_hello_is_cut_off_after_ten_seconds(void **state)
{
	struct fixture *f = *state;
	struct session *open = session_add(f, SESSION_OPEN, 1000 * S);
	struct session *young = session_add(f, SESSION_CONNECTED, 1 * S);

	session_add(f, SESSION_CONNECTED, 11 * S);
	sessions_expire(&f->home);
	assert_int_equal(f->home.n_connections, 2);
	assert_int_equal(open->state, SESSION_OPEN);
	assert_int_equal(young->state, SESSION_CONNECTED);
}

static void test_a_session_has_so_many_requests_under_way(void **state)
{
	static const struct verb verb;
	struct fixture *f = *state;
	struct session *s = session_add(f, SESSION_OPEN, 0);
	char byte;

	s->n_requests = REQUEST_MAX_PER_SESSION - 1;
	struct request *last = request_begin(s, 1, &verb, 8);
	assert_non_null(last);
	request_free(last);
	assert_int_equal(recv(f->theirs[0], &byte, 1, MSG_DONTWAIT), -1);
	s->n_requests = REQUEST_MAX_PER_SESSION;
	assert_null(request_begin(s, 2, &verb, 8));
	assert_int_equal(recv(f->theirs[0], &byte, 1, MSG_DONTWAIT), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_who_says_no_hello_is_cut_off_after_ten_seconds),
		TEST(test_a_session_has_so_many_requests_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
