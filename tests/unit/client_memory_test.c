/*
 * client_memory_test.c - libcoppice's arenas and structs against a coppiced of its own for each
 * test: pieces of arenas, references that outlive them, how a model lies in memory, and structs
 * that are smaller or larger than the library knows. argv[1] is the daemon's program.
 */
#include "client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- pieces of an arena ---- */

static void pieces_are_aligned_and_apart(void **state)
{
	static const size_t aligns[] = {0, 1, 2, 64, 256, 4096, 65536};
	struct fixture *f = *state;
	uint8_t *end = coppice_arena_base(f->arena);

	for (size_t i = 0; i < sizeof(aligns) / sizeof(*aligns); i++) {
		void *piece;

		assert_int_equal(coppice_arena_alloc(f->arena, 100 + i, aligns[i], &piece), 0);
		assert_int_equal((uintptr_t)piece % (aligns[i] ? aligns[i] : 256), 0);
		assert_true((uint8_t *)piece >= end);
		end = (uint8_t *)piece + 100 + i;
	}
	assert_true(end <= (uint8_t *)coppice_arena_base(f->arena) + coppice_arena_bytes(f->arena));
}

static void a_full_arena_says_so_and_a_reset_one_is_empty(void **state)
{
	struct fixture *f = *state;
	size_t bytes = coppice_arena_bytes(f->arena);
	void *piece = NULL, *again;

	assert_int_equal(coppice_arena_alloc(f->arena, bytes + 1, 1, &piece), -ENOSPC);
	assert_null(piece);
	assert_int_equal(coppice_arena_alloc(f->arena, bytes, 1, &piece), 0);
	assert_int_equal(coppice_arena_alloc(f->arena, 1, 1, &again), -ENOSPC);
	assert_explained(f, "1 bytes do not fit");
	coppice_arena_reset(f->arena);
	assert_int_equal(coppice_arena_alloc(f->arena, bytes, 0, &again), 0);
	assert_ptr_equal(again, piece);
}

static void pieces_that_make_no_sense_are_refused(void **state)
{
	struct fixture *f = *state;
	void *piece;

	assert_int_equal(coppice_arena_alloc(f->arena, 0, 0, &piece), -EINVAL);
	assert_explained(f, "no bytes");
	assert_int_equal(coppice_arena_alloc(f->arena, 8, 48, &piece), -EINVAL);
	assert_explained(f, "align is 48");
	assert_int_equal(coppice_arena_alloc(f->arena, SIZE_MAX, 0, &piece), -ENOSPC);
	assert_int_equal(coppice_arena_alloc(f->arena, 1, SIZE_MAX / 2 + 1, &piece), -ENOSPC);
}

/* Each writes its own number over its pieces: none is given out twice. */
struct taker {
	struct coppice_arena *arena;
	uint8_t *pieces[200];
	uint8_t number;
};

static void *take_pieces(void *arg)
{
	struct taker *t = arg;

	for (int i = 0; i < 200; i++) {
		void *piece = NULL;

		if (coppice_arena_alloc(t->arena, 64, 64, &piece) == 0)
			memset(piece, t->number, 64);
		t->pieces[i] = piece;
	}
	return NULL;
}

static void threads_take_pieces_of_one_arena(void **state)
{
	struct fixture *f = *state;
	struct taker takers[4];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		takers[i] = (struct taker){.arena = f->arena, .number = (uint8_t)(i + 1)};
		assert_int_equal(pthread_create(&threads[i], NULL, take_pieces, &takers[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4 * 200; i++) {
		const struct taker *t = &takers[i / 200];

		assert_non_null(t->pieces[i % 200]);
		for (int j = 0; j < 64; j++)
			assert_int_equal(t->pieces[i % 200][j], t->number);
	}
}

/* ---- references ---- */

static void a_view_outlives_the_arena(void **state)
{
	struct fixture *f = *state;
	uint8_t *view = coppice_arena_base(f->arena);
	struct coppice_step_seq part;
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);

	part = client_part_of(f, seq, 1);
	coppice_arena_ref(f->arena);
	coppice_arena_free(f->arena);
	memset(view, 7, coppice_arena_bytes(f->arena));
	assert_int_equal(view[coppice_arena_bytes(f->arena) - 1], 7);
	assert_ptr_equal(coppice_arena_base(f->arena), view);
	/* but no step may name it any more */
	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "does not lie in an arena");
	coppice_arena_unref(f->arena);
	coppice_seq_close(seq);
}

