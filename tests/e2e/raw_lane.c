/*
 * raw_lane.c - the descriptors that the daemon hands over are kept and mapped, and entries are
 * written and rung for by hand.
 */
#include "raw_lane.h"

#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIM 64
#define TRIES 2000 /* of 1 ms */
#define ROW_BYTES (4 * DIM * 4) /* of q; k and v have half of that */

static int keep_fd(struct client *c, unsigned i)
{
	int fd = fcntl(c->fds[i], F_DUPFD_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

static void raw_lane(struct raw *x)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	void *map;

	m.has_notify = m.notify = true;
	assert_int_equal(client_verb(&x->c, lane_new, &m)->code, 0);
	assert_int_equal(x->c.n_fds, 2);
	x->lane_fd = keep_fd(&x->c, 0);
	x->notify_fd = keep_fd(&x->c, 1);
	assert_int_equal(channel_segment_map(x->lane_fd, sizeof(*x->lane), 1, &map), 0);
	x->lane = map;
	assert_int_equal(channel_segment_fill(map, sizeof(*x->lane)), 0);
	assert_int_equal(client_seal_lane(&x->c, x->c.reply->lane->lane)->code, 0);
}

/* What his user has ended counts for a moment longer than its socket is open. */
static struct client join(const struct harness *h)
{
	Coppice__Hello hello = COPPICE__HELLO__INIT;
	struct client c = client_connect(h);
	int r;

	hello.abi_version = ABI_VERSION;
	for (int i = 0; (r = client_verb(&c, hello, &hello)->code) == -EUSERS && i < TRIES; i++) {
		client_close(&c);
		sleep_ms(1);
		c = client_connect(h);
	}
	assert_int_equal(r, 0);
	return c;
}

struct raw raw_open(const struct harness *h)
{
	struct raw x = {.c = join(h)};

	x.board_fd = keep_fd(&x.c, 0);
	x.doorbell_fd = keep_fd(&x.c, 1);
	x.model = client_model(&x.c);
	x.arena = client_open_arena(&x.c, RAW_ARENA_BYTES, &x.arena_fd);
	assert_int_equal(client_seal(&x.c, x.arena)->code, 0);
	raw_lane(&x);
	return x;
}

void raw_close(struct raw *x)
{
	munmap(x->lane, sizeof(*x->lane));
	close(x->board_fd);
	close(x->doorbell_fd);
	close(x->arena_fd);
	close(x->lane_fd);
	close(x->notify_fd);
	client_close(&x->c);
}

void raw_submit(struct raw *x, struct abi_entry entry, const void *body, uint32_t bytes)
{
	entry.ticket = ++x->ticket;
	entry.body = ring_slot(entry.ticket) * 4096;
	entry.body_bytes = bytes;
	if (bytes)
		memcpy(x->lane->bodies + entry.body, body, bytes);
	x->lane->entries[ring_slot(entry.ticket)] = entry;
	ring_publish(x->lane, entry.ticket);
	ring_doorbell(x->doorbell_fd);
}

void raw_wait(struct raw *x)
{
	for (int i = 0; i < 20000 && ring_done(x->lane) < x->ticket; i++)
		sleep_ms(1);
	assert_true(ring_done(x->lane) >= x->ticket);
}

void raw_step(struct raw *x, uint64_t seq)
{
	struct abi_step_seq rec = {.seq = seq,
				   .q = 4096,
				   .k = 4096 + ROW_BYTES,
				   .v = 4096 + 2 * ROW_BYTES,
				   .o = 4096 + 3 * ROW_BYTES,
				   .lse = ABI_NO_OFFSET,
				   .n_new = 1,
				   .arena_in = x->arena,
				   .arena_out = x->arena};
	uint32_t id = 1;

	raw_submit(x, (struct abi_entry){.kind = ABI_EXTEND, .seq = seq, .count = 1}, &id, 4);
	for (uint32_t layer = 0; layer < 2; layer++)
		raw_submit(x, (struct abi_entry){.kind = ABI_STEP, .count = 1, .layer = layer},
			   &rec, sizeof(rec));
	raw_submit(x, (struct abi_entry){.kind = ABI_TRIM, .seq = seq}, NULL, 0);
}

uint64_t raw_seq(struct raw *x)
{
	const Coppice__Reply *reply = client_seq(&x->c, x->model, 1, x->arena, 1);

	assert_int_equal(reply->code, 0);
	return reply->seq->seq;
}
