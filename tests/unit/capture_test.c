/*
 * capture_test.c - captured steps and the lane's words: each step that is captured has a pair of
 * its own for as long as its capture lives, and a pair comes as it was born.
 *
 * Over a driver that only notes what a stream was told, and a lane that nobody serves: two steps
 * that share a pair would be told apart by nothing, and a graph of theirs would hang.
 */
#include "client/lib/memory/arena.h"
#include "client/lib/seq/seq.h"
#include "client/lib/stream/stream.h"
#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROW_BYTES 64
#define N_CAPTURES (ABI_LANE_WORDS / ABI_LANE_SLOTS)

struct fixture {
	struct coppice c;
	struct coppice_lane lane;
	struct abi_board board;
	struct driver driver;
	struct coppice_arena arena;
	struct coppice_arena *arenas[1];
	struct coppice_seq seq;
	_Atomic uint32_t alive;
	uint8_t rows[2][ROW_BYTES]; /* K, V */
};

/* ---- a stream ---- */

struct stream {
	int is_capturing;
	uint64_t written[ABI_LANE_WORDS]; /* addresses */
	uint32_t n_written;
	uint64_t awaited[ABI_LANE_WORDS];
	uint32_t n_awaited;
	uint64_t taken_back[ABI_LANE_WORDS];
	uint32_t n_taken_back;
	int error; /* what it answers to a write */
};

static int stream_capturing(void *stream, int *ret)
{
	*ret = ((struct stream *)stream)->is_capturing;
	return 0;
}

static int write_word(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
	struct stream *s = stream;

	assert_int_equal(value, 1);
	assert_int_equal(flags, 0);
	if (s->error == 0)
		s->written[s->n_written++] = address;
	return s->error;
}

static int batch(void *stream, unsigned n, struct driver_op *ops, unsigned flags)
{
	struct stream *s = stream;

	assert_int_equal(flags, 0);
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].kind == DRIVER_WAIT_VALUE_64)
			s->awaited[s->n_awaited++] = ops[i].address;
		else
			s->taken_back[s->n_taken_back++] = ops[i].address;
		assert_int_equal(ops[i].value, ops[i].kind == DRIVER_WAIT_VALUE_64);
	}
	return 0;
}

static int error_string(int error, const char **ret)
{
	*ret = error ? "no" : "yes";
	return 0;
}

/* ---- a lane ---- */

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->alive = 1;
	f->arena = (struct coppice_arena){.c = &f->c,
					  .id = 1,
					  .base = f->rows[0],
					  .bytes = sizeof(f->rows)};
	f->arenas[0] = &f->arena;
	f->driver = (struct driver){.error_string = error_string,
				    .stream_capturing = stream_capturing,
				    .stream_write = write_word,
				    .stream_batch = batch};
	f->c = (struct coppice){.key = 79,
				.alive = &f->alive,
				.board = &f->board,
				.socket = -1,
				.driver = &f->driver,
				.arenas = {.items = f->arenas, .n = 1, .capacity = 1}};
	f->lane.c = &f->c;
	f->lane.streams = calloc(1, sizeof(*f->lane.streams));
	f->lane.segment.shared = aligned_alloc(64, align_to(sizeof(struct abi_lane), 64));
	assert_non_null(f->lane.segment.shared);
	assert_non_null(f->lane.streams);
	/* As whoever had the words before has left them. */
	memset(f->lane.segment.shared, 0xff, sizeof(struct abi_lane));
	atomic_store(&f->lane.segment.shared->done, 0);
	f->lane.streams->base = (uintptr_t)f->lane.segment.shared;
	f->seq = (struct coppice_seq){.lane = &f->lane,
				      .handle = 5,
				      .model = {.q_row_bytes = ROW_BYTES,
						.kv_row_bytes = ROW_BYTES}};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	free(f->lane.segment.shared);
	free(f->lane.streams);
	free(f);
	return 0;
}

static struct coppice_capture *capture_begin(struct fixture *f, struct stream *stream)
{
	struct coppice_capture *capture;

	stream->is_capturing = 0;
	assert_int_equal(coppice_capture_new(&f->lane, stream, &capture), 0);
	stream->is_capturing = 1;
	return capture;
}

static int capture_step(struct fixture *f, struct coppice_capture *capture, struct stream *stream)
{
	struct coppice_step_seq part = {.seq = &f->seq,
					.n_new = 1,
					.k = f->rows[0],
					.v = f->rows[1]};
	struct coppice_step step = {.seqs = &part, .n_seqs = 1, .append_only = true};

	return coppice_capture_step(capture, &step, stream);
}

