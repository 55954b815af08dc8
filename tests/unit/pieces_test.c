/*
 * pieces_test.c - how what is too long for one go is cut: a prompt's rows, where a device wants
 * many of them at a time; and the stage, through which paths stream, into cells.
 */
#include "modelled.h"

#include "daemon/sched/long/streamed_impl.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PATH_TOKENS 2000u
#define MOST_ROWS 4096u /* of a slice of a short path */

/* So many rows, of which the device gets about as many in each slice. */
static void slices_are(uint32_t n_rows, uint32_t n_slices, uint32_t most_rows)
{
	struct modelled *m = modelled_new();
	struct modelled_client *client;

	m->wants_rows = true;
	m->pair_ns = m->token_ns = 0.001;
	modelled_start(m);
	client = modelled_join(m, 1, PATH_TOKENS);
	m->h.config.batch_budget_ms = 60000;
	modelled_forget(m);
	modelled_ask(m, client, n_rows);
	modelled_await(m, client);
	assert_int_equal(m->n_batches, n_slices);
	assert_int_equal(m->most_rows, most_rows);
	modelled_free(m);
}

static void a_device_gets_as_many_rows_in_each_slice(void **state)
{
	(void)state;
	slices_are(MOST_ROWS, 1, MOST_ROWS);
	slices_are(MOST_ROWS + 1, 2, MOST_ROWS / 2 + 1);
	slices_are(10000, 3, 3334);
	slices_are(3 * MOST_ROWS, 3, MOST_ROWS);
}

/* Of another size, where others read and write still what is there. */
static void cells_of_another_model_wait_for_all_that_use_the_stage(void **state)
{
	const struct config config = {.extent_bytes = 2u << 20};
	struct sched_core core = {.config = &config};
	struct sched_model model = {.shape.n_layers = 2, .page_bytes = 64u << 10};

	(void)state;
	for (uint32_t newest = 0; newest < STREAMED_CELLS; newest++) {
		struct streamed p = {.core = &core, .model = &model, .n_extents = 3};

		for (uint32_t i = 0; i < STREAMED_CELLS; i++)
			p.users[i] = i == newest ? 9 : i;
		stage_cut(&p);
		assert_int_equal(p.n_cells, STREAMED_CELLS);
		assert_int_equal(p.cell_pages, 3 * 64 / STREAMED_CELLS);
		for (uint32_t i = 0; i < STREAMED_CELLS; i++)
			assert_int_equal(p.users[i], 9);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_gets_as_many_rows_in_each_slice),
		cmocka_unit_test(cells_of_another_model_wait_for_all_that_use_the_stage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
