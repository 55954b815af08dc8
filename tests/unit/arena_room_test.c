/*
 * arena_room_test.c - how much of arenas users leave to those who come after them, of host memory
 * and of the device's, and when it is looked who has freed memory open; how much of prompts that
 * are on their way to the scheduler.
 */
#include "daemon/control/arena_room.h"
#include "daemon/control/seqs.h"

#include "kvstore/base/reserve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define ALICE 1001u
#define N_SESSIONS 4u

struct fixture {
	struct config config;
	struct sessions home;
	struct session sessions[N_SESSIONS]; /* each of a user of its own: Alice and those after */
};

/* 1,000 MiB in all, 500 of a user, of either kind. */
static int set_up(void **state)
{
	static struct fixture f;

	f = (struct fixture){.config = {.arena_bytes = 1000 * MIB,
					.domain_arena_bytes = 500 * MIB,
					.max_arena_bytes = 900 * MIB,
					.device_arena_bytes = 1000 * MIB,
					.domain_device_arena_bytes = 500 * MIB,
					.max_device_arena_bytes = 900 * MIB}};
	f.home.config = &f.config;
	TAILQ_INIT(&f.home.list);
	lent_init(&f.home.lent);
	for (uint32_t i = 0; i < N_SESSIONS; i++) {
		struct session *s = &f.sessions[i];

		*s = (struct session){.home = &f.home, .state = SESSION_OPEN, .fd = -1};
		s->peer.uid = ALICE + i;
		s->doorbell_fd = -1;
		TAILQ_INSERT_TAIL(&f.home.list, s, entry);
	}
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	lent_done(&((struct fixture *)*state)->home.lent);
	return 0;
}

static void assert_room(const struct session *s, uint32_t kind, uint64_t bytes, const char *words)
{
	struct arena_room room = arena_room(s, kind, UINT64_MAX);
	char sentence[256];

	snprintf(sentence, sizeof(sentence), "%s (%s)", room.whose, room.key);
	assert_int_equal(room.bytes, bytes);
	if (!strstr(sentence, words))
		fail_msg("'%s' does not say '%s'", sentence, words);
}

static void whoever_comes_finds_half_of_what_the_one_before_found(struct fixture *f, uint32_t kind)
{
	uint64_t *has[N_SESSIONS];

	for (uint32_t i = 0; i < N_SESSIONS; i++)
		has[i] = kind == ARENA_DEVICE ? &f->sessions[i].device_bytes
					      : &f->sessions[i].arena_bytes;
	assert_room(&f->sessions[0], kind, 500 * MIB, "(domain_");
	*has[0] = 500 * MIB;
	assert_room(&f->sessions[1], kind, 400 * MIB, "no more than he leaves to others");
	*has[1] = 400 * MIB;
	assert_room(&f->sessions[1], kind, 0, "no more than he leaves to others");
	assert_room(&f->sessions[2], kind, 50 * MIB, "no more than he leaves to others");
	*has[2] = 50 * MIB;
	assert_room(&f->sessions[2], kind, 0, "no more than he leaves to others");
	assert_room(&f->sessions[3], kind, 25 * MIB, "no more than he leaves to others");
	f->sessions[3].privileged = true;
	assert_room(&f->sessions[3], kind, 50 * MIB,
		    kind == ARENA_DEVICE ? "(device_arena_bytes)" : "(arena_bytes)");
}

static void of_host_memory_whoever_comes_finds_some(void **state)
{
	whoever_comes_finds_half_of_what_the_one_before_found(*state, ARENA_HOST);
}

static void of_the_devices_memory_whoever_comes_finds_some(void **state)
{
	whoever_comes_finds_half_of_what_the_one_before_found(*state, ARENA_DEVICE);
}

static void a_user_who_may_have_all_gets_all(void **state)
{
	struct fixture *f = *state;

	f->config.domain_arena_bytes = 1000 * MIB;
	f->sessions[0].arena_bytes = 400 * MIB;
	f->sessions[1].arena_bytes = 590 * MIB;
	assert_room(&f->sessions[1], ARENA_HOST, 10 * MIB, "all sessions' arenas (arena_bytes)");
}