static struct coppice_capture *capture_steps(struct fixture *f, struct stream *stream, uint32_t n)
{
	struct coppice_capture *capture = capture_begin(f, stream);

	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(capture_step(f, capture, stream), 0);
	assert_int_equal(coppice_capture_wait(capture, stream), 0);
	return capture;
}

/* Of the pair that the stream was told of i-th. */
static uint32_t word_of(const struct fixture *f, const struct stream *stream, uint32_t i)
{
	const struct abi_lane *shared = f->lane.segment.shared;
	uint64_t word = (stream->written[i] - (uintptr_t)shared->ready_words) / sizeof(uint64_t);

	assert_in_range(word, 0, ABI_LANE_WORDS - 1);
	return (uint32_t)word;
}

/* That the stream waits for the same pairs that it writes, and takes them back. */
static void check_waits(const struct fixture *f, const struct stream *stream)
{
	assert_int_equal(stream->n_awaited, stream->n_written);
	assert_int_equal(stream->n_taken_back, stream->n_written);
	for (uint32_t i = 0; i < stream->n_written; i++) {
		uint32_t word = word_of(f, stream, i);

		assert_int_equal(stream->awaited[i],
				 (uintptr_t)&f->lane.segment.shared->done_words[word]);
		assert_int_equal(stream->taken_back[i], stream->awaited[i]);
	}
}

static void submit(struct fixture *f, struct coppice_capture *capture, uint64_t ticket)
{
	uint64_t last = 0;

	assert_int_equal(coppice_capture_submit(capture, NULL, &last), 0);
	assert_int_equal(last, ticket);
	assert_int_equal(ring_submitted(f->lane.segment.shared), ticket);
}

static uint64_t submitted_word(const struct fixture *f, uint64_t ticket)
{
	struct abi_entry entry;

	ring_copy_entry(f->lane.segment.shared, ticket, &entry);
	assert_true(entry.flags & ABI_STEP_WORDS);
	return entry.arg;
}

/* ---- tests ---- */

static void a_capture_is_made_before_its_stream_is_captured(void **state)
{
	struct fixture *f = *state;
	struct stream stream = {.is_capturing = 1};
	struct coppice_capture *capture = NULL;

	assert_int_equal(coppice_capture_new(&f->lane, &stream, &capture), -EINVAL);
	assert_null(capture);
}

static void two_steps_in_flight_have_a_pair_each(void **state)
{
	struct fixture *f = *state;
	struct stream stream = {0};
	struct coppice_capture *capture = capture_steps(f, &stream, 2);

	assert_int_not_equal(word_of(f, &stream, 0), word_of(f, &stream, 1));
	check_waits(f, &stream);
	submit(f, capture, 2);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(submitted_word(f, 1 + i), word_of(f, &stream, i));
	coppice_capture_free(capture);
}

static uint64_t submitted_seq(const struct fixture *f, uint64_t ticket)
{
	struct abi_step_seq record;
	struct abi_entry entry;

	ring_copy_entry(f->lane.segment.shared, ticket, &entry);
	assert_int_equal(entry.body_bytes, sizeof(record));
	memcpy(&record, f->lane.segment.shared->bodies + entry.body, sizeof(record));
	return record.seq;
}

static void a_capture_is_submitted_for_others_than_it_was_made_of(void **state)
{
	struct fixture *f = *state;
	struct stream stream = {0};
	struct coppice_seq other = f->seq, *const others = &other;
	struct coppice_capture *capture = capture_steps(f, &stream, 2);

	other.handle = 9;
	assert_int_equal(coppice_capture_submit(capture, &others, NULL), 0);
	submit(f, capture, 4);
	for (uint64_t ticket = 1; ticket <= 4; ticket++)
		assert_int_equal(submitted_seq(f, ticket), ticket <= 2 ? 9 : 5);
	coppice_capture_free(capture);
}

