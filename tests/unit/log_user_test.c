/* log_user_test.c - how much a user may make the daemon say. */
#include "daemon/base/log.h"
#include "daemon/base/log_user.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ALICE 1001u
#define FLOOD 100000u
/* Beside those at once: seconds' worth on a crowded machine. */
#define MORE 2000u

/* Says so many lines of each of so many users; returns how many of them have these words. */
static uint32_t said(uid_t first, uint32_t n_users, uint32_t n, const char *words)
{
	FILE *file = tmpfile();
	int stderr_fd = dup(STDERR_FILENO);
	uint32_t n_found = 0;
	char line[256];

	assert_non_null(file);
	assert_true(stderr_fd >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
	for (uint32_t i = 0; i < n; i++)
		for (uid_t uid = first; uid < first + n_users; uid++)
			log_user(uid, "of %u", uid);
	assert_true(dup2(stderr_fd, STDERR_FILENO) >= 0);
	close(stderr_fd);
	rewind(file);
	while (fgets(line, sizeof(line), file))
		n_found += strstr(line, words) != NULL;
	fclose(file);
	return n_found;
}

static void a_flood_is_left_out(void **state)
{
	(void)state;
	assert_in_range(said(ALICE, 1, FLOOD, "of 1001"), LOG_USER_LINES, LOG_USER_LINES + MORE);
}

static void others_are_not(void **state)
{
	(void)state;
	assert_in_range(said(ALICE, 1, FLOOD, "of 1001"), 0, LOG_USER_LINES + MORE);
	assert_int_equal(said(ALICE + 1, 1, LOG_USER_LINES, "of 1002"), LOG_USER_LINES);
}

static void how_many_were_is_said(void **state)
{
	uint32_t n = 0;

	(void)state;
	(void)said(ALICE, 1, FLOOD, "");
	for (int i = 0; i < 100 && n == 0; i++) {
		usleep(20000);
		n = said(ALICE, 1, 1, "lines about uid 1001 were left out");
	}
	assert_int_equal(n, 1);
}

static void nor_is_who_is_privileged(void **state)
{
	(void)state;
	assert_int_equal(said(0, 1, 1000, "of 0"), 1000);
}

/* Who is forgotten for another is not one who says much. */
static void many_users_do_not_hide_a_flood(void **state)
{
	uint32_t n = said(ALICE, 1, FLOOD, "of 1001");

	(void)state;
	(void)said(ALICE + 1, 1000, 10, "");
	n = said(ALICE, 1, FLOOD, "of 1001");
	assert_in_range(n, 0, MORE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flood_is_left_out),
		cmocka_unit_test(others_are_not),
		cmocka_unit_test(how_many_were_is_said),
		cmocka_unit_test(nor_is_who_is_privileged),
		cmocka_unit_test(many_users_do_not_hide_a_flood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
