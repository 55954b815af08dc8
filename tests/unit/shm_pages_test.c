/* shm_pages_test.c - pages of shared memory come and go beside the loop, users in turn. */
#include "daemon/session/shm.h"

#include "loop_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define CHORES 4

struct fixture {
	struct context *context;
	struct shm_pages pages;
	struct shm_chore chores[CHORES];
	struct shm_chore *order[CHORES]; /* in which they were done */
	unsigned n_done, stop_after;
};

static void on_done(struct shm_chore *chore)
{
	struct fixture *f = chore->user;

	f->order[f->n_done++] = chore;
	if (f->n_done == f->stop_after)
		loop_stop(f->context->loop);
}

static char *map_new(size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	return map;
}

static void post(struct fixture *f, unsigned i, enum shm_chore_kind kind, char *map, size_t bytes)
{
	f->chores[i].kind = kind;
	f->chores[i].map = map;
	f->chores[i].bytes = bytes;
	f->chores[i].done = on_done;
	f->chores[i].user = f;
	shm_pages_post(&f->pages, &f->chores[i]);
}

static struct fixture *begin(void **state, unsigned stop_after)
{
	static struct fixture f;

	f = (struct fixture){.context = *state, .stop_after = stop_after};
	assert_int_equal(shm_pages_init(&f.pages, f.context->loop), 0);
	return &f;
}

static void pages_come(void **state)
{
	struct fixture *f = begin(state, 1);
	size_t bytes = 3 * MIB + PAGE;
	unsigned char in_core[1024];
	char *map = map_new(bytes);

	post(f, 0, SHM_FILL, map, bytes);
	loop_run_out(f->context);
	assert_int_equal(f->chores[0].code, 0);
	assert_int_equal(mincore(map, bytes, in_core), 0);
	for (size_t i = 0; i < bytes / PAGE; i++)
		assert_true(in_core[i] & 1);
	munmap(map, bytes);
	shm_pages_done(&f->pages);
}

static void a_mapping_goes(void **state)
{
	struct fixture *f = begin(state, 1);
	size_t bytes = 3 * MIB + PAGE;
	unsigned char in_core;
	char *map = map_new(bytes);

	post(f, 0, SHM_DROP, map, bytes);
	loop_run_out(f->context);
	for (size_t at = 0; at < bytes; at += MIB)
		assert_int_equal(mincore(map + at, PAGE, &in_core), -1);
	assert_int_equal(errno, ENOMEM);
	shm_pages_done(&f->pages);
}

/* However much is before it. */
static void another_users_turn_comes_first(void **state)
{
	struct fixture *f = begin(state, 3);
	char *large[] = {map_new(64 * MIB), map_new(64 * MIB)}, *small = map_new(MIB);

	for (unsigned i = 0; i < 2; i++) {
		f->chores[i].uid = 1;
		post(f, i, SHM_FILL, large[i], 64 * MIB);
	}
	f->chores[2].uid = 2;
	post(f, 2, SHM_FILL, small, MIB);
	loop_run_out(f->context);
	assert_ptr_equal(f->order[0], &f->chores[2]);
	assert_ptr_equal(f->order[1], &f->chores[0]);
	munmap(large[0], 64 * MIB);
	munmap(large[1], 64 * MIB);
	munmap(small, MIB);
	shm_pages_done(&f->pages);
}

static void what_is_of_no_use_any_more_ends_early(void **state)
{
	struct fixture *f = begin(state, 1);
	char *map = map_new(256 * MIB);
	unsigned char in_core;

	post(f, 0, SHM_FILL, map, 256 * MIB);
	atomic_store(&f->chores[0].stopped, true);
	loop_run_out(f->context);
	assert_int_equal(f->chores[0].code, -ECANCELED);
	assert_int_equal(mincore(map + 256 * MIB - PAGE, PAGE, &in_core), 0);
	assert_false(in_core & 1);
	munmap(map, 256 * MIB);
	shm_pages_done(&f->pages);
}

static void at_the_end_of_the_process_nothing_is_waited_for(void **state)
{
	struct fixture *f = begin(state, 2);
	char *map = map_new(256 * MIB), *other = map_new(MIB);
	unsigned char in_core;

	post(f, 0, SHM_DROP, map, 256 * MIB);
	shm_pages_hurry(&f->pages);
	post(f, 1, SHM_DROP, other, MIB);
	loop_run_out(f->context);
	assert_int_equal(mincore(other, PAGE, &in_core), 0);
	munmap(map, 256 * MIB);
	munmap(other, MIB);
	shm_pages_done(&f->pages);
}

/* While it is not known that all are. */
static void what_is_there_can_be_asked(void **state)
{
	struct shm shm;

	(void)state;
	assert_int_equal(shm_new(&shm, "pages", 600 * PAGE), 0);
	shm.coming = true;
	assert_false(shm_is_there(&shm, 0, 1));
	for (size_t i = 300; i < 600; i++)
		((volatile char *)shm.map)[i * PAGE] = 1;
	assert_true(shm_is_there(&shm, 300 * PAGE, 300 * PAGE));
	assert_true(shm_is_there(&shm, 300 * PAGE + 8, 4));
	assert_false(shm_is_there(&shm, 300 * PAGE - 4, 8));
	assert_false(shm_is_there(&shm, 0, 600 * PAGE));
	shm.coming = false;
	assert_true(shm_is_there(&shm, 0, 600 * PAGE));
	shm_done(&shm);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup_epoll, loop_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_come),
		TEST(a_mapping_goes),
		TEST(another_users_turn_comes_first),
		TEST(what_is_of_no_use_any_more_ends_early),
		TEST(what_is_there_can_be_asked),
		TEST(at_the_end_of_the_process_nothing_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
