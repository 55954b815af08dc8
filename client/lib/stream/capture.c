/*
 * capture.c - steps captured in a graph, submitted anew for each of its launches.
 *
 * A captured step has a pair of the lane's words and its records, made when it was captured.
 * Submitting publishes an entry for each step, all or none: a graph that waits for an entry that
 * never comes would wait for ever.
 */
#include "proto/arith.h"
#include "proto/ring.h"
#include "client/lib/seq/seq.h"
#include "client/lib/step/step.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAITS_A_BATCH 64u /* with as many writes: well below what the driver takes at once */

struct captured_step {
	struct abi_entry entry; /* arg: its pair of words */
	struct abi_step_seq *records; /* owned, [entry.count] */
};

struct coppice_capture {
	struct coppice_capture *next; /* of the lane's */
	struct coppice_lane *lane;
	struct captured_step *steps; /* owned, [n_steps] */
	uint32_t n_steps;
	uint32_t n_awaited; /* steps that the graph waits for */
	size_t body_bytes; /* of all */
	size_t largest_body; /* of a step */
};

/* ---- words ---- */

static size_t ready_offset(uint32_t word)
{
	return offsetof(struct abi_lane, ready_words) + word * sizeof(uint64_t);
}

static size_t done_offset(uint32_t word)
{
	return offsetof(struct abi_lane, done_words) + word * sizeof(uint64_t);
}

/* A pair as it was born; ABI_LANE_WORDS: there is none. */
static uint32_t word_take(struct coppice_lane *lane)
{
	for (uint32_t i = 0; i < ABI_LANE_WORDS; i++) {
		if (lane->streams->words[i / 64] >> i % 64 & 1)
			continue;
		lane->streams->words[i / 64] |= UINT64_C(1) << i % 64;
		atomic_store_explicit(&lane->segment.shared->ready_words[i], 0,
				      memory_order_relaxed);
		atomic_store_explicit(&lane->segment.shared->done_words[i], 0,
				      memory_order_relaxed);
		return i;
	}
	return ABI_LANE_WORDS;
}

static void word_give_back(struct coppice_lane *lane, uint32_t word)
{
	lane->streams->words[word / 64] &= ~(UINT64_C(1) << word % 64);
}

/* ---- capture ---- */

int coppice_capture_new(struct coppice_lane *lane, void *stream, struct coppice_capture **ret)
{
	struct coppice_capture *capture;
	int r = connection_check(lane->c);

	if (r == 0)
		r = stream_join(lane, "coppice_capture_new", stream, STREAM_LIVE);
	if (r < 0)
		return r;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return explain(lane->c->key, -ENOMEM, "coppice_capture_new: out of memory");
	capture->lane = lane;
	capture->next = lane->streams->captures;
	lane->streams->captures = capture;
	*ret = capture;
	return 0;
}

static void dispose(struct coppice_capture *capture)
{
	for (uint32_t i = 0; i < capture->n_steps; i++) {
		word_give_back(capture->lane, (uint32_t)capture->steps[i].entry.arg);
		free(capture->steps[i].records);
	}
	free(capture->steps);
	free(capture);
}

void coppice_capture_free(struct coppice_capture *capture)
{
	struct coppice_capture **at;

	if (!capture)
		return;
	at = &capture->lane->streams->captures;
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	dispose(capture);
}

void capture_forget_all(struct coppice_lane *lane)
{
	struct coppice_capture *capture;

	while (lane->streams && (capture = lane->streams->captures)) {
		lane->streams->captures = capture->next;
		dispose(capture);
	}
}

/* What is submitted at once must fit the lane at once. */
static int check_size(const struct coppice_capture *capture, size_t body_bytes)
{
	size_t largest = max_u64(body_bytes, capture->largest_body);

	if (capture->n_steps < ABI_LANE_SLOTS &&
	    capture->body_bytes + body_bytes + largest <= ABI_BODY_ARENA_BYTES)
		return 0;
	return explain(
		capture->lane->c->key, -E2BIG,
		"coppice_capture_step: %u steps of %u sequences are all that a lane takes at "
		"once; make another capture, and submit it while the graph runs",
		capture->n_steps, capture->n_steps ? capture->steps[0].entry.count : 0);
}

static int make_room(struct coppice_capture *capture)
{
	struct captured_step *steps =
		realloc(capture->steps, (capture->n_steps + 1) * sizeof(*steps));

	if (!steps)
		return -ENOMEM;
	capture->steps = steps;
	return 0;
}

/* The step but for its word; the caller frees its records where it is not added. */
static int make_step(struct coppice_capture *capture, const struct coppice_step *step,
		     struct captured_step *ret)
{
	struct coppice *c = capture->lane->c;
	int r = step_check(c, step);

	if (r < 0)
		return r;
	*ret = (struct captured_step){
		.entry = step_entry(step),
		.records = calloc(step->n_seqs, sizeof(*ret->records)),
	};
	ret->entry.flags |= ABI_STEP_WORDS;
	if (!ret->records || make_room(capture) < 0) {
		free(ret->records);
		return explain(c->key, -ENOMEM, "coppice_capture_step: out of memory");
	}
	r = step_records(c, step, ret->records);
	if (r < 0)
		free(ret->records);
	return r;
}

