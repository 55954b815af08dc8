/*
 * reply_test.c - answers that the kernel does not take: whose fault it is, and what becomes of the
 * session; how many large ones a session may have made at a time. The linker puts a sendmsg around
 * the system's that fails when it is told to.
 */
#include "daemon/control/arenas.h"
#include "daemon/control/verbs.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int fails_by; /* 0: not */

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (!fails_by)
		return __real_sendmsg(fd, msg, flags);
	errno = fails_by;
	return -1;
}

struct fixture {
	struct config config; /* no arenas, no lanes */
	struct sessions home;
	struct session session;
	int theirs;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fds[2];

	assert_non_null(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	f->home.config = &f->config;
	f->session = (struct session){.home = &f->home,
				      .state = SESSION_OPEN,
				      .fd = fds[0],
				      .peer.pidfd = -1};
	f->theirs = fds[1];
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	fails_by = 0;
	close(f->session.fd);
	close(f->theirs);
	free(f);
	return 0;
}

static int send_fds(struct fixture *f, int code, uint32_t n_fds)
{
	const Coppice__Reply reply = COPPICE__REPLY__INIT;
	const int fds[2] = {f->session.fd, f->session.fd};

	fails_by = code;
	return reply_send_fds(&f->session, &reply, fds, n_fds);
}

static void test_descriptors_that_cannot_go_are_an_error_and_no_end(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(send_fds(f, ETOOMANYREFS, 1), -ETOOMANYREFS);
	assert_int_equal(send_fds(f, ETOOMANYREFS, 2), -ETOOMANYREFS);
	assert_int_equal(f->session.state, SESSION_OPEN);
	assert_int_equal(unread_fds(&f->session.unread, f->session.fd), 0);
	assert_int_equal(send_fds(f, 0, 1), 0);
	assert_int_equal(unread_fds(&f->session.unread, f->session.fd), UNREAD_FDS_AN_ANSWER);
}

/* The client would wait for it for ever. */
static void test_an_answer_without_descriptors_that_cannot_go_ends_the_session(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(send_fds(f, ENOBUFS, 0), 0);
	assert_int_equal(f->session.state, SESSION_ENDING);
}

static void test_who_does_not_read_or_is_gone_is_cut_off_with_descriptors_too(void **state)
{
	static const int codes[] = {EAGAIN, EPIPE, ECONNRESET, ENOTCONN};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		f->session.state = SESSION_OPEN;
		assert_int_equal(send_fds(f, codes[i], 1), 0);
		assert_int_equal(f->session.state, SESSION_ENDING);
	}
}

/* Its client may have named it by now, in an entry that a pass has. */
static void test_a_device_arena_that_cannot_go_is_freed_when_arenas_may(void **state)
{
	struct fixture *f = *state;
	struct shm arena = {.state = SHM_ADDING, .device = true, .bytes = 1, .fd = -1};
	struct arena_call call = {.arena = 1, .bytes = 1, .made.fd = dup(f->theirs)};
	struct request request;

	arena.notify_fd = -1;
	f->session.arenas = &arena;
	request_init(&request, &verb_arena_new, &f->home, &f->session);
	request.sched.room = &call;
	request_carry(&request, -1);
	fails_by = ETOOMANYREFS;
	verb_arena_new.answer(&request);
	assert_true(request.again);
	assert_ptr_equal(request.sched.serve, verb_arena_free.serve);
	assert_ptr_equal(request.sched.beside, verb_arena_free.beside);
	close(request.fds[0]);
}

static void test_an_ending_session_is_sent_nothing(void **state)
{
	struct fixture *f = *state;
	char byte;

	f->session.state = SESSION_ENDING;
	assert_int_equal(send_fds(f, 0, 1), 0);
	reply_error(&f->session, 1, -EINVAL, NULL, "Nobody reads this.");
	assert_int_equal(recv(f->theirs, &byte, 1, MSG_DONTWAIT), -1);
}

static int code_of_reply(struct fixture *f)
{
	uint8_t packet[1024];
	ssize_t n = recv(f->theirs, packet, sizeof(packet), MSG_DONTWAIT);
	Coppice__Reply *reply;
	int code;

	assert_true(n > 0);
	reply = coppice__reply__unpack(NULL, (size_t)n, packet);
	assert_non_null(reply);
	code = reply->code;
	coppice__reply__free_unpacked(reply, NULL);
	return code;
}

/* Each has tens of KiB of the daemon's heap until it is answered. */
static void test_a_session_has_few_large_requests_at_a_time(void **state)
{
	const struct verb *const verbs[] = {&verb_tree, &verb_pins, &verb_models,
					    &verb_program_new};
	struct fixture *f = *state;
	struct request *requests[REQUEST_MAX_LARGE];

	for (uint32_t i = 0; i < REQUEST_MAX_LARGE; i++) {
		requests[i] = request_begin(&f->session, i, verbs[i], 1000);
		assert_non_null(requests[i]);
	}
	for (uint32_t i = 0; i < REQUEST_MAX_LARGE; i++) {
		assert_null(request_begin(&f->session, i, verbs[i], 1000));
		assert_int_equal(code_of_reply(f), -EBUSY);
	}
	request_free(request_begin(&f->session, 1, &verb_sessions, 8));
	request_free(requests[0]);
	requests[0] = request_begin(&f->session, 1, &verb_tree, 1000);
	assert_non_null(requests[0]);
	for (uint32_t i = 0; i < REQUEST_MAX_LARGE; i++)
		request_free(requests[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_descriptors_that_cannot_go_are_an_error_and_no_end),
		TEST(test_an_answer_without_descriptors_that_cannot_go_ends_the_session),
		TEST(test_who_does_not_read_or_is_gone_is_cut_off_with_descriptors_too),
		TEST(test_a_device_arena_that_cannot_go_is_freed_when_arenas_may),
		TEST(test_an_ending_session_is_sent_nothing),
		TEST(test_a_session_has_few_large_requests_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
