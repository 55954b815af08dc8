/*
 * stream_step.c - steps whose inputs a stream writes, and streams that wait for a step's outputs.
 *
 * A stream's word is queued before the entry is out: an entry whose word never comes would block
 * its lane.
 */
#include "client/lib/step/step.h"
#include "stream.h"

static struct abi_entry entry_of(const struct coppice_lane *lane, const struct coppice_step *step)
{
	struct abi_entry entry = step_entry(step);

	entry.flags |= ABI_STEP_STREAM;
	if (lane->streams->near.address) {
		entry.flags |= ABI_STEP_TELL;
		entry.seq = lane->streams->near.arena;
		entry.arg = lane->streams->near.offset;
	}
	return entry;
}

int coppice_step_on_stream(struct coppice_lane *lane, const struct coppice_step *step, void *stream,
			   uint64_t *ret_ticket)
{
	static const char what[] = "coppice_step_on_stream";
	struct reservation place;
	int r = step_prepare(lane, step, &place);

	if (r == 0)
		r = stream_join(lane, what, stream, STREAM_LIVE);
	if (r == 0)
		r = stream_tell_ready(lane, what, stream, lane->submitted + 1);
	if (r == 0)
		submit_end(lane, &place, entry_of(lane, step), ret_ticket);
	return r;
}

int coppice_wait_on_stream(struct coppice_lane *lane, uint64_t ticket, void *stream)
{
	static const char what[] = "coppice_wait_on_stream";
	int r = connection_check_peer(lane->c);

	if (r == 0)
		r = lane_check_ticket(lane, ticket);
	if (r == 0)
		r = stream_join(lane, what, stream, STREAM_LIVE);
	if (r < 0)
		return r;
	return stream_await_done(lane, what, stream, ticket);
}
