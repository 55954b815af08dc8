/* weights_test.c - weights are held once for a user, whoever's files they come from. */
#include "weights_fixture.h"

#include "daemon/weights/lend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is loaded ------------------------------------------------------------------------- */

static void tensors_are_what_the_file_has(void **state)
{
	struct weights_table *table = fixture_table();
	struct weights *weights =
		fixture_load(table, ALICE, fixture_file("good", FIXTURE_HEADER, fixture_data, 28));
	const struct weights_content *c = &weights->content;

	(void)state;
	fixture_expect_ready(weights);
	assert_int_equal(c->n_tensors, 2);
	assert_string_equal(c->tensors[0].name, "a");
	assert_string_equal(c->tensors[1].name, "b");
	assert_int_equal(c->tensors[0].n_out, 0);
	assert_int_equal(c->tensors[0].n_in, 2);
	assert_int_equal(c->tensors[1].n_out, 2);
	assert_int_equal(c->tensors[1].dtype, WORK_BF16);
	assert_memory_equal(c->memory->data + c->tensors[0].offset, fixture_data + 20, 8);
	assert_memory_equal(c->memory->data + c->tensors[1].offset, fixture_data, 12);
	weights_unref(weights);
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

/* Longer than all slots together, at odd places. */
static void a_file_of_many_pieces_comes_whole(void **state)
{
	const size_t bytes = LOADER_SLOTS_BYTES + 3 * LOADER_SLOT_BYTES / 2 + 4;
	uint8_t *data = malloc(bytes);
	char header[256];
	struct weights_table *table = fixture_table();
	struct weights *weights;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	snprintf(header, sizeof(header),
		 "{\"x\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
		 "\"y\":{\"dtype\":\"F16\",\"shape\":[%zu],\"data_offsets\":[4,%zu]}}",
		 (bytes - 4) / 2, bytes);
	weights = fixture_load(table, ALICE, fixture_file("long", header, data, bytes));
	fixture_expect_ready(weights);
	assert_memory_equal(weights->content.memory->data + weights->content.tensors[1].offset,
			    data + 4, bytes - 4);
	assert_int_equal(atomic_load(&weights->bytes_done), atomic_load(&weights->bytes_all));
	weights_unref(weights);
	weights_table_free(table);
	free(data);
}

static void two_files_are_one_set(void **state)
{
	static const char other[] =
		"{\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
	struct weights_table *table = fixture_table();
	int fds[] = {fixture_open(fixture_file("good", FIXTURE_HEADER, fixture_data, 28)),
		     fixture_open(fixture_file("other", other, fixture_data, 4))};
	struct weights *weights = fixture_begin(table, ALICE, fds, 2), *twice;

	(void)state;
	fixture_end(weights);
	fixture_expect_ready(weights);
	assert_int_equal(weights->content.n_tensors, 3);
	fds[1] = fds[0];
	twice = fixture_begin(table, ALICE, fds, 2);
	fixture_expect_failure(twice, -EINVAL, "Two files have a tensor a");
	weights_unref(weights);
	weights_table_free(table);
	close(fds[0]);
}

/* ---- held once ------------------------------------------------------------------------------ */

static void the_same_files_are_held_once_for_a_user(void **state)
{
	struct weights_table *table = fixture_table();
	const char *path = fixture_file("good", FIXTURE_HEADER, fixture_data, 28);
	struct weights *first = fixture_load(table, ALICE, path), *second, *others;
	uint64_t bytes = weights_bytes(table);

	(void)state;
	sleep(3); /* its change time is to be some seconds old */
	weights_unref(first);
	first = fixture_load(table, ALICE, path);
	fixture_expect_ready(first);
	second = fixture_load(table, ALICE, path);
	fixture_expect_ready(second);
	assert_ptr_equal(weights_real(second), weights_real(first));
	fixture_settle(table, bytes);
	assert_int_equal(fixture_n_memories, 1);
	assert_int_equal(atomic_load(&second->bytes_done), 0);
	others = fixture_load(table, BOB, path);
	fixture_expect_ready(others);
	assert_ptr_not_equal(weights_real(others), weights_real(first));
	fixture_settle(table, 2 * bytes);
	weights_unref(first);
	weights_unref(second);
	weights_unref(others);
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

static void the_same_tensors_of_another_file_are_the_same_weights(void **state)
{
	struct weights_table *table = fixture_table();
	struct weights *a =
		fixture_load(table, ALICE, fixture_file("good", FIXTURE_HEADER, fixture_data, 28));
	struct weights *b =
		fixture_load(table, ALICE, fixture_file("copy", FIXTURE_HEADER, fixture_data, 28));
	uint8_t data[28];
	struct weights *c;

	(void)state;
	memcpy(data, fixture_data, sizeof(data));
	data[0]++;
	c = fixture_load(table, ALICE, fixture_file("altered", FIXTURE_HEADER, data, 28));
	assert_ptr_equal(weights_real(b), weights_real(a));
	assert_ptr_not_equal(weights_real(c), weights_real(a));
	assert_memory_equal(&weights_real(c)->content.digests[0],
			    &weights_real(a)->content.digests[0], WEIGHTS_DIGEST_BYTES);
	assert_memory_not_equal(&weights_real(c)->content.digests[1],
				&weights_real(a)->content.digests[1], WEIGHTS_DIGEST_BYTES);
	weights_unref(a);
	weights_unref(b);
	weights_unref(c);
	weights_table_free(table);
}

/* File systems' times are coarse: a file may change twice and have one time. */
static void a_file_that_has_just_changed_is_read_again(void **state)
{
	struct weights_table *table = fixture_table();
	uint8_t data[28] = {0};
	struct weights *a, *b;

	(void)state;
	a = fixture_load(table, ALICE, fixture_file("good", FIXTURE_HEADER, fixture_data, 28));
	b = fixture_load(table, ALICE, fixture_file("good", FIXTURE_HEADER, data, 28));
	fixture_expect_ready(b);
	assert_ptr_not_equal(weights_real(a), weights_real(b));
	assert_memory_equal(weights_real(b)->content.memory->data, data, 8);
	weights_unref(a);
	weights_unref(b);
	weights_table_free(table);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void what_is_no_safetensors_file_is_said(void **state)
{
	static const struct {
		const char *header;
		size_t bytes;
		const char *words;
	} bad[] = {
		{"[]", 0, "not a JSON object"},
		{FIXTURE_HEADER, 27, "out of range"},
		{FIXTURE_HEADER, 29, "belong to no tensor"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
		 "shape and type need 12 bytes"},
		{"{\"a\":{\"dtype\":\"Q9\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
		 "unknown dtype Q9"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		 "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
		 12, "overlap"},
		{"{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
		 "No file has a tensor of F32, F16 or BF16"},
	};
	static const uint8_t data[32];
	struct weights_table *table = fixture_table();
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fd = fixture_open(fixture_file("bad", bad[i].header, data, bad[i].bytes));
		fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -EINVAL, bad[i].words);
		close(fd);
	}
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

static void what_is_no_file_is_said(void **state)
{
	static const uint8_t lie[16] = {0xff, 0xff, 0xff, 0xff, 0xff};
	struct weights_table *table = fixture_table();
	int pipes[2], fds[3];

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	fixture_expect_failure(fixture_begin(table, ALICE, &pipes[0], 1), -EINVAL,
			       "not a regular file");
	fds[0] = fixture_open(fixture_path("."));
	fixture_expect_failure(fixture_begin(table, ALICE, fds, 1), -EINVAL, "not a regular file");
	fds[1] = fixture_open("/proc/self/status");
	fixture_expect_failure(fixture_begin(table, ALICE, fds + 1, 1), -EINVAL, "too short");
	fds[2] = fixture_open(fixture_file("lie", "", lie, 0));
	fixture_expect_failure(fixture_begin(table, ALICE, fds + 2, 1), -EINVAL,
			       "not a safetensors file");
	fixture_expect_failure(fixture_begin(table, ALICE, NULL, 0), -EINVAL,
			       "No descriptors came");
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(pipes[0]);
	close(pipes[1]);
	weights_table_free(table);
}

static void too_many_files_are_refused(void **state)
{
	struct weights_table *table = fixture_table();
	int fds[LOADER_FILES_MAX + 1];

	(void)state;
	fds[0] = fixture_open(fixture_file("good", FIXTURE_HEADER, fixture_data, 28));
	for (uint32_t i = 1; i <= LOADER_FILES_MAX; i++)
		fds[i] = fds[0];
	fixture_expect_failure(fixture_begin(table, ALICE, fds, LOADER_FILES_MAX + 1), -EINVAL,
			       "more than 128");
	close(fds[0]);
	weights_table_free(table);
}

/* ---- limits --------------------------------------------------------------------------------- */

/* 256 KiB in all, 192 of a user. */
static void what_nobody_has_makes_room_and_what_is_in_use_does_not(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 256 * 1024, 30000);
	struct weights *a = fixture_load(table, ALICE, fixture_file_of("a", 100)), *b, *c;
	int fd = fixture_open(fixture_file_of("b", 100));

	(void)state;
	fixture_expect_ready(a);
	fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -EDQUOT, "domain_weights");
	c = fixture_load(table, BOB, fixture_file_of("c", 100));
	fixture_expect_ready(c);
	fixture_expect_failure(fixture_begin(table, BOB + 1, &fd, 1), -ENOSPC, "(weights)");
	fixture_leave(a);
	assert_int_equal(weights_bytes(table), 200 * 1024);
	b = fixture_load(table, BOB + 1, fixture_path("b"));
	fixture_expect_ready(b);
	assert_int_equal(weights_bytes(table), 200 * 1024);
	assert_int_equal(fixture_n_memories, 2);
	weights_unref(b);
	weights_unref(c);
	close(fd);
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

/* Those that nobody has stay where there is just room for all. */
static void room_is_made_to_the_byte(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 256 * 1024, 30000);
	struct weights *c;

	(void)state;
	fixture_leave(fixture_load(table, ALICE, fixture_file_of("a", 128)));
	c = fixture_load(table, BOB, fixture_file_of("c", 128));
	fixture_expect_ready(c);
	fixture_settle(table, 256 * 1024);
	fixture_leave(c);
	fixture_leave(fixture_load(table, ALICE, fixture_file_of("d", 1)));
	fixture_settle(table, 129 * 1024);
	weights_table_free(table);
}

