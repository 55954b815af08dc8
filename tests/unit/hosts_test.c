/* hosts_test.c - ranges of host memory, that come and go in pieces, against a map of all of it. */
#include "kernels/cuda/device/hosts.h"
#include "oracle.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PLACES 64u
#define PIECE UINT64_C(4096)
#define OPS ROUNDS(100000, 10000)

static uint64_t address_of(uint32_t place)
{
	return (UINT64_C(1) << 40) + place * PIECE;
}

static void assert_as(struct hosts *hosts, const bool *there, struct oracle_random *random)
{
	uint32_t place = oracle_below(random, PLACES), n = 0;

	assert_true(hosts_have(hosts, address_of(place)) == there[place]);
	assert_true(hosts_have(hosts, address_of(place) + PIECE - 1) == there[place]);
	for (uint32_t i = 0; i < PLACES; i++)
		n += there[i] && !(i && there[i - 1]);
	assert_true(hosts->n >= n && hosts->n <= PLACES);
}

static void any_pieces_come_and_go(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	bool there[PLACES] = {false};
	struct hosts hosts = {0};

	(void)state;
	for (uint32_t i = 0; i < OPS; i++) {
		uint32_t place = oracle_below(&random, PLACES);

		if (there[place])
			hosts_drop(&hosts, address_of(place), PIECE);
		else
			assert_int_equal(hosts_add(&hosts, address_of(place), PIECE), 0);
		there[place] = !there[place];
		assert_as(&hosts, there, &random);
	}
	hosts_done(&hosts);
}

/* In order, as arenas are attached. */
static void pieces_that_come_in_order_are_one_range(void **state)
{
	struct hosts hosts = {0};

	(void)state;
	for (uint32_t i = 0; i < PLACES; i++)
		assert_int_equal(hosts_add(&hosts, address_of(i), PIECE), 0);
	assert_int_equal(hosts.n, 1);
	for (uint32_t i = PLACES; i-- > 0;) {
		assert_int_equal(hosts.n, 1);
		hosts_drop(&hosts, address_of(i), PIECE);
		assert_false(hosts_have(&hosts, address_of(i)));
	}
	assert_int_equal(hosts.n, 0);
	hosts_done(&hosts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_pieces_come_and_go),
		cmocka_unit_test(pieces_that_come_in_order_are_one_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