static void a_view_outlives_the_connection(void **state)
{
	struct fixture *f = *state;
	struct coppice *c = connect_soon(f->path);
	struct coppice_arena *arena;
	uint8_t *view;

	assert_int_equal(coppice_arena_new(c, COPPICE_HOST, 1 << 20, &arena), 0);
	view = coppice_arena_base(arena);
	coppice_arena_ref(arena);
	coppice_arena_ref(arena);
	coppice_close(c);
	memset(view, 9, 1 << 20);
	coppice_arena_free(arena); /* as a binding's finaliser may: gone already */
	assert_int_equal(view[(1 << 20) - 1], 9);
	coppice_arena_unref(arena);
	memset(view, 10, 1 << 20);
	coppice_arena_unref(arena);
	coppice_arena_unref(NULL);
}

/* The daemon allows a session 64 arenas of so many bytes: they are given back at once. */
static void an_arena_with_a_view_does_not_count_once_freed(void **state)
{
	struct fixture *f = *state;
	struct coppice_arena *arenas[100];

	for (int i = 0; i < 100; i++) {
		assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 1, &arenas[i]), 0);
		coppice_arena_ref(arenas[i]);
		coppice_arena_free(arenas[i]);
	}
	for (int i = 0; i < 100; i++) {
		*(uint8_t *)coppice_arena_base(arenas[i]) = 1;
		coppice_arena_unref(arenas[i]);
	}
}

/* ---- models and what is counted ---- */

static void a_model_says_how_it_lies(void **state)
{
	struct fixture *f = *state;
	struct coppice_model_layout layout = {.size = sizeof(layout)};

	assert_int_equal(coppice_model_query(f->c, f->model, &layout), 0);
	assert_int_equal(layout.size, sizeof(layout));
	assert_int_equal(layout.q_row_bytes, 64);
	assert_int_equal(layout.kv_row_bytes, 64);
	assert_int_equal(layout.lse_row_bytes, 4);
	assert_true(layout.page_tokens == 16 || layout.page_tokens == 32 ||
		    layout.page_tokens == 64);
	/* K and V of one layer */
	assert_int_equal(layout.page_bytes, 2 * 64 * layout.page_tokens);
	assert_int_equal(coppice_model_query(f->c, 77, &layout), -EINVAL);
	assert_explained(f, "model 77");
}

static void what_is_counted_is_this_connections(void **state)
{
	struct fixture *f = *state;
	struct coppice_stats stats = {.size = sizeof(stats)}, others = {.size = sizeof(others)};
	struct coppice *other = connect_soon(f->path);
	struct coppice_seq *seq = client_open_seq(f, f->lane, 8);
	uint64_t ticket;

	assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	assert_int_equal(coppice_stats(f->c, &stats), 0);
	assert_int_equal(coppice_stats(other, &others), 0);
	assert_int_equal(stats.n_lanes, 1);
	assert_int_equal(stats.n_seqs, 1);
	assert_int_equal(stats.n_entries, 1);
	assert_true(stats.n_arenas >= 1);
	assert_true(stats.arena_bytes >= coppice_arena_bytes(f->arena));
	assert_true(stats.arena_bytes <= coppice_arena_bytes(f->arena) + (64 << 10)); /* ids */
	assert_int_equal(stats.pool_bytes, 64 << 20);
	assert_false(stats.draining);
	assert_int_equal(others.n_lanes, 0);
	assert_int_equal(others.n_entries, 0);
	assert_int_not_equal(others.session, stats.session);
	coppice_seq_close(seq);
	coppice_close(other);
}

/* ---- structs of other sizes ---- */

