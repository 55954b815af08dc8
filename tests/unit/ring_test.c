/*
 * ring_test.c - a lane's rings between two threads: order, wrap-around, and that nobody sleeps
 * through a doorbell.
 *
 * The threads stand for the two processes: the "daemon" works on the segments it made, the "client"
 * on mappings it made from their descriptors, the board's read-only.
 */
#include "proto/channel.h"
#include "proto/ring.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#define N_ENTRIES UINT64_C(1000000)
#define N_NAPS UINT64_C(30000)

struct sides {
	struct abi_board *daemon_board;
	const struct abi_board *client_board;
	struct abi_lane *daemon_lane;
	struct abi_lane *client_lane;
	uint64_t n_entries;
	uint64_t seed;
	uint64_t bad_entries; /* the daemon's count */
	int doorbell; /* eventfd */
	int doorbell_epoll; /* the daemon's, for edges of the doorbell */
	uint64_t daemon_naps, client_naps;
};

static uint64_t seed_of_run(void)
{
	const char *text = getenv("COPPICE_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

	print_message("COPPICE_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void segment_new(const char *name, size_t bytes, int read_only, void **ret_daemon,
			void **ret_client)
{
	int fd;

	assert_int_equal(channel_segment_new(name, bytes, read_only, &fd, ret_daemon), 0);
	assert_int_equal(channel_segment_map(fd, bytes, !read_only, ret_client), 0);
	close(fd);
}

static int setup(void **state)
{
	struct sides *s = calloc(1, sizeof(*s));
	void *daemon_map;
	void *client_map;
	struct epoll_event edges = {.events = EPOLLIN | EPOLLET};

	segment_new("board", ABI_BOARD_BYTES, 1, &daemon_map, &client_map);
	s->daemon_board = daemon_map;
	s->client_board = client_map;
	segment_new("lane", sizeof(struct abi_lane), 0, &daemon_map, &client_map);
	s->daemon_lane = daemon_map;
	s->client_lane = client_map;
	s->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->doorbell_epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(s->doorbell_epoll, EPOLL_CTL_ADD, s->doorbell, &edges), 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct sides *s = *state;

	munmap(s->daemon_board, ABI_BOARD_BYTES);
	munmap((void *)s->client_board, ABI_BOARD_BYTES);
	munmap(s->daemon_lane, sizeof(struct abi_lane));
	munmap(s->client_lane, sizeof(struct abi_lane));
	close(s->doorbell_epoll);
	close(s->doorbell);
	free(s);
	return 0;
}

static struct abi_entry entry_of(uint64_t ticket)
{
	return (struct abi_entry){
		.ticket = ticket,
		.kind = ABI_STEP,
		.seq = mix(ticket),
		.arg = mix(ticket + 1),
		.count = (uint32_t)ticket,
	};
}

static void client_submit(struct sides *s, uint64_t ticket)
{
	s->client_lane->entries[ring_slot(ticket)] = entry_of(ticket);
	ring_publish(s->client_lane, ticket);
	if (ring_daemon_asleep(s->client_board))
		ring_doorbell(s->doorbell);
}

/* Copies, compares with what must be there, answers with a value that depends on it. */
static void daemon_serve(struct sides *s, uint64_t ticket)
{
	struct abi_entry expected = entry_of(ticket);
	struct abi_entry entry;

	ring_copy_entry(s->daemon_lane, ticket, &entry);
	s->bad_entries += memcmp(&entry, &expected, sizeof(entry)) != 0;
	ring_complete(s->daemon_lane, ticket,
		      (struct ring_completion_words){.value = entry.seq ^ entry.arg});
	if (ring_client_asleep(s->daemon_lane))
		syscall(SYS_futex, ring_done_futex(s->daemon_lane), FUTEX_WAKE, INT32_MAX, NULL,
			NULL, 0);
}

static uint64_t check_completion(struct sides *s, uint64_t ticket)
{
	struct abi_completion completion = ring_completion(s->client_lane, ticket);
	struct abi_entry entry = entry_of(ticket);

	return completion.ticket != ticket || completion.value != (entry.seq ^ entry.arg);
}

static void slots_repeat_after_a_full_ring(void **state)
{
	(void)state;
	assert_int_equal(ring_slot(1), 0);
	assert_int_equal(ring_slot(ABI_LANE_SLOTS), ABI_LANE_SLOTS - 1);
	assert_int_equal(ring_slot(ABI_LANE_SLOTS + 1), 0);
	assert_int_equal(ring_slot(UINT64_C(1) << 32), ABI_LANE_SLOTS - 1);
}

static void a_full_ring_comes_out_in_order(void **state)
{
	struct sides *s = *state;

	for (uint64_t lap = 0; lap < 5; lap++) {
		uint64_t first = lap * ABI_LANE_SLOTS + 1;

		for (uint64_t t = first; t < first + ABI_LANE_SLOTS; t++)
			client_submit(s, t);
		assert_int_equal(ring_submitted(s->daemon_lane), first + ABI_LANE_SLOTS - 1);
		for (uint64_t t = first; t < first + ABI_LANE_SLOTS; t++)
			daemon_serve(s, t);
		assert_int_equal(ring_done(s->client_lane), first + ABI_LANE_SLOTS - 1);
		for (uint64_t t = first; t < first + ABI_LANE_SLOTS; t++)
			assert_int_equal(check_completion(s, t), 0);
	}
	assert_int_equal(s->bad_entries, 0);
}

static void *spinning_daemon(void *arg)
{
	struct sides *s = arg;
	uint64_t accepted = 0;

	while (accepted < s->n_entries) {
		uint64_t submitted = ring_submitted(s->daemon_lane);

		if (submitted == accepted)
			sched_yield();
		while (accepted < submitted)
			daemon_serve(s, ++accepted);
	}
	return NULL;
}

static void a_million_entries_cross_between_threads(void **state)
{
	struct sides *s = *state;
	uint64_t submitted = 0;
	uint64_t checked = 0;
	uint64_t bad = 0;
	pthread_t daemon;

	s->n_entries = N_ENTRIES;
	assert_int_equal(pthread_create(&daemon, NULL, spinning_daemon, s), 0);
	while (checked < N_ENTRIES) {
		uint64_t done = ring_done(s->client_lane);

		if (done == checked && submitted - done == ABI_LANE_SLOTS)
			sched_yield();
		while (checked < done)
			bad += check_completion(s, ++checked);
		while (submitted < N_ENTRIES && submitted - done < ABI_LANE_SLOTS)
			client_submit(s, ++submitted);
	}
	pthread_join(daemon, NULL);
	assert_int_equal(bad, 0);
	assert_int_equal(s->bad_entries, 0);
}

/* As the scheduler sleeps: says so, looks once more, waits for an edge that it never reads away. No
 * time limit: a doorbell that is lost shows as a test that hangs, and so for the client. */
static void daemon_nap(struct sides *s, uint64_t accepted)
{
	struct epoll_event event;

	ring_fall_asleep(s->daemon_board);
	if (ring_submitted(s->daemon_lane) == accepted) {
		epoll_wait(s->doorbell_epoll, &event, 1, -1);
		s->daemon_naps++;
	}
	ring_wake_up(s->daemon_board);
}

static void dawdle(uint64_t random)
{
	for (volatile uint64_t i = random % 512; i > 0; i--)
		;
}

static void *napping_daemon(void *arg)
{
	struct sides *s = arg;
	uint64_t accepted = 0;

	while (accepted < s->n_entries) {
		dawdle(mix(s->seed ^ accepted));
		if (ring_submitted(s->daemon_lane) == accepted)
			daemon_nap(s, accepted);
		while (accepted < ring_submitted(s->daemon_lane))
			daemon_serve(s, ++accepted);
	}
	return NULL;
}

static void client_nap(struct sides *s, uint64_t ticket)
{
	uint64_t done;

	atomic_fetch_add_explicit(&s->client_lane->sleepers, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	while ((done = ring_done(s->client_lane)) < ticket) {
		syscall(SYS_futex, ring_done_futex(s->client_lane), FUTEX_WAIT, (uint32_t)done,
			NULL, NULL, 0);
		s->client_naps++;
	}
	atomic_fetch_sub_explicit(&s->client_lane->sleepers, 1, memory_order_relaxed);
}

static void both_sides_sleep_and_are_woken(void **state)
{
	struct sides *s = *state;
	uint64_t bad = 0;
	pthread_t daemon;

	s->n_entries = N_NAPS;
	s->seed = seed_of_run();
	assert_int_equal(pthread_create(&daemon, NULL, napping_daemon, s), 0);
	for (uint64_t t = 1; t <= N_NAPS; t++) {
		dawdle(mix(~s->seed ^ t));
		client_submit(s, t);
		dawdle(mix(s->seed + t));
		client_nap(s, t);
		bad += check_completion(s, t);
	}
	pthread_join(daemon, NULL);
	print_message("daemon slept %llu times, client %llu\n", (unsigned long long)s->daemon_naps,
		      (unsigned long long)s->client_naps);
	assert_int_equal(bad, 0);
	assert_int_equal(s->bad_entries, 0);
}

static void a_doorbell_rung_before_the_daemon_waits_is_heard(void **state)
{
	struct sides *s = *state;
	struct epoll_event event;

	assert_false(ring_daemon_asleep(s->client_board));
	atomic_store(&s->daemon_board->asleep, 1);
	assert_true(ring_daemon_asleep(s->client_board));
	for (int i = 0; i < 3; i++) {
		ring_doorbell(s->doorbell);
		ring_doorbell(s->doorbell);
		assert_int_equal(epoll_wait(s->doorbell_epoll, &event, 1, 0), 1);
		assert_int_equal(epoll_wait(s->doorbell_epoll, &event, 1, 0), 0);
	}
}

static void a_doorbell_that_is_full_does_not_block(void **state)
{
	struct sides *s = *state;
	uint64_t most = UINT64_MAX - 1;

	assert_int_equal(write(s->doorbell, &most, sizeof(most)), sizeof(most));
	ring_doorbell(s->doorbell);
}

static void a_wish_for_a_byte_is_taken_once(void **state)
{
	struct sides *s = *state;

	assert_false(ring_take_notify(s->daemon_lane));
	atomic_store(&s->client_lane->notify, 1);
	assert_true(ring_take_notify(s->daemon_lane));
	assert_false(ring_take_notify(s->daemon_lane));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_repeat_after_a_full_ring),
		cmocka_unit_test_setup_teardown(a_full_ring_comes_out_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_million_entries_cross_between_threads, setup,
						teardown),
		cmocka_unit_test_setup_teardown(both_sides_sleep_and_are_woken, setup, teardown),
		cmocka_unit_test_setup_teardown(a_doorbell_rung_before_the_daemon_waits_is_heard,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_doorbell_that_is_full_does_not_block, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_wish_for_a_byte_is_taken_once, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