static void a_session_has_its_own_limit(void **state)
{
	struct fixture *f = *state;

	f->config.max_arena_bytes = 300 * MIB;
	f->sessions[0].arena_bytes = 299 * MIB;
	assert_room(&f->sessions[0], ARENA_HOST, 1 * MIB, "(max_arena_bytes)");
}

/* What was freed and is closed since then counts until it is looked. */
static void it_is_looked_only_for_what_could_be_had(void **state)
{
	struct fixture *f = *state;
	struct session *s = &f->sessions[0];
	int fd = eventfd(0, EFD_CLOEXEC);
	struct loan *loan;

	assert_int_equal(lent_new(&f->home.lent, fd, ALICE, 300 * MIB, &loan), 0);
	lent_end(&f->home.lent, loan);
	close(fd);
	assert_int_equal(arena_room(s, ARENA_DEVICE, 501 * MIB).bytes, 200 * MIB);
	assert_int_equal(arena_room(s, ARENA_DEVICE, UINT64_MAX).bytes, 200 * MIB);
	assert_int_equal(arena_room(s, ARENA_DEVICE, 200 * MIB).bytes, 200 * MIB);
	assert_int_equal(arena_room(s, ARENA_DEVICE, 201 * MIB).bytes, 500 * MIB);
}

/* 19 MiB hold 18, and once it was looked 21 hold 20. */
static void it_is_looked_for_whole_grains(void **state)
{
	struct fixture *f = *state;
	struct session *s = &f->sessions[0];
	int fd = eventfd(0, EFD_CLOEXEC);
	struct loan *loan;

	f->config.max_device_arena_bytes = f->config.domain_device_arena_bytes = 21 * MIB;
	assert_int_equal(lent_new(&f->home.lent, fd, ALICE, 2 * MIB, &loan), 0);
	lent_end(&f->home.lent, loan);
	close(fd);
	assert_int_equal(arena_room(s, ARENA_DEVICE, 21 * MIB).bytes, 19 * MIB);
	assert_int_equal(arena_room(s, ARENA_DEVICE, 18 * MIB).bytes, 19 * MIB);
	assert_int_equal(arena_room(s, ARENA_DEVICE, 19 * MIB).bytes, 21 * MIB);
}

static void room_is_what_the_rule_says(void **state)
{
	(void)state;
	for (uint64_t reserved = 0; reserved < 6; reserved++)
		for (uint64_t own = 0; own < 12; own++)
			for (uint64_t left = 0; left < 12; left++) {
				uint64_t room = reserve_room(reserved, own, left);

				for (uint64_t n = 1; n <= left; n++)
					assert_int_equal(n <= room, left - n >= reserved ||
									    own + n <= left - n);
				assert_true(room <= left);
			}
}

static void assert_prompt_room(const struct session *s, uint64_t all_bytes)
{
	assert_int_equal(prompt_room(s).all_bytes, all_bytes);
}

static void of_prompts_on_their_way_whoever_comes_finds_some(void **state)
{
	struct fixture *f = *state;
	struct session *s = f->sessions;

	f->config.prompt_bytes = 1000 * MIB;
	f->config.domain_prompt_bytes = 500 * MIB;
	s[0].prompt_bytes = 500 * MIB;
	assert_int_equal(prompt_room(&s[0]).domain_bytes, 0);
	assert_int_equal(prompt_room(&s[1]).domain_bytes, 500 * MIB);
	assert_prompt_room(&s[1], 400 * MIB);
	s[1].prompt_bytes = 400 * MIB;
	assert_prompt_room(&s[1], 0);
	assert_prompt_room(&s[2], 50 * MIB);
	s[2].privileged = true;
	assert_prompt_room(&s[2], 100 * MIB);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(of_host_memory_whoever_comes_finds_some),
		TEST(of_the_devices_memory_whoever_comes_finds_some),
		TEST(a_user_who_may_have_all_gets_all),
		TEST(a_session_has_its_own_limit),
		TEST(it_is_looked_only_for_what_could_be_had),
		TEST(it_is_looked_for_whole_grains),
		TEST(room_is_what_the_rule_says),
		TEST(of_prompts_on_their_way_whoever_comes_finds_some),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