/* Takes the word and tells the stream. */
static int place_step(struct coppice_capture *capture, struct captured_step *step, void *stream)
{
	static const char what[] = "coppice_capture_step";
	struct coppice_lane *lane = capture->lane;
	uint32_t word;
	int r = stream_join(lane, what, stream, STREAM_CAPTURED);

	if (r < 0)
		return r;
	word = word_take(lane);
	if (word == ABI_LANE_WORDS)
		return explain(lane->c->key, -ENOSPC,
			       "%s: the lane has no word left for it, of %u; free captures whose "
			       "graphs are gone",
			       what, ABI_LANE_WORDS);
	r = stream_write(lane, what, stream, ready_offset(word), 1);
	if (r < 0)
		word_give_back(lane, word);
	step->entry.arg = word;
	return r;
}

int coppice_capture_step(struct coppice_capture *capture, const struct coppice_step *step,
			 void *stream)
{
	struct captured_step captured;
	size_t body_bytes = step->n_seqs * sizeof(struct abi_step_seq);
	int r = check_size(capture, body_bytes);

	if (r == 0)
		r = make_step(capture, step, &captured);
	if (r < 0)
		return r;
	r = place_step(capture, &captured, stream);
	if (r < 0) {
		free(captured.records);
		return r;
	}
	capture->steps[capture->n_steps++] = captured;
	capture->body_bytes += body_bytes;
	if (body_bytes > capture->largest_body)
		capture->largest_body = body_bytes;
	return 0;
}

/* Waits, then the words back to 0, in one operation of the stream. */
static int wait_for(struct coppice_capture *capture, uint32_t first, uint32_t n, void *stream)
{
	const struct coppice_lane *lane = capture->lane;
	struct driver_op ops[2 * WAITS_A_BATCH];
	int error;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t address = lane->streams->base +
				   done_offset((uint32_t)capture->steps[first + i].entry.arg);

		ops[i] = (struct driver_op){.kind = DRIVER_WAIT_VALUE_64,
					    .address = address,
					    .value = 1};
		ops[n + i] = (struct driver_op){.kind = DRIVER_WRITE_VALUE_64, .address = address};
	}
	error = lane->c->driver->stream_batch(stream, 2 * n, ops, 0);
	return error ? driver_explain(lane->c, "coppice_capture_wait", "wait on the stream", error)
		     : 0;
}

int coppice_capture_wait(struct coppice_capture *capture, void *stream)
{
	uint32_t first = capture->n_awaited;
	int r = stream_join(capture->lane, "coppice_capture_wait", stream, STREAM_CAPTURED);

	while (r == 0 && first < capture->n_steps) {
		uint32_t n = capture->n_steps - first;

		n = min_u32(n, WAITS_A_BATCH);
		r = wait_for(capture, first, n, stream);
		first += n;
	}
	if (r == 0)
		capture->n_awaited = capture->n_steps;
	return r;
}

/* ---- submission ---- */

static int check_seqs(const struct coppice_capture *capture, struct coppice_seq *const *seqs)
{
	struct coppice *c = capture->lane->c;
	uint32_t n_seqs = capture->steps[0].entry.count;

	for (uint32_t i = 1; seqs && i < capture->n_steps; i++) {
		if (capture->steps[i].entry.count != n_seqs)
			return explain(c->key, -EINVAL,
				       "coppice_capture_submit: captured steps of %u and of %u "
				       "sequences cannot be given the same others",
				       n_seqs, capture->steps[i].entry.count);
	}
	for (uint32_t i = 0; seqs && i < n_seqs; i++) {
		if (!seqs[i] || seqs[i]->lane != capture->lane)
			return explain(c->key, -EINVAL,
				       "coppice_capture_submit: sequence %u is NULL or of another "
				       "lane",
				       i);
	}
	return 0;
}

static int check_capture(struct coppice_capture *capture, struct coppice_seq *const *seqs)
{
	struct coppice *c = capture->lane->c;
	int r = connection_check_peer(c);

	if (r < 0)
		return r;
	if (capture->n_steps == 0)
		return explain(c->key, -EINVAL, "coppice_capture_submit: nothing was captured");
	if (capture->n_awaited < capture->n_steps)
		return explain(c->key, -EINVAL,
			       "coppice_capture_submit: the graph does not wait for its last %u "
			       "steps; call coppice_capture_wait before the capture ends",
			       capture->n_steps - capture->n_awaited);
	return check_seqs(capture, seqs);
}

static int submit_step(struct coppice_capture *capture, const struct captured_step *step,
		       struct coppice_seq *const *seqs, uint64_t *ret_ticket)
{
	size_t bytes = step->entry.count * sizeof(*step->records);
	struct abi_step_seq *records;
	struct reservation place;
	int r = submit_begin(capture->lane, bytes, &place);

	if (r < 0)
		return r;
	records = place.body;
	memcpy(records, step->records, bytes);
	for (uint32_t i = 0; seqs && i < step->entry.count; i++)
		records[i].seq = seqs[i]->handle;
	submit_end(capture->lane, &place, step->entry, ret_ticket);
	return 0;
}

/* There is room for all: only the daemon's end can come between. */
int coppice_capture_submit(struct coppice_capture *capture, struct coppice_seq *const *seqs,
			   uint64_t *ret_ticket)
{
	uint32_t last = capture->n_steps - 1;
	int r = check_capture(capture, seqs);

	if (r == 0)
		r = submit_check_room(capture->lane, capture->n_steps,
				      capture->body_bytes + capture->largest_body);
	for (uint32_t i = 0; r == 0 && i < capture->n_steps; i++)
		r = submit_step(capture, &capture->steps[i], seqs, i == last ? ret_ticket : NULL);
	return r;
}