/* 256 KiB in all, 192 of a user, by 64: whoever has little has as much as is taken for it. */
static void room_is_booked_as_the_backend_takes_it(void **state)
{
	struct ledger ledger = {.max_bytes = 256 * 1024};
	struct weights_table *table;
	struct weights *a, *b;
	struct weights_row row;
	int fd = fixture_open(fixture_file_of("c", 1));

	(void)state;
	fixture_grain = 64 * 1024;
	fixture_ledger = &ledger;
	table = fixture_table_of(fixture_coppiced, 256 * 1024, 30000);
	a = fixture_load(table, ALICE, fixture_file_of("a", 1));
	assert_int_equal(weights_bytes(table), 64 * 1024);
	b = fixture_load(table, ALICE, fixture_file_of("b", 65));
	assert_int_equal(weights_bytes(table), 192 * 1024);
	assert_int_equal(ledger.of[LEDGER_WEIGHTS], 192 * 1024);
	assert_int_equal(weights_rows(table, 1, &row, 1), 1);
	assert_int_equal(row.bytes, 128 * 1024);
	assert_int_equal(b->content.memory->bytes, row.bytes);
	fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -EDQUOT,
			       "These weights take 64K");
	weights_unref(a);
	weights_unref(b);
	close(fd);
	weights_table_free(table);
	assert_int_equal(ledger.all_bytes, 0);
	fixture_ledger = NULL;
	fixture_grain = 1;
}