static void two_captures_of_a_lane_have_pairs_of_their_own(void **state)
{
	struct fixture *f = *state;
	struct stream streams[2] = {0};
	struct coppice_capture *one = capture_steps(f, &streams[0], 2);
	struct coppice_capture *other = capture_steps(f, &streams[1], 2);

	for (uint32_t i = 0; i < 4; i++)
		assert_int_not_equal(word_of(f, &streams[0], i / 2),
				     word_of(f, &streams[1], i % 2));
	submit(f, one, 2);
	submit(f, other, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(submitted_word(f, 1 + i), word_of(f, &streams[i / 2], i % 2));
	coppice_capture_free(one);
	coppice_capture_free(other);
}

static void a_pair_is_taken_as_it_was_born(void **state)
{
	struct fixture *f = *state;
	struct abi_lane *shared = f->lane.segment.shared;
	struct stream stream = {0};
	struct coppice_capture *capture = capture_steps(f, &stream, 1);
	uint32_t word = word_of(f, &stream, 0);

	assert_int_equal(atomic_load(&shared->ready_words[word]), 0);
	assert_int_equal(atomic_load(&shared->done_words[word]), 0);
	coppice_capture_free(capture);
}

static void fill(struct fixture *f, struct stream *stream, struct coppice_capture **ret)
{
	for (uint32_t i = 0; i < N_CAPTURES; i++)
		ret[i] = capture_steps(f, stream, ABI_LANE_SLOTS);
	assert_int_equal(stream->n_written, ABI_LANE_WORDS);
}

static void check_no_word_left(struct fixture *f, struct coppice_capture *capture,
			       struct stream *stream)
{
	assert_int_equal(capture_step(f, capture, stream), -ENOSPC);
	assert_non_null(strstr(coppice_explain(&f->c), "no word left for it, of 1024"));
}

static void the_step_after_the_last_word_is_refused(void **state)
{
	struct fixture *f = *state;
	struct coppice_capture *full[N_CAPTURES];
	struct stream stream = {0}, late = {0};
	bool taken[ABI_LANE_WORDS] = {false};
	struct coppice_capture *capture;

	fill(f, &stream, full);
	for (uint32_t i = 0; i < ABI_LANE_WORDS; i++) {
		assert_false(taken[word_of(f, &stream, i)]);
		taken[word_of(f, &stream, i)] = true;
	}
	capture = capture_begin(f, &late);
	check_no_word_left(f, capture, &late);
	assert_int_equal(late.n_written, 0);
	coppice_capture_free(full[1]);
	for (uint32_t i = 0; i < ABI_LANE_SLOTS; i++)
		assert_int_equal(capture_step(f, capture, &late), 0);
	assert_int_equal(word_of(f, &late, 0), word_of(f, &stream, ABI_LANE_SLOTS));
	assert_int_equal(coppice_capture_wait(capture, &late), 0);
	check_waits(f, &late);
	coppice_capture_free(capture);
	for (uint32_t i = 0; i < N_CAPTURES; i++)
		coppice_capture_free(i == 1 ? NULL : full[i]);
	assert_int_equal(f->lane.streams->words[0], 0);
}

static void a_step_that_the_stream_refuses_gives_its_pair_back(void **state)
{
	struct fixture *f = *state;
	struct stream stream = {.error = 1};
	struct coppice_capture *capture = capture_begin(f, &stream);

	for (uint32_t i = 0; i < 2 * ABI_LANE_WORDS; i++)
		assert_int_equal(capture_step(f, capture, &stream), -EIO);
	stream.error = 0;
	assert_int_equal(capture_step(f, capture, &stream), 0);
	coppice_capture_free(capture);
}

static void what_was_not_freed_goes_with_the_lane(void **state)
{
	struct fixture *f = *state;
	struct stream streams[3] = {0};
	struct coppice_capture *captures[3];

	for (uint32_t i = 0; i < 3; i++)
		captures[i] = capture_steps(f, &streams[i], 2);
	coppice_capture_free(captures[1]);
	capture_forget_all(&f->lane);
	assert_int_equal(f->lane.streams->words[0], 0);
	assert_null(f->lane.streams->captures);
	capture_forget_all(&f->lane);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_capture_is_made_before_its_stream_is_captured,
						setup, teardown),
		cmocka_unit_test_setup_teardown(two_steps_in_flight_have_a_pair_each, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_capture_is_submitted_for_others_than_it_was_made_of, setup, teardown),
		cmocka_unit_test_setup_teardown(two_captures_of_a_lane_have_pairs_of_their_own,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_pair_is_taken_as_it_was_born, setup, teardown),
		cmocka_unit_test_setup_teardown(the_step_after_the_last_word_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_step_that_the_stream_refuses_gives_its_pair_back,
						setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_not_freed_goes_with_the_lane, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