/* As of an app that was compiled with the next version's header. */
struct larger_model {
	struct coppice_model_info known;
	uint64_t more[2];
};

static void structs_of_any_version_are_taken(void **state)
{
	struct fixture *f = *state;
	struct larger_model larger = {
		.known =
			{
				.size = sizeof(larger),
				.name = "larger",
				.n_layers = 1,
				.n_q_heads = 1,
				.n_kv_heads = 1,
				.head_dim = 16,
			},
	};
	uint32_t model = 77;

	assert_int_equal(coppice_model_open(f->c, &larger.known, &model), 0);
	larger.known.size = sizeof(larger.known);
	assert_int_equal(coppice_model_open(f->c, &larger.known, &model), 0);
	larger.known.size = 0;
	assert_int_equal(coppice_model_open(f->c, &larger.known, &model), 0);
}

static void what_a_struct_says_that_is_not_known_is_refused(void **state)
{
	struct fixture *f = *state;
	struct larger_model larger = {
		.known =
			{
				.size = sizeof(larger),
				.name = "larger",
				.n_layers = 1,
				.n_q_heads = 1,
				.n_kv_heads = 1,
				.head_dim = 16,
			},
		.more = {0, 1},
	};
	struct coppice_sparse sparse = {.size = 4};
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_step_seq part = client_part_of(f, seq, 1);
	struct coppice_step step = {.size = 9, .seqs = &part, .n_seqs = 1};
	uint32_t model = 77;

	assert_int_equal(coppice_model_open(f->c, &larger.known, &model), -E2BIG);
	assert_explained(f, "coppice_model_open: the struct says something in its last 16 bytes");
	assert_int_equal(model, 77);
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "size says 9");
	assert_int_equal(coppice_seq_sparse(seq, &sparse, NULL), -EINVAL);
	assert_explained(f, "size says 4");
	step.size = sizeof(step);
	part.reserved[1] = 1;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "a reserved word of sequence 0 is not 0");
	coppice_seq_close(seq);
}

/* So much is written as it has room for, and zeros where this library has nothing to say. */
static void a_struct_is_filled_as_far_as_it_goes(void **state)
{
	struct fixture *f = *state;
	struct {
		struct coppice_model_layout known;
		uint64_t more;
	} larger = {.known = {.size = sizeof(larger)}, .more = 1};
	struct coppice_model_layout smaller = {
		.size = offsetof(struct coppice_model_layout, page_bytes)};
	struct coppice_stats none = {0};

	assert_int_equal(coppice_model_query(f->c, f->model, &larger.known), 0);
	assert_int_equal(larger.more, 0);
	assert_int_equal(larger.known.size, sizeof(larger));
	smaller.page_bytes = 12345;
	assert_int_equal(coppice_model_query(f->c, f->model, &smaller), 0);
	assert_int_equal(smaller.page_tokens, larger.known.page_tokens);
	assert_int_equal(smaller.page_bytes, 12345);
	assert_int_equal(coppice_stats(f->c, &none), -EINVAL);
	assert_explained(f, "set it to its sizeof");
}

static void seconds_are_nanoseconds(void **state)
{
	(void)state;
	assert_true(COPPICE_SECONDS(2) == UINT64_C(2000000000));
	assert_true(COPPICE_SECONDS(0.25) == UINT64_C(250000000));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_setup, client_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(pieces_are_aligned_and_apart),
		TEST(a_full_arena_says_so_and_a_reset_one_is_empty),
		TEST(pieces_that_make_no_sense_are_refused),
		TEST(threads_take_pieces_of_one_arena),
		TEST(a_view_outlives_the_arena),
		TEST(a_view_outlives_the_connection),
		TEST(an_arena_with_a_view_does_not_count_once_freed),
		TEST(a_model_says_how_it_lies),
		TEST(what_is_counted_is_this_connections),
		TEST(structs_of_any_version_are_taken),
		TEST(what_a_struct_says_that_is_not_known_is_refused),
		TEST(a_struct_is_filled_as_far_as_it_goes),
		cmocka_unit_test(seconds_are_nanoseconds),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return 2;
	}
	client_daemon = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
