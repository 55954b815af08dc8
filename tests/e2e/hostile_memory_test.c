/*
 * hostile_memory_test.c - a client that does as it likes with the memory that it shares with the
 * daemon. Beside it an honest client steps on (scene.h).
 */
#include "raw_lane.h"
#include "scene.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- holes and seals ------------------------------------------------------------------------ */

static void punch(int fd, off_t bytes)
{
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes), 0);
}

static void zeros_in_a_lane_end_that_lane_alone(void **state)
{
	struct scene s = scene_begin(state);

	for (int i = 0; i < 20; i++) {
		struct raw x = raw_open(s.h);
		uint64_t seq = raw_seq(&x);

		for (int j = 0; j < i; j++)
			raw_step(&x, seq);
		memset(x.lane, 0, sizeof(*x.lane));
		ring_doorbell(x.doorbell_fd);
		honest_step(&s.honest);
		raw_close(&x);
	}
	scene_end(&s);
}

static void assert_takes_no_holes(int fd, void *map, size_t bytes)
{
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(madvise(map, bytes, MADV_REMOVE), -1);
	assert_int_equal(errno, EPERM);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

/* Who writes there, or a batch, would wait for pages. */
static void memory_in_use_takes_no_holes(void **state)
{
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);
	uint64_t seq = raw_seq(&x);

	assert_takes_no_holes(x.arena_fd, x.c.arena, RAW_ARENA_BYTES);
	assert_takes_no_holes(x.lane_fd, x.lane, align_to(sizeof(*x.lane), 4096));
	raw_step(&x, seq);
	raw_wait(&x);
	scene_steps_on(&s);
	raw_close(&x);
	scene_end(&s);
}

/* Until it is sealed they are nobody's concern: who made them fills them, and none is left. */
static void holes_before_the_seal_are_filled_by_who_made_them(void **state)
{
	struct scene s = scene_begin(state);
	struct client c = client_open(s.h);
	int fd;
	uint32_t arena = client_open_arena(&c, 1, &fd);
	unsigned char in_core[512];
	size_t n_pages = c.arena_bytes / 4096;

	memset(c.arena, 1, c.arena_bytes);
	punch(fd, (off_t)c.arena_bytes);
	assert_refused(client_seal(&c, arena), -ENODATA, "arena", "not all of its pages");
	memset(c.arena, 1, c.arena_bytes - 4096);
	assert_refused(client_seal(&c, arena), -ENODATA, "arena", "not all of its pages");
	memset(c.arena, 1, c.arena_bytes);
	assert_int_equal(client_seal(&c, arena)->code, 0);
	assert_true(n_pages <= sizeof(in_core));
	assert_int_equal(mincore(c.arena, c.arena_bytes, in_core), 0);
	for (size_t i = 0; i < n_pages; i++)
		assert_true(in_core[i] & 1);
	close(fd);
	client_close(&c);
	scene_end(&s);
}

static void an_arena_is_not_used_before_its_seal(void **state)
{
	struct scene s = scene_begin(state);
	struct client c = client_open(s.h);
	Coppice__ArenaFree m = COPPICE__ARENA_FREE__INIT;
	int fd;

	client_model(&c);
	client_lane(&c);
	m.arena = client_open_arena(&c, 1, &fd);
	assert_refused(client_seq(&c, 1, 1, m.arena, 4), -ENOENT, "arena", NULL);
	assert_int_equal(client_verb(&c, arena_free, &m)->code, 0);
	assert_refused(client_verb(&c, arena_free, &m), -ENOENT, "arena", NULL);
	munmap(c.arena, c.arena_bytes);
	m.arena = client_open_arena(&c, 1, &fd);
	/* Seals of the client's own. */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_refused(client_seal(&c, m.arena), -EPERM, "arena", "seals");
	assert_refused(client_seq(&c, 1, 1, m.arena, 4), -ENOENT, "arena", NULL);
	assert_refused(client_seal(&c, 3), -ENOENT, "arena", NULL);
	client_close(&c);
	scene_end(&s);
}

/* A lane without the library: its descriptor is the caller's. */
static struct abi_lane *open_lane(struct client *c, int *ret_fd)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	void *map;

	assert_int_equal(client_verb(c, lane_new, &m)->code, 0);
	*ret_fd = fcntl(c->fds[0], F_DUPFD_CLOEXEC, 0);
	assert_true(*ret_fd >= 0);
	assert_int_equal(channel_segment_map(*ret_fd, sizeof(struct abi_lane), 1, &map), 0);
	assert_int_equal(channel_segment_fill(map, sizeof(struct abi_lane)), 0);
	return map;
}

static void publish_nop(struct abi_lane *lane)
{
	lane->entries[0] = (struct abi_entry){.ticket = 1, .kind = ABI_NOP};
	ring_publish(lane, 1);
}

