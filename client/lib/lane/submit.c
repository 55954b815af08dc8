/*
 * submit.c - room in the ring and in the body arena, and publication.
 *
 * A slot is free again once its ticket is done: at most 256 entries are in flight. A body's bytes
 * are given back in the order of tickets, as far as tickets are done; a body never wraps, so that
 * what is left at the end of the arena is given back with the body that skipped it.
 */
#include "submit.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>

/* The body's place, behind the gap if it would wrap. */
static uint64_t place_body(uint64_t head, size_t bytes)
{
	uint64_t at = head % ABI_BODY_ARENA_BYTES;

	return at + bytes > ABI_BODY_ARENA_BYTES ? head + ABI_BODY_ARENA_BYTES - at : head;
}

static int explain_full(struct coppice_lane *lane, const char *what)
{
	int r = connection_probe(lane->c);

	if (r < 0)
		return r;
	return explain(lane->c->key, -EAGAIN, "%s; wait for an earlier ticket first", what);
}

/* For n more entries; gives the bodies of completed ones back. */
static int check_slots(struct coppice_lane *lane, uint32_t n)
{
	int r = connection_check_peer(lane->c);
	uint64_t done;

	if (r < 0)
		return r;
	done = lane_done(lane);
	if (lane->submitted - done + n > ABI_LANE_SLOTS)
		return explain_full(lane, "the lane has 256 entries in flight");
	/* The note of `done` is still its own: its slot is next taken by the ticket after a full
	 * ring. */
	if (done)
		lane->bodies_tail = lane->notes[ring_slot(done)].bodies_end;
	return 0;
}

int submit_check_room(struct coppice_lane *lane, uint32_t n, size_t body_bytes)
{
	int r = check_slots(lane, n);

	if (r < 0)
		return r;
	if (lane->bodies_head + body_bytes - lane->bodies_tail > ABI_BODY_ARENA_BYTES)
		return explain_full(lane, "the lane has 1 MiB of entries' data in flight");
	return 0;
}

int submit_begin(struct coppice_lane *lane, size_t body_bytes, struct reservation *ret)
{
	uint64_t head;
	int r = check_slots(lane, 1);

	if (r < 0)
		return r;
	head = place_body(lane->bodies_head, body_bytes);
	if (head + body_bytes - lane->bodies_tail > ABI_BODY_ARENA_BYTES)
		return explain_full(lane, "the lane has 1 MiB of entries' data in flight");
	ret->head = head;
	ret->body = &lane->segment.shared->bodies[head % ABI_BODY_ARENA_BYTES];
	ret->body_bytes = (uint32_t)body_bytes;
	return 0;
}

void submit_end(struct coppice_lane *lane, const struct reservation *place, struct abi_entry entry,
		uint64_t *ret_ticket)
{
	uint64_t ticket = lane->submitted + 1;
	uint32_t slot = ring_slot(ticket);

	entry.ticket = ticket;
	entry.body = (uint32_t)(place->head % ABI_BODY_ARENA_BYTES);
	entry.body_bytes = place->body_bytes;
	lane->segment.shared->entries[slot] = entry;
	lane->bodies_head = align_to(place->head + place->body_bytes, 8);
	lane->notes[slot] = (struct lane_note){
		.bodies_end = lane->bodies_head,
		.layer = entry.layer,
		.kind = (uint16_t)entry.kind,
	};
	lane->submitted = ticket;
	ring_publish(lane->segment.shared, ticket);
	if (ring_daemon_asleep(lane->c->board))
		ring_doorbell(lane->c->doorbell);
	if (ret_ticket)
		*ret_ticket = ticket;
}

int coppice_nop(struct coppice_lane *lane, uint64_t *ret_ticket)
{
	struct reservation place;
	int r = submit_begin(lane, 0, &place);

	if (r == 0)
		submit_end(lane, &place, (struct abi_entry){.kind = ABI_NOP}, ret_ticket);
	return r;
}
