/*
 * watch_test.c - the library's thread: what it does when the daemon dies while nobody calls the
 * library, and that it is no burden to the app. The daemon is the other end of a socketpair.
 *
 * The words are looked at from the CPU; to a stream that waits for them they are the same.
 */
#include "folder_count.h"

#include "client/lib/base/clock.h"
#include "client/lib/connection/watch.h"
#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TRIES 5000 /* of a millisecond */
#define N_LANES 2

struct fixture {
	struct coppice c;
	struct lane_segment lanes[N_LANES];
	_Atomic uint32_t alive;
	int daemon_end;
};

static unsigned n_threads; /* before any test */

static void sleep_ms(unsigned ms)
{
	usleep(ms * 1000);
}

static unsigned count_threads(void)
{
	return folder_count("/proc/self/task") - 2;
}

/* Who joins a thread goes on before the kernel has taken it off the list. */
static void assert_threads(unsigned n)
{
	for (int i = 0; i < TRIES && count_threads() != n; i++)
		sleep_ms(1);
	assert_int_equal(count_threads(), n);
}

static void *wait_for_lock(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

/* While there is one more: with the first a sanitizer begins one of its own. */
static int count_before(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;

	(void)state;
	pthread_mutex_lock(&lock);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_lock, &lock), 0);
	n_threads = count_threads() - 1;
	pthread_mutex_unlock(&lock);
	return pthread_join(thread, NULL);
}

static struct abi_lane *lane_new(void)
{
	struct abi_lane *lane = aligned_alloc(128, sizeof(*lane));

	assert_non_null(lane);
	memset(lane, 0, sizeof(*lane));
	return lane;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int ends[2];

	assert_non_null(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	f->alive = 1;
	f->daemon_end = ends[1];
	f->c = (struct coppice){.key = 80, .alive = &f->alive, .socket = ends[0], .watch_fd = -1};
	pthread_mutex_init(&f->c.lists_lock, NULL);
	list_init(&f->c.lanes);
	for (int i = 0; i < N_LANES; i++) {
		f->lanes[i].shared = lane_new();
		connection_add_lane(&f->c, &f->lanes[i]);
	}
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	watch_end(&f->c);
	if (f->c.watch_fd >= 0)
		close(f->c.watch_fd);
	close(f->c.socket);
	if (f->daemon_end >= 0)
		close(f->daemon_end);
	for (int i = 0; i < N_LANES; i++)
		free(f->lanes[i].shared);
	pthread_mutex_destroy(&f->c.lists_lock);
	free(f);
	return 0;
}

static void daemon_die(struct fixture *f)
{
	close(f->daemon_end);
	f->daemon_end = -1;
}

static bool is_released(const struct abi_lane *lane)
{
	uint64_t words = 1;

	for (uint32_t i = 0; i < ABI_LANE_WORDS; i++)
		words &= atomic_load(&lane->done_words[i]);
	return words && (atomic_load(&lane->done) & ABI_RELEASED) &&
	       (atomic_load(&lane->soon) & ABI_RELEASED);
}

static void assert_released(const struct abi_lane *lane)
{
	for (int i = 0; i < TRIES && !is_released(lane); i++)
		sleep_ms(1);
	assert_true(is_released(lane));
}

/* ---- the daemon dies ------------------------------------------------------------------------ */

static void its_death_releases_the_streams_of_all_lanes(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	ring_publish(f->lanes[0].shared, 1);
	sleep_ms(50);
	for (int i = 0; i < N_LANES; i++)
		assert_int_equal(atomic_load(&f->lanes[i].shared->done), 0);
	daemon_die(f);
	for (int i = 0; i < N_LANES; i++)
		assert_released(f->lanes[i].shared);
	/* As a stream compares: all that was submitted is done, and so is what is submitted after
	 * the death. */
	assert_true((int64_t)(atomic_load(&f->lanes[0].shared->done) - (1 + ABI_LANE_SLOTS)) >= 0);
	assert_int_equal(connection_check(&f->c), -ECONNRESET);
}

/* The daemon may have said what it had to say, and shut down before its process ends. */
static void the_end_of_a_session_does_the_same(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	assert_int_equal(send(f->daemon_end, "bye", 3, 0), 3);
	assert_int_equal(shutdown(f->daemon_end, SHUT_RDWR), 0);
	assert_released(f->lanes[0].shared);
}

static void a_word_that_a_queued_replay_takes_back_comes_again(void **state)
{
	struct fixture *f = *state;
	struct abi_lane *lane = f->lanes[1].shared;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	daemon_die(f);
	for (int replay = 0; replay < 5; replay++) {
		assert_released(lane);
		atomic_store(&lane->done_words[0], 0);
	}
	assert_released(lane);
	assert_true(atomic_load(&lane->done) < 2 * ABI_RELEASED);
}

static void a_lane_that_goes_is_left_alone(void **state)
{
	struct fixture *f = *state;
	struct abi_lane *gone = f->lanes[0].shared;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	daemon_die(f);
	assert_released(gone);
	connection_remove_lane(&f->c, &f->lanes[0]);
	atomic_store(&gone->done_words[0], 0);
	atomic_store(&f->lanes[1].shared->done_words[0], 0);
	assert_released(f->lanes[1].shared);
	sleep_ms(100);
	assert_int_equal(atomic_load(&gone->done_words[0]), 0);
}

/* ---- what the app sees of it ---------------------------------------------------------------- */

static void it_is_one_thread_however_often_it_is_begun(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++)
		assert_int_equal(watch_begin(&f->c, "test"), 0);
	assert_threads(n_threads + 1);
}

