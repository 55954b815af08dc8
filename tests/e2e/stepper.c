/*
 * stepper.c - entries that are waited for, one at a time.
 *
 * K and V of each step lie at the same places of an arena of its own, whatever is in them; only
 * outputs have places of their own. What comes out is nobody's concern.
 */
#include "stepper.h"

#include "proto/ring.h"

#include <string.h>
#include <sys/mman.h>

#define ROW_STRIDE 1024u
#define PLACE_BYTES (STEPPER_CHUNK * ROW_STRIDE)
#define N_LAYERS 2u

int stepper_do(struct stepper *s, struct abi_entry entry, const void *body, uint32_t bytes)
{
	struct raw *x = &s->x;

	entry.ticket = ++x->ticket;
	entry.body_bytes = bytes;
	if (bytes)
		memcpy(x->lane->bodies, body, bytes);
	x->lane->entries[ring_slot(entry.ticket)] = entry;
	ring_publish(x->lane, entry.ticket);
	ring_doorbell(x->doorbell_fd);
	raw_wait(x);
	return ring_completion(x->lane, x->ticket).status;
}

static struct abi_step_seq record(const struct stepper *s, uint64_t seq, uint32_t i, uint32_t n_new)
{
	return (struct abi_step_seq){.seq = seq,
				     .k = PLACE_BYTES,
				     .v = 2 * PLACE_BYTES,
				     .o = 3 * PLACE_BYTES + i * n_new * ROW_STRIDE,
				     .lse = ABI_NO_OFFSET,
				     .q_stride = ROW_STRIDE,
				     .k_stride = ROW_STRIDE,
				     .v_stride = ROW_STRIDE,
				     .o_stride = ROW_STRIDE,
				     .n_new = n_new,
				     .arena_in = s->arena,
				     .arena_out = s->arena};
}

static int layers_do(struct stepper *s, const uint64_t *seqs, uint32_t n, uint32_t n_new,
		     uint32_t flags)
{
	struct abi_step_seq recs[STEPPER_SEQS];
	int r = 0;

	assert_true(n <= STEPPER_SEQS);
	for (uint32_t i = 0; i < n; i++)
		recs[i] = record(s, seqs[i], i, n_new);
	for (uint32_t layer = 0; layer < N_LAYERS && !r; layer++)
		r = stepper_do(s,
			       (struct abi_entry){.kind = ABI_STEP,
						  .flags = flags,
						  .count = n,
						  .layer = layer},
			       recs, n * (uint32_t)sizeof(*recs));
	return r;
}

int stepper_step(struct stepper *s, const uint64_t *seqs, uint32_t n, uint32_t n_new)
{
	return layers_do(s, seqs, n, n_new, 0);
}

/* The first status of the last n entries that is not 0. */
static int wait_all(struct stepper *s, uint32_t n)
{
	int r = 0;

	raw_wait(&s->x);
	for (uint64_t ticket = s->x.ticket - n + 1; ticket <= s->x.ticket && !r; ticket++)
		r = ring_completion(s->x.lane, ticket).status;
	return r;
}

int stepper_extend_all(struct stepper *s, const uint64_t *seqs, uint32_t n_seqs, uint32_t n)
{
	struct abi_entry entry = {.kind = ABI_EXTEND, .count = n};
	uint32_t ids[STEPPER_CHUNK];

	assert_true(n <= STEPPER_CHUNK && n_seqs <= STEPPER_SEQS);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = s->first_id + i;
	for (uint32_t i = 0; i < n_seqs; i++) {
		entry.seq = seqs[i];
		raw_submit(&s->x, entry, ids, n * (uint32_t)sizeof(*ids));
	}
	return wait_all(s, n_seqs);
}

int stepper_trim_all(struct stepper *s, const uint64_t *seqs, uint32_t n_seqs, uint32_t n)
{
	struct abi_entry entry = {.kind = ABI_TRIM, .arg = n};

	assert_true(n_seqs <= STEPPER_SEQS);
	for (uint32_t i = 0; i < n_seqs; i++) {
		entry.seq = seqs[i];
		raw_submit(&s->x, entry, NULL, 0);
	}
	return wait_all(s, n_seqs);
}

/* Ids, then parents. */
int stepper_extend(struct stepper *s, uint64_t seq, uint32_t n, uint32_t flags)
{
	uint32_t body[2 * STEPPER_CHUNK];

	assert_true(n <= STEPPER_CHUNK);
	for (uint32_t i = 0; i < n; i++) {
		body[i] = s->first_id + i;
		body[n + i] = UINT32_MAX;
	}
	return stepper_do(
		s, (struct abi_entry){.kind = ABI_EXTEND, .flags = flags, .seq = seq, .count = n},
		body, n * (flags ? 8 : 4));
}

int stepper_append(struct stepper *s, uint32_t n)
{
	int r = stepper_extend(s, s->seq, n, 0);

	r = r ? r : layers_do(s, &s->seq, 1, n, ABI_STEP_APPEND_ONLY);
	s->n_appended += r ? 0 : n;
	return r;
}

void stepper_start(struct stepper *s, const struct harness *h)
{
	s->x = raw_open(h);
	s->seq = raw_seq(&s->x);
	s->n_appended = 0;
	s->first_id = 7;
	munmap(s->x.c.arena, s->x.c.arena_bytes); /* its prompt is read */
	s->arena = client_arena(&s->x.c, 4 * PLACE_BYTES);
}

void stepper_number_from(struct stepper *s, uint32_t first_id)
{
	s->first_id = first_id;
}

void stepper_end(struct stepper *s)
{
	raw_close(&s->x);
}