/* More are looked at whenever somebody asks for one. */
static void of_what_nobody_has_some_stay(void **state)
{
	struct weights_table *table = fixture_table();
	struct weights_row rows[64];
	uint8_t data[28] = {0};
	char name[16];

	(void)state;
	for (uint8_t i = 0; i < 40; i++) {
		data[0] = i;
		snprintf(name, sizeof(name), "idle%u", i);
		fixture_leave(
			fixture_load(table, ALICE, fixture_file(name, FIXTURE_HEADER, data, 28)));
	}
	assert_int_equal(weights_rows(table, 0, rows, 64), 33);
	assert_int_equal(rows[32].number, 40);
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

/* A header of some tensors that have no bytes, and spaces: so long in all. */
static char *header_of_nothing(size_t bytes)
{
	char *header = malloc(bytes + 1), *at = header;

	assert_non_null(header);
	memset(header, ' ', bytes);
	for (uint32_t i = 0; i < 1000; i++)
		at += sprintf(at,
			      "%c\"%u\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
			      i ? ',' : '{', i);
	*at = ' ';
	strcpy(header + bytes - 1, "}");
	return header;
}

static void more_headers_than_are_taken_are_said(void **state)
{
	struct weights_table *table = fixture_table();
	char *header = header_of_nothing((4 << 20) - 16);
	int fds[5];

	(void)state;
	fds[0] = fixture_open(fixture_file("nothing", header, "", 0));
	for (int i = 1; i < 5; i++)
		fds[i] = fds[0];
	fixture_expect_failure(fixture_begin(table, ALICE, fds, 5), -EINVAL, "16 MiB in all");
	close(fds[0]);
	free(header);
	weights_table_free(table);
}

/* Nobody sends descriptors, so that all wait. */
static void a_user_loads_no_more_than_some_at_a_time(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, MIB, 300);
	struct weights *of_alice[2], *of_bob, *more;
	int sockets[3], socket;

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(weights_open(table, ALICE, &of_alice[i], &sockets[i]), 0);
	assert_int_equal(weights_open(table, ALICE, &more, &socket), -EAGAIN);
	assert_int_equal(weights_open(table, BOB, &of_bob, &sockets[2]), 0);
	fixture_expect_failure(of_alice[0], -ETIMEDOUT, "for 300 ms");
	fixture_expect_failure(of_alice[1], -ETIMEDOUT, "for 300 ms");
	weights_unref(of_bob);
	for (int i = 0; i < 3; i++)
		close(sockets[i]);
	weights_table_free(table);
}

