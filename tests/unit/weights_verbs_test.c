/*
 * weights_verbs_test.c - verbs that look at weights just as others come to stand for them, and what
 * is said where they are not lent. The linker puts a weights_real around the table's that still
 * finds what was there a moment before, and a weights_lend that fails as the test says.
 */
#include "daemon/control/verbs.h"
#include "daemon/session/reply.h"
#include "daemon/weights/weights.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct weights *__wrap_weights_real(struct weights *weights);

/* The last look before the load settled. */
struct weights *__wrap_weights_real(struct weights *weights)
{
	return weights;
}

static int lending;
int __wrap_weights_lend(struct weights *weights, struct backend_lent *ret);

int __wrap_weights_lend(struct weights *weights, struct backend_lent *ret)
{
	(void)weights;
	(void)ret;
	return lending;
}

struct fixture {
	struct config config;
	struct sessions home;
	struct session session;
	struct held_weights held;
	struct program_tensor tensor;
	struct weights late, real; /* late: its content went, as real stands for it */
	int theirs;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fds[2];

	assert_non_null(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	f->config.max_weights = 1;
	f->config.max_unread_fds = f->home.max_fds = 100;
	f->home.backend_name = "test's";
	assert_int_equal(weights_table_new(&(struct weights_config){0}, &f->home.weights), 0);
	f->tensor = (struct program_tensor){.name = "a", .n_out = 1, .n_in = 2};
	f->real = (struct weights){.home = f->home.weights, .state = WEIGHTS_READY};
	f->real.content.tensors = &f->tensor;
	f->real.content.n_tensors = 1;
	f->late =
		(struct weights){.home = f->home.weights, .state = WEIGHTS_READY, .same = &f->real};
	f->held.held = &f->late;
	f->home.config = &f->config;
	f->session = (struct session){.home = &f->home,
				      .state = SESSION_OPEN,
				      .privileged = true,
				      .fd = fds[0],
				      .peer.pidfd = -1,
				      .weights = &f->held};
	f->theirs = fds[1];
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	weights_table_free(f->home.weights);
	close(f->session.fd);
	close(f->theirs);
	free(f);
	return 0;
}

static Coppice__Reply *hear(const struct fixture *f)
{
	uint8_t packet[4096];
	ssize_t n = recv(f->theirs, packet, sizeof(packet), MSG_DONTWAIT);
	Coppice__Reply *reply;

	assert_true(n > 0);
	reply = coppice__reply__unpack(NULL, (size_t)n, packet);
	assert_non_null(reply);
	return reply;
}

static void ready_has_the_tensors_of_those_that_stand_for_them(void **state)
{
	struct fixture *f = *state;
	Coppice__WeightsState m = COPPICE__WEIGHTS_STATE__INIT;
	Coppice__Reply *reply;

	m.weights = 1;
	verb_weights_state.begin(&f->session, 7, &m);
	reply = hear(f);
	assert_non_null(reply->weights_state);
	assert_true(reply->weights_state->ready);
	assert_int_equal(reply->weights_state->n_tensors, 1);
	coppice__reply__free_unpacked(reply, NULL);
}

static void tensors_are_those_of_who_stands_for_them(void **state)
{
	struct fixture *f = *state;
	Coppice__WeightsTensors m = COPPICE__WEIGHTS_TENSORS__INIT;
	Coppice__Reply *reply;

	m.weights = 1;
	verb_weights_tensors.begin(&f->session, 7, &m);
	reply = hear(f);
	assert_non_null(reply->weights_tensors);
	assert_int_equal(reply->weights_tensors->n_tensor, 1);
	assert_string_equal(reply->weights_tensors->tensor[0]->name, "a");
	coppice__reply__free_unpacked(reply, NULL);
}

static void assert_not_lent(struct fixture *f, int code, const char *words)
{
	Coppice__WeightsMap m = COPPICE__WEIGHTS_MAP__INIT;
	Coppice__Reply *reply;

	m.weights = 1;
	lending = code;
	verb_weights_map.begin(&f->session, 7, &m);
	reply = hear(f);
	assert_int_equal(reply->code, code);
	assert_non_null(strstr(reply->message, words));
	coppice__reply__free_unpacked(reply, NULL);
}

static void why_weights_are_not_lent_is_said(void **state)
{
	struct fixture *f = *state;

	assert_not_lent(f, -EPERM, "lend_weights = 1");
	f->config.lend_weights = 1;
	assert_not_lent(f, -EAGAIN, "ask again");
	assert_not_lent(f, -EOPNOTSUPP, "(test's) lends no weights");
	assert_not_lent(f, -ENOMEM, "no memory to move");
	assert_not_lent(f, -EIO, "cannot be lent: Input/output error");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ready_has_the_tensors_of_those_that_stand_for_them,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(why_weights_are_not_lent_is_said, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(tensors_are_those_of_who_stands_for_them, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
