/*
 * mover_test.c - copies between a backend's pool and host memory: the CPU's, and with argv[1], the
 * GPU's module, that one's instead. Without a device the program says so and exits with 77, which
 * CTest counts as skipped.
 */
#include "device_ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define EXTENT_BYTES (4 * MIB)
#define N_EXTENTS 8u
#define HOST_BYTES (64 * MIB)
#define OPERATIONS 3000u

static const struct backend_ops *ops = &backend_cpu;

struct fixture {
	struct backend *backend;
	char *host;
};

static int setup(void **state)
{
	const struct backend_config config = {.pool_bytes = N_EXTENTS * EXTENT_BYTES,
					      .extent_bytes = EXTENT_BYTES,
					      .n_threads = 1};
	struct fixture *f = calloc(1, sizeof(*f));
	char error[400] = "";

	if (ops->open(&config, &f->backend, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	f->host =
		mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(f->host, MAP_FAILED);
	assert_int_equal(ops->tier->pin(f->backend, f->host, HOST_BYTES), 0);
	for (uint32_t i = 0; i < N_EXTENTS; i++)
		assert_int_equal(ops->extent_commit(f->backend, i), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (uint32_t i = 0; i < N_EXTENTS; i++)
		ops->extent_release(f->backend, i);
	ops->tier->unpin(f->backend, f->host, HOST_BYTES);
	ops->close(f->backend);
	munmap(f->host, HOST_BYTES);
	free(f);
	return 0;
}

static void fill(void *at, uint64_t bytes, uint64_t number)
{
	uint64_t *words = at;

	for (uint64_t i = 0; i < bytes / 8; i++)
		words[i] = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
}

static bool holds(const void *at, uint64_t bytes, uint64_t number)
{
	const uint64_t *words = at;

	for (uint64_t i = 0; i < bytes / 8; i++)
		if (words[i] != (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + i)
			return false;
	return true;
}

static void await(uint64_t (*done)(struct backend *b), struct fixture *f, uint64_t token)
{
	ops->tier->kick(f->backend);
	while (done(f->backend) < token)
		continue;
}

static void what_went_up_comes_down(void **state)
{
	static const uint64_t sizes[] = {16,	 4096,	 16384,	   65536,
					 100000, 262144, MIB - 16, EXTENT_BYTES};
	struct fixture *f = *state;

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct backend_copy copy = {.extent = i % N_EXTENTS,
					    .offset_bytes = (EXTENT_BYTES - sizes[i]) / 16 * 16,
					    .bytes = sizes[i],
					    .host = f->host};
		fill(f->host, sizes[i], i);
		await(ops->tier->ups_done, f, ops->tier->up(f->backend, &copy));
		copy.host = f->host + 2 * EXTENT_BYTES;
		await(ops->tier->downs_done, f, ops->tier->down(f->backend, &copy));
		assert_true(holds(copy.host, sizes[i], i));
	}
}

static void tokens_count_copies_of_a_way(void **state)
{
	struct fixture *f = *state;
	struct backend_copy copy = {.bytes = 65536, .host = f->host};

	for (uint64_t i = 1; i <= 300; i++) {
		copy.host = f->host + i % 8 * 65536;
		copy.offset_bytes = i % 8 * 65536;
		assert_int_equal(ops->tier->down(f->backend, &copy), i);
	}
	assert_int_equal(ops->tier->up(f->backend, &copy), 1);
	await(ops->tier->downs_done, f, 300);
	await(ops->tier->ups_done, f, 1);
	assert_int_equal(ops->tier->downs_done(f->backend), 300);
}

/* A page whose bytes leave may be filled at once: they leave first. */
static void what_leaves_is_read_before_others_come(void **state)
{
	struct fixture *f = *state;
	uint64_t bytes = 65536, up = 0, down = 0;
	char *in = f->host, *out = f->host + 32 * MIB;

	for (uint64_t i = 0; i < 256; i++)
		fill(in + i * bytes, bytes, i);
	for (uint64_t i = 0; i < 256; i++) {
		struct backend_copy copy = {.extent = 1, .bytes = bytes, .host = in + i * bytes};

		up = ops->tier->up(f->backend, &copy);
		await(ops->tier->ups_done, f, up);
		copy.host = out + i * bytes;
		down = ops->tier->down(f->backend, &copy);
	}
	await(ops->tier->downs_done, f, down);
	for (uint64_t i = 0; i < 256; i++)
		assert_true(holds(out + i * bytes, bytes, i));
}

/* Behind other copies, so that none of it has left yet when it is renewed. */
static void what_leaves_is_read_before_its_extent_is_renewed(void **state)
{
	struct fixture *f = *state;
	struct backend_copy copy = {.extent = 3, .bytes = EXTENT_BYTES, .host = f->host};
	char *out = f->host + 8 * EXTENT_BYTES;
	uint64_t last;

	fill(f->host, EXTENT_BYTES, 5);
	await(ops->tier->ups_done, f, ops->tier->up(f->backend, &copy));
	for (uint32_t i = 4; i < N_EXTENTS; i++) {
		copy = (struct backend_copy){.extent = i,
					     .bytes = EXTENT_BYTES,
					     .host = f->host + i * EXTENT_BYTES};
		ops->tier->down(f->backend, &copy);
	}
	copy = (struct backend_copy){.extent = 3, .bytes = EXTENT_BYTES, .host = out};
	last = ops->tier->down(f->backend, &copy);
	assert_int_equal(ops->extent_renew(f->backend, 3), 0);
	await(ops->tier->downs_done, f, last);
	assert_true(holds(out, EXTENT_BYTES, 5));
	memset(out, 0xff, EXTENT_BYTES);
	ops->extent_release(f->backend, 0); /* waits for the device */
	assert_int_equal(ops->extent_commit(f->backend, 0), 0);
	await(ops->tier->downs_done, f, ops->tier->down(f->backend, &copy));
	for (uint64_t i = 0; i < EXTENT_BYTES; i++)
		assert_int_equal(out[i], 0);
}

/* More than the queue has room for, behind a copy that takes longer than to ask for them all. */
static void who_asks_for_more_than_there_is_room_for_waits(void **state)
{
	enum { N = 2500, BYTES = 4096 };
	struct fixture *f = *state;
	struct backend_copy copy = {.bytes = EXTENT_BYTES, .host = f->host + 32 * MIB};

	for (uint32_t i = 0; i < N; i++)
		fill(f->host + (uint64_t)i * BYTES, BYTES, i);
	for (uint32_t i = 0; i < 4; i++)
		ops->tier->down(f->backend, &copy);
	for (uint32_t i = 0; i < N; i++) {
		copy = (struct backend_copy){.extent = 1 + i / 1024,
					     .offset_bytes = i % 1024 * BYTES,
					     .bytes = BYTES,
					     .host = f->host + (uint64_t)i * BYTES};
		assert_int_equal(ops->tier->up(f->backend, &copy), i + 1);
	}
	await(ops->tier->ups_done, f, N);
	for (uint32_t i = 0; i < 3; i++) {
		copy = (struct backend_copy){.extent = 1 + i,
					     .bytes = EXTENT_BYTES,
					     .host = f->host + (32 + 4 * i) * MIB};
		await(ops->tier->downs_done, f, ops->tier->down(f->backend, &copy));
	}
	for (uint32_t i = 0; i < N; i++)
		assert_true(holds(f->host + 32 * MIB + (uint64_t)i * BYTES, BYTES, i));
}

static uint32_t seed(void)
{
	const char *text = getenv("COPPICE_SEED");
	uint32_t value = text ? (uint32_t)strtoul(text, NULL, 0) : (uint32_t)time(NULL);

	print_message("seed %u\n", value);
	return value;
}

/* What the random test knows of a place: whose bytes are there, and the copies that concern it. */
struct place {
	uint64_t number, up, down;
};

static void copies_at_random_are_right(void **state)
{
	enum { N_PAGES = 24, N_HOSTS = 48 };
	struct fixture *f = *state;
	struct place pages[N_PAGES] = {0}, hosts[N_HOSTS] = {0};
	uint32_t random = seed();
	uint64_t bytes = 65536, last = 0;

	fill(f->host, bytes, 0);
	for (uint32_t i = 0; i < N_PAGES; i++) {
		struct backend_copy copy = {.extent = 2,
					    .offset_bytes = i * bytes,
					    .bytes = bytes,
					    .host = f->host};
		pages[i].up = hosts[0].up = ops->tier->up(f->backend, &copy);
	}
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		random = random * 1664525 + 1013904223;
		uint32_t p = (random >> 8) % N_PAGES, h = (random >> 16) % N_HOSTS;
		struct backend_copy copy = {.extent = 2,
					    .offset_bytes = p * bytes,
					    .bytes = bytes,
					    .host = f->host + h * bytes};

		await(ops->tier->ups_done, f, hosts[h].up);
		await(ops->tier->downs_done, f, hosts[h].down);
		if (hosts[h].down && !holds(copy.host, bytes, hosts[h].number))
			fail_msg("operation %u: host %u is not %lu", i, h, hosts[h].number);
		if (random >> 31) {
			await(ops->tier->ups_done, f, pages[p].up);
			hosts[h].number = pages[p].number;
			hosts[h].down = ops->tier->down(f->backend, &copy);
		} else {
			fill(copy.host, bytes, ++last);
			pages[p].number = hosts[h].number = last;
			pages[p].up = hosts[h].up = ops->tier->up(f->backend, &copy);
		}
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(what_went_up_comes_down),
		CASE(tokens_count_copies_of_a_way),
		CASE(what_leaves_is_read_before_others_come),
		CASE(what_leaves_is_read_before_its_extent_is_renewed),
		CASE(who_asks_for_more_than_there_is_room_for_waits),
		CASE(copies_at_random_are_right),
	};
	int r = argc > 1 ? device_ops(argv[1], &ops) : 0;

	return r ? r : cmocka_run_group_tests_name("mover", tests, NULL, NULL);
}