/* Three of the others have two loads, two of them one. */
static uid_t other_of(uint32_t number)
{
	return ALICE + (number < 6 ? number / 2 : number - 3);
}

/* Root has two, and five others all that there are; root_at: root is at it once so many of them are
 * there. */
static void expect_root_beside_others(uint32_t root_at)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, MIB, 30000);
	struct weights *all[10], *more;
	int sockets[10], socket;

	for (uint32_t i = 0; i < 10; i++) {
		bool is_root = i >= root_at && i < root_at + 2;
		uint32_t other = i < root_at ? i : i - 2;

		assert_int_equal(weights_open(table, is_root ? 0 : other_of(other), &all[i],
					      &sockets[i]),
				 0);
	}
	assert_int_equal(weights_open(table, ALICE + 5, &more, &socket), -EAGAIN);
	assert_int_equal(weights_open(table, 0, &more, &socket), -EAGAIN);
	for (uint32_t i = 0; i < 10; i++) {
		weights_unref(all[i]);
		close(sockets[i]);
	}
	weights_table_free(table);
}

/* Nobody sends descriptors. */
static void the_last_place_is_for_who_loads_nothing(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, MIB, 30000);
	struct weights *all[8], *more;
	int sockets[8], socket;

	(void)state;
	for (uint32_t i = 0; i < 7; i++)
		assert_int_equal(weights_open(table, other_of(i), &all[i], &sockets[i]), 0);
	assert_int_equal(weights_open(table, other_of(6), &more, &socket), -EAGAIN);
	assert_int_equal(weights_open(table, other_of(7), &all[7], &sockets[7]), 0);
	for (uint32_t i = 0; i < 8; i++) {
		weights_unref(all[i]);
		close(sockets[i]);
	}
	weights_table_free(table);
}

static void root_loads_whoever_else_does(void **state)
{
	(void)state;
	expect_root_beside_others(8);
}

