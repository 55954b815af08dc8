/* ranks_test.c - processes that find each other by a list of addresses. */
#include "kernels/group/ranks.h"
#include "kernels/merge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4u
#define DIM 16u
#define TIMEOUT_MS 60000u

struct list {
	char folder[64];
	char text[RANKS][96];
	const char *addresses[RANKS];
	int fds[RANKS]; /* sockets that keep its ports; -1: it has none */
};

static void list_paths(struct list *l)
{
	strcpy(l->folder, "/tmp/ranks-XXXXXX");
	assert_non_null(mkdtemp(l->folder));
	for (uint32_t i = 0; i < RANKS; i++) {
		snprintf(l->text[i], sizeof(l->text[i]), "%s/rank-%u", l->folder, i);
		l->addresses[i] = l->text[i];
		l->fds[i] = -1;
	}
}

/* Ports that nobody has, nor gets: a socket that does not listen leaves its port to who listens
 * with SO_REUSEADDR, as ranks do, and the kernel gives it to nobody who asks for any. */
static void list_ports(struct list *l)
{
	const int one = 1;

	l->folder[0] = '\0';
	for (uint32_t i = 0; i < RANKS; i++) {
		struct sockaddr_in at = {.sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t bytes = sizeof(at);

		l->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_true(l->fds[i] >= 0);
		setsockopt(l->fds[i], SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		assert_int_equal(bind(l->fds[i], (struct sockaddr *)&at, bytes), 0);
		assert_int_equal(getsockname(l->fds[i], (struct sockaddr *)&at, &bytes), 0);
		snprintf(l->text[i], sizeof(l->text[i]), "127.0.0.1:%u", ntohs(at.sin_port));
		l->addresses[i] = l->text[i];
	}
}

/* Nothing is left behind. */
static void list_done(struct list *l)
{
	for (uint32_t i = 0; i < RANKS && l->fds[i] >= 0; i++)
		close(l->fds[i]);
	if (l->folder[0])
		assert_int_equal(rmdir(l->folder), 0);
}

/* Rank r brings one key of score r and V r: what all fold is known. */
static bool fold_one(struct exchange *x)
{
	float own[2 + DIM] = {(float)x->rank, 1}, folded[2 + DIM];
	struct exchange_rows rows = {
		.parts = own, .folded = folded, .n_rows = 1, .n_heads = 1, .head_dim = DIM};
	double sum = 0, o = 0;

	for (uint32_t i = 0; i < DIM; i++)
		own[2 + i] = (float)x->rank;
	if (exchange_run(x, &rows) != 0)
		return false;
	for (uint32_t i = 0; i < x->n_ranks; i++) {
		sum += exp2((double)i - x->n_ranks + 1);
		o += i * exp2((double)i - x->n_ranks + 1);
	}
	return folded[0] == (float)(x->n_ranks - 1) && fabs(folded[1] - sum) < 1e-6 &&
	       fabs(folded[2 + DIM / 2] - o) < 1e-5;
}

/* Rank r says r, r + 1, ... and hears the like of all. */
static bool tell_all(struct exchange *x)
{
	uint8_t own[200], all[RANKS][200];

	for (uint32_t i = 0; i < sizeof(own); i++)
		own[i] = (uint8_t)(100 * x->rank + i);
	if (exchange_tell(x, own, sizeof(own), all) != 0)
		return false;
	for (uint32_t i = 0; i < RANKS * sizeof(own); i++) {
		if (all[i / sizeof(own)][i % sizeof(own)] !=
		    (uint8_t)(100 * (i / sizeof(own)) + i % sizeof(own)))
			return false;
	}
	return true;
}

static int live(const struct list *l, uint32_t rank)
{
	struct ranks_config config = {l->addresses, rank, RANKS, TIMEOUT_MS};
	struct exchange *x = NULL;
	char error[256] = "";
	bool right;

	if (ranks_connect(&config, &x, error, sizeof(error)) != 0) {
		fprintf(stderr, "rank %u: %s\n", rank, error);
		return 1;
	}
	right = fold_one(x) && tell_all(x);
	exchange_free(x);
	return right ? 0 : 2;
}

static pid_t start(const struct list *l, uint32_t rank)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(live(l, rank));
	return pid;
}

static void assert_ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

/* The last first. */
static void check_list(struct list *l)
{
	pid_t pids[RANKS];

	for (uint32_t i = RANKS; i--;) {
		pids[i] = start(l, i);
		pause_ms(30);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		assert_ends_well(pids[i]);
	list_done(l);
}

static void test_ranks_of_paths_meet_in_any_order(void **state)
{
	struct list l;

	(void)state;
	list_paths(&l);
	check_list(&l);
}

static void test_ranks_of_ports_meet_in_any_order(void **state)
{
	struct list l;

	(void)state;
	list_ports(&l);
	check_list(&l);
}

static void assert_fails(struct list *l, uint32_t rank, int r, const char *word)
{
	struct ranks_config config = {l->addresses, rank, RANKS, 200};
	struct exchange *x = NULL;
	char error[256] = "";

	assert_int_equal(ranks_connect(&config, &x, error, sizeof(error)), r);
	assert_null(x);
	assert_non_null(strstr(error, word));
}

static void test_a_rank_that_never_comes_is_named_in_time(void **state)
{
	struct list l;

	(void)state;
	list_paths(&l);
	assert_fails(&l, 0, -ETIMEDOUT, "rank 1 of ");
	assert_fails(&l, 3, -ETIMEDOUT, "rank 0 at ");
	list_done(&l);
}

static int call_path(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(at.sun_path, path);
	while (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
		pause_ms(5);
	return fd;
}

static void test_strangers_are_hung_up_on(void **state)
{
	uint32_t of_another_list[3] = {0x52504f43u, 1, RANKS + 1};
	uint32_t below[3] = {0x52504f43u, 0, RANKS};
	pid_t pids[RANKS];
	struct list l;
	int noisy, other, self, mute;

	(void)state;
	list_paths(&l);
	pids[0] = start(&l, 0);
	noisy = call_path(l.addresses[0]);
	other = call_path(l.addresses[0]);
	self = call_path(l.addresses[0]);
	mute = call_path(l.addresses[0]);
	assert_int_equal(write(noisy, "GET / HTTP/1.1\r\n", 16), 16);
	assert_int_equal(write(other, of_another_list, 12), 12);
	assert_int_equal(write(self, below, 12), 12);
	for (uint32_t i = 1; i < RANKS; i++)
		pids[i] = start(&l, i);
	for (uint32_t i = 0; i < RANKS; i++)
		assert_ends_well(pids[i]);
	close(noisy);
	close(other);
	close(self);
	close(mute);
	list_done(&l);
}

static void test_what_is_no_address_is_refused_in_a_sentence(void **state)
{
	static const char *const wrong[] = {"nowhere",	"localhost:80", ":80",		"1.2.3.4:x",
					    "1.2.3.4:", "1.2.3.4:0",	"1.2.3.4:65536"};
	struct list l;

	(void)state;
	list_paths(&l);
	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		l.addresses[0] = wrong[i];
		assert_fails(&l, 0, -EINVAL, "neither a path nor");
	}
	assert_fails(&l, RANKS, -EINVAL, "rank 4 of 4");
	l.addresses[0] = "/nowhere/at/all";
	assert_fails(&l, 0, -ENOENT, "rank 0 cannot listen");
	list_done(&l);
}

static void test_what_stands_at_its_own_address_stays_there(void **state)
{
	struct list l;
	int fd;

	(void)state;
	list_paths(&l);
	fd = open(l.addresses[0], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_fails(&l, 0, -EADDRINUSE, "rank 0 cannot listen");
	assert_int_equal(unlink(l.addresses[0]), 0); /* it was there */
	list_done(&l);
}

static void test_a_second_of_a_rank_leaves_the_first_where_it_is(void **state)
{
	pid_t pids[RANKS];
	struct list l;

	(void)state;
	list_paths(&l);
	pids[0] = start(&l, 0);
	close(call_path(l.addresses[0]));
	assert_fails(&l, 0, -EADDRINUSE, "rank 0 cannot listen");
	for (uint32_t i = 1; i < RANKS; i++)
		pids[i] = start(&l, i);
	for (uint32_t i = 0; i < RANKS; i++)
		assert_ends_well(pids[i]);
	list_done(&l);
}

static void test_a_socket_that_nobody_hears_is_replaced(void **state)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct list l;

	(void)state;
	list_paths(&l);
	strcpy(at.sun_path, l.addresses[0]);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	close(fd);
	check_list(&l);
}

/* Its first life met rank 0 and ended. */
static void test_a_rank_that_was_started_anew_is_taken_instead(void **state)
{
	uint32_t hello[3] = {0x52504f43u, 1, RANKS};
	pid_t pids[RANKS];
	struct list l;
	int fd;

	(void)state;
	list_paths(&l);
	pids[0] = start(&l, 0);
	fd = call_path(l.addresses[0]);
	assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
	assert_int_equal(read(fd, hello, sizeof(hello)), sizeof(hello));
	close(fd);
	for (uint32_t i = 1; i < RANKS; i++)
		pids[i] = start(&l, i);
	for (uint32_t i = 0; i < RANKS; i++)
		assert_ends_well(pids[i]);
	list_done(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks_of_paths_meet_in_any_order),
		cmocka_unit_test(test_ranks_of_ports_meet_in_any_order),
		cmocka_unit_test(test_a_rank_that_never_comes_is_named_in_time),
		cmocka_unit_test(test_strangers_are_hung_up_on),
		cmocka_unit_test(test_what_is_no_address_is_refused_in_a_sentence),
		cmocka_unit_test(test_what_stands_at_its_own_address_stays_there),
		cmocka_unit_test(test_a_second_of_a_rank_leaves_the_first_where_it_is),
		cmocka_unit_test(test_a_socket_that_nobody_hears_is_replaced),
		cmocka_unit_test(test_a_rank_that_was_started_anew_is_taken_instead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