static uint64_t begin_and_end_ns(struct fixture *f, bool dead)
{
	uint64_t begin_ns;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	if (dead && f->daemon_end >= 0)
		daemon_die(f);
	if (dead)
		assert_released(f->lanes[0].shared);
	begin_ns = clock_now_ns();
	watch_end(&f->c);
	begin_ns = clock_now_ns() - begin_ns;
	close(f->c.watch_fd);
	f->c.watch_fd = -1;
	return begin_ns;
}

/* Whether the daemon lives or not: who closes a connection does not wait. Of some times one shows
 * it: at the others a machine may have been busy with others. */
static void it_ends_at_once(void **state)
{
	struct fixture *f = *state;

	for (int dead = 0; dead < 2; dead++) {
		uint64_t least_ns = UINT64_MAX;

		for (int i = 0; i < 5 && least_ns >= UINT64_C(1000000000); i++)
			least_ns = begin_and_end_ns(f, dead);
		assert_true(least_ns < UINT64_C(1000000000));
		assert_threads(n_threads);
	}
}

static void it_takes_no_signal_of_the_apps(void **state)
{
	struct fixture *f = *state;
	sigset_t set, pending;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	assert_int_equal(kill(getpid(), SIGUSR1), 0); /* which would end the process */
	sleep_ms(50);
	sigpending(&pending);
	assert_true(sigismember(&pending, SIGUSR1));
	assert_int_equal(sigwaitinfo(&set, NULL), SIGUSR1);
}

/* There it is not, and what it had is closed as the connection is. */
static void a_forked_child_does_not_wait_for_it(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid;

	assert_int_equal(watch_begin(&f->c, "test"), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		f->alive = 0;
		watch_end(&f->c);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_threads(n_threads + 1);
}

static void where_it_cannot_begin_the_app_is_told(void **state)
{
	struct fixture *f = *state;
	struct rlimit limit, none;
	int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){(rlim_t)lowest, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	int r = watch_begin(&f->c, "coppice_step_on_stream");

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(r, -EMFILE);
	assert_non_null(strstr(coppice_explain(&f->c), "coppice_step_on_stream: no thread"));
	assert_int_equal(watch_begin(&f->c, "test"), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(its_death_releases_the_streams_of_all_lanes),
		CASE(the_end_of_a_session_does_the_same),
		CASE(a_word_that_a_queued_replay_takes_back_comes_again),
		CASE(a_lane_that_goes_is_left_alone),
		CASE(it_is_one_thread_however_often_it_is_begun),
		CASE(it_ends_at_once),
		CASE(it_takes_no_signal_of_the_apps),
		CASE(a_forked_child_does_not_wait_for_it),
		CASE(where_it_cannot_begin_the_app_is_told),
	};

	return cmocka_run_group_tests(tests, count_before, NULL);
}