/* Nobody looks at it, whatever is in it; then it serves. */
static void a_lane_is_not_used_before_its_seal(void **state)
{
	struct scene s = scene_begin(state);
	struct client c = client_open(s.h);
	int doorbell = fcntl(c.fds[1], F_DUPFD_CLOEXEC, 0), fd;
	struct abi_lane *lane = open_lane(&c, &fd);

	client_model(&c);
	client_arena(&c, 1);
	publish_nop(lane);
	ring_doorbell(doorbell);
	scene_steps_on(&s);
	assert_int_equal(ring_done(lane), 0);
	assert_refused(client_seq(&c, 1, 1, 1, 4), -ENOENT, "lane", NULL);
	punch(fd, sizeof(*lane));
	publish_nop(lane);
	assert_refused(client_seal_lane(&c, 1), -ENODATA, "lane", "not all of its pages");
	client_fill(fd, sizeof(*lane));
	assert_int_equal(client_seal_lane(&c, 1)->code, 0);
	assert_refused(client_seal_lane(&c, 1), -ENOENT, "lane", "to be sealed");
	for (int i = 0; i < 1000 && ring_done(lane) < 1; i++)
		sleep_ms(5);
	assert_int_equal(ring_done(lane), 1);
	assert_int_equal(client_seq(&c, 1, 1, 1, 4)->code, 0);
	munmap(lane, sizeof(*lane));
	close(doorbell);
	close(fd);
	client_close(&c);
	scene_end(&s);
}

static void a_lane_with_seals_of_the_clients_is_refused(void **state)
{
	struct scene s = scene_begin(state);
	struct client c = client_open(s.h);
	Coppice__LaneFree m = COPPICE__LANE_FREE__INIT;
	int fd;
	struct abi_lane *lane = open_lane(&c, &fd);

	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_refused(client_seal_lane(&c, 1), -EPERM, "lane", "seals");
	m.lane = 1;
	assert_int_equal(client_verb(&c, lane_free, &m)->code, 0);
	assert_refused(client_verb(&c, lane_free, &m), -ENOENT, "lane", NULL);
	assert_refused(client_seal_lane(&c, 1), -ENOENT, "lane", NULL);
	assert_int_equal(client_lane(&c), 1);
	munmap(lane, sizeof(*lane));
	close(fd);
	client_close(&c);
	scene_end(&s);
}

/* ---- sizes and seals ------------------------------------------------------------------------ */

static void assert_sealed(int fd)
{
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 1 << 30), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
	assert_int_equal(fallocate(fd, 0, 1 << 30, 4096), -1);
}

/* The client's is for reading; root, who may open it once more, changes nothing either. */
static void assert_board_sealed(int fd)
{
	char path[64];

	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(fallocate(fd, 0, 1 << 30, 4096), -1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR | O_CLOEXEC);

	if (again < 0) {
		assert_int_equal(errno, EACCES);
		return;
	}
	assert_sealed(again);
	close(again);
}

static void sizes_and_seals_are_not_the_clients_to_change(void **state)
{
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);

	assert_board_sealed(x.board_fd);
	assert_sealed(x.arena_fd);
	assert_sealed(x.lane_fd);
	raw_close(&x);
	scene_end(&s);
}

static void the_board_cannot_be_written(void **state)
{
	struct scene s = scene_begin(state);
	struct raw x = raw_open(s.h);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", x.board_fd);
	int again = open(path, O_RDWR | O_CLOEXEC);

	for (int fd = x.board_fd; fd >= 0; fd = fd == again ? -1 : again) {
		assert_int_equal(pwrite(fd, "x", 1, 0), -1);
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
				 -1);
		assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
				 MAP_FAILED);
		void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

		assert_ptr_not_equal(map, MAP_FAILED);
		assert_int_equal(mprotect(map, 4096, PROT_READ | PROT_WRITE), -1);
		munmap(map, 4096);
	}
	if (again >= 0)
		close(again);
	raw_close(&x);
	scene_end(&s);
}

#define CASES(loop) \
	HARNESS_CASE(loop, zeros_in_a_lane_end_that_lane_alone), \
		HARNESS_CASE(loop, memory_in_use_takes_no_holes), \
		HARNESS_CASE(loop, holes_before_the_seal_are_filled_by_who_made_them), \
		HARNESS_CASE(loop, an_arena_is_not_used_before_its_seal), \
		HARNESS_CASE(loop, a_lane_is_not_used_before_its_seal), \
		HARNESS_CASE(loop, a_lane_with_seals_of_the_clients_is_refused), \
		HARNESS_CASE(loop, sizes_and_seals_are_not_the_clients_to_change), \
		HARNESS_CASE(loop, the_board_cannot_be_written)

int main(int argc, char **argv)
{
	const struct CMUnitTest on_uring[] = {CASES(uring)}, on_epoll[] = {CASES(epoll)};
	int failed = harness_init(argc, argv);

	if (failed < 0)
		return 2;
	if (harness_has_uring())
		failed += cmocka_run_group_tests(on_uring, NULL, NULL);
	return failed + cmocka_run_group_tests(on_epoll, NULL, NULL);
}