static void others_load_though_root_does(void **state)
{
	(void)state;
	expect_root_beside_others(0);
}

static void what_nobody_waits_for_any_more_ends(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, MIB, 30000);
	struct weights *weights;
	struct weights_row row;
	int socket;

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(weights_open(table, ALICE, &weights, &socket), 0);
		weights_unref(weights);
		close(socket);
		while (weights_rows(table, 0, &row, 1) > 0)
			fixture_moment();
	}
	weights_table_free(table);
}

/* ---- lent ----------------------------------------------------------------------------------- */

static int lend_soon(struct weights *weights, struct backend_lent *ret)
{
	int r;

	while ((r = weights_lend(weights, ret)) == -EAGAIN)
		fixture_moment();
	return r;
}

struct loan {
	struct weights_table *table;
	struct weights *weights;
};

static struct loan loan_begin(void)
{
	struct weights_table *table = fixture_table();
	const char *path = fixture_file("lent", FIXTURE_HEADER, fixture_data, 28);
	struct weights *weights = fixture_load(table, ALICE, path);

	fixture_expect_ready(weights);
	return (struct loan){table, weights};
}

static void loan_end(const struct loan *loan)
{
	weights_unref(loan->weights);
	weights_table_free(loan->table);
	assert_int_equal(fixture_n_memories, 0);
}

static void weights_are_lent_once_a_thread_has_made_them_so(void **state)
{
	struct loan loan = loan_begin();
	struct backend_lent lent, again;

	(void)state;
	assert_int_equal(weights_lend(loan.weights, &lent), -EAGAIN);
	assert_int_equal(lend_soon(loan.weights, &lent), 0);
	assert_int_equal(weights_lend(loan.weights, &again), 0);
	assert_int_equal(lent.bytes, again.bytes);
	loan_end(&loan);
}

static void how_lending_failed_is_told_once(void **state)
{
	struct loan loan = loan_begin();
	struct backend_lent lent;

	(void)state;
	fixture_lend = -ENOMEM;
	assert_int_equal(lend_soon(loan.weights, &lent), -ENOMEM);
	fixture_lend = 0;
	assert_int_equal(lend_soon(loan.weights, &lent), 0);
	loan_end(&loan);
}

static void who_goes_while_weights_are_made_ready_is_not_missed(void **state)
{
	struct loan loan = loan_begin();
	struct backend_lent lent;

	(void)state;
	assert_int_equal(weights_lend(loan.weights, &lent), -EAGAIN);
	loan_end(&loan);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_are_what_the_file_has),
		cmocka_unit_test(a_file_of_many_pieces_comes_whole),
		cmocka_unit_test(two_files_are_one_set),
		cmocka_unit_test(the_same_files_are_held_once_for_a_user),
		cmocka_unit_test(the_same_tensors_of_another_file_are_the_same_weights),
		cmocka_unit_test(a_file_that_has_just_changed_is_read_again),
		cmocka_unit_test(what_is_no_safetensors_file_is_said),
		cmocka_unit_test(what_is_no_file_is_said),
		cmocka_unit_test(too_many_files_are_refused),
		cmocka_unit_test(what_nobody_has_makes_room_and_what_is_in_use_does_not),
		cmocka_unit_test(room_is_made_to_the_byte),
		cmocka_unit_test(room_is_booked_as_the_backend_takes_it),
		cmocka_unit_test(of_what_nobody_has_some_stay),
		cmocka_unit_test(more_headers_than_are_taken_are_said),
		cmocka_unit_test(a_user_loads_no_more_than_some_at_a_time),
		cmocka_unit_test(the_last_place_is_for_who_loads_nothing),
		cmocka_unit_test(root_loads_whoever_else_does),
		cmocka_unit_test(others_load_though_root_does),
		cmocka_unit_test(what_nobody_waits_for_any_more_ends),
		cmocka_unit_test(weights_are_lent_once_a_thread_has_made_them_so),
		cmocka_unit_test(how_lending_failed_is_told_once),
		cmocka_unit_test(who_goes_while_weights_are_made_ready_is_not_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	assert_int_equal(argc, 2);
	return fixture_run(argv[1], run);
}
