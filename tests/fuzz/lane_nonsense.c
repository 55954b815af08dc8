/*
 * lane_nonsense.c - what the hostile session writes into the memory that it shares with the daemon.
 */
#include "lane_program.h"

#include <string.h>

#define N_WORDS 4 /* pairs that steps have: few, so that two have the same */
#define MAX_STEP_SEQS 4

struct nonsense {
	struct abi_entry entry;
	union {
		uint32_t words[ABI_BODY_MAX_BYTES / 4];
		struct abi_step_seq recs[MAX_STEP_SEQS];
		struct {
			struct abi_decode head;
			struct abi_decode_seq seqs[MAX_STEP_SEQS];
		} decode; /* ids follow the last record */
	} body;
};

static uint64_t fit(struct world *w, uint32_t n_rows, uint32_t stride, uint32_t row)
{
	uint64_t bytes = (uint64_t)(n_rows - 1) * stride + row;

	if (bytes > ARENA_BYTES)
		return 0;
	if (draw_one_in(&w->draw, 4))
		return (ARENA_BYTES - bytes) & ~3ull; /* up to the last byte */
	return draw_below(&w->draw, (uint32_t)(ARENA_BYTES - bytes) + 1) & ~3u;
}

static struct abi_step_seq valid_rec(struct world *w, const struct sched_seq *seq)
{
	const struct work_shape *shape = &seq->model->shape;
	uint32_t n = store_seq_n_live(seq->store), elt = (uint32_t)work_dtype_bytes(shape->dtype);
	uint32_t q_row = shape->n_q_heads * shape->head_dim * elt;
	uint32_t k_row = shape->n_kv_heads * shape->head_dim * elt;
	uint32_t pad = draw_below(&w->draw, 3) * 16; /* rows apart */
	struct abi_step_seq rec = {.seq = seq->handle,
				   .q_stride = q_row + pad,
				   .k_stride = k_row + pad,
				   .v_stride = draw_one_in(&w->draw, 8) ? 0 : k_row,
				   .o_stride = q_row,
				   .lse_stride = shape->n_q_heads * 4,
				   .n_new = n,
				   .arena_in = 2,
				   .arena_out = 2};

	rec.q = fit(w, n, rec.q_stride, q_row);
	rec.k = fit(w, n, rec.k_stride, k_row);
	rec.v = fit(w, n, rec.v_stride, k_row);
	rec.o = fit(w, n, rec.o_stride, q_row);
	rec.lse = draw_one_in(&w->draw, 2) ? ABI_NO_OFFSET
					   : fit(w, n, rec.lse_stride, rec.lse_stride);
	return rec;
}

static void mutate_rec(struct world *w, struct abi_step_seq *rec)
{
	uint64_t *wide[] = {&rec->seq, &rec->q, &rec->k, &rec->v, &rec->o, &rec->lse};
	uint32_t *narrow[] = {&rec->q_stride, &rec->k_stride,	&rec->v_stride, &rec->o_stride,
			      &rec->n_new,    &rec->lse_stride, &rec->arena_in, &rec->arena_out};
	uint32_t i = draw_below(&w->draw, 14);

	if (i == 0)
		rec->seq = hostile_any_handle(w);
	else if (i < 6)
		*wide[i] = draw_one_in(&w->draw, 3) ? ARENA_BYTES - draw_below(&w->draw, 300)
						    : draw_border(&w->draw);
	else
		*narrow[i - 6] = (uint32_t)draw_border(&w->draw);
}

static void make_step(struct world *w, struct nonsense *x)
{
	uint32_t n = 1 + draw_below(&w->draw, MAX_STEP_SEQS);
	struct sched_seq *seq;

	x->entry.kind = ABI_STEP;
	x->entry.flags = draw_one_in(&w->draw, 6) ? ABI_STEP_APPEND_ONLY : 0;
	if (draw_one_in(&w->draw, 4))
		x->entry.flags |= draw_one_in(&w->draw, 2) ? ABI_STEP_STREAM : ABI_STEP_WORDS;
	if (draw_one_in(&w->draw, 12)) {
		x->entry.flags |= ABI_STEP_TELL;
		x->entry.seq = draw_below(&w->draw, 4);
	}
	x->entry.arg = draw_below(&w->draw, N_WORDS);
	for (uint32_t i = 0; i < n; i++) {
		seq = hostile_any_seq(w, hostile_lane(w), true);
		if (!seq)
			break;
		if (i == 0)
			x->entry.layer = seq->next_layer;
		else if (seq->model->shape.n_layers != N_LAYERS && !draw_one_in(&w->draw, 8))
			break;
		else if (seq->next_layer != x->entry.layer && !draw_one_in(&w->draw, 8))
			break;
		else if (seq->handle == x->body.recs[0].seq && !draw_one_in(&w->draw, 8))
			break;
		x->body.recs[x->entry.count++] = valid_rec(w, seq);
	}
	if (x->entry.count && draw_one_in(&w->draw, 10))
		mutate_rec(w, &x->body.recs[draw_below(&w->draw, x->entry.count)]);
	x->entry.body_bytes = x->entry.count * (uint32_t)sizeof(*x->body.recs);
}

static void make_extend(struct world *w, struct nonsense *x)
{
	bool big = draw_one_in(&w->draw, w->tight ? 3 : 40);
	uint32_t many = draw_one_in(&w->draw, 3) ? 40 : 6;
	uint32_t n = 1 + draw_below(&w->draw, !big ? many : w->tight ? 500 : 2000);

	x->entry.kind = ABI_EXTEND;
	x->entry.count = n;
	if (draw_one_in(&w->draw, 2))
		x->entry.flags = 1 + draw_below(&w->draw, 3);
	for (uint32_t i = 0; i < n; i++) {
		x->body.words[i] = hostile_id(w);
		x->body.words[n + i] =
			i && !draw_one_in(&w->draw, 8) ? draw_below(&w->draw, i) : WORK_NONE;
	}
	x->entry.body_bytes = n * (x->entry.flags & ABI_EXTEND_PARENTS ? 8 : 4);
}

/* Of each sequence's tokens those before it. */
static void make_parents(struct world *w, const struct nonsense *x, uint32_t *parents)
{
	for (uint32_t s = 0; s < x->entry.count; s++)
		for (uint32_t i = 0; i < x->body.decode.seqs[s].n_new; i++)
			*parents++ = i && !draw_one_in(&w->draw, 60) ? draw_below(&w->draw, i)
								     : WORK_NONE;
}

/* Of a program's sequences, or of any; ids are mostly below the vocabulary. */
static void make_decode(struct world *w, struct nonsense *x)
{
	struct abi_decode *head = &x->body.decode.head;
	uint32_t n = 1 + draw_below(&w->draw, 3), n_ids = 0, n_rows = 0, *ids;

	x->entry.kind = ABI_DECODE;
	for (uint32_t i = 0; i < n; i++) {
		const struct sched_seq *seq = hostile_any_seq(w, hostile_lane(w), false);
		struct abi_decode_seq *rec = &x->body.decode.seqs[x->entry.count];

		if (!seq || (!seq->model->program && !draw_one_in(&w->draw, 8)))
			continue;
		rec->seq = seq->handle;
		rec->n_new = 1 + draw_below(&w->draw, draw_one_in(&w->draw, 8) ? 300 : 20);
		rec->first_wanted = draw_below(&w->draw, rec->n_new + 1);
		n_ids += rec->n_new;
		n_rows += rec->n_new - rec->first_wanted;
		x->entry.count++;
	}
	*head = (struct abi_decode){.arena = 2, .want = draw_below(&w->draw, 16)};
	head->n_top = head->want & ABI_WANT_TOP ? 1 + draw_below(&w->draw, ABI_TOP_MAX) : 0;
	head->stride = lane_program_row(head->want);
	head->out = fit(w, n_rows ? n_rows : 1, head->stride, head->stride);
	if (draw_one_in(&w->draw, 10))
		head->out = draw_one_in(&w->draw, 2) ? ARENA_BYTES - draw_below(&w->draw, 2000)
						     : draw_border(&w->draw);
	if (draw_one_in(&w->draw, 20))
		head->stride = (uint32_t)draw_border(&w->draw);
	ids = (uint32_t *)(void *)&x->body.decode.seqs[x->entry.count];
	for (uint32_t i = 0; i < n_ids; i++)
		ids[i] = draw_one_in(&w->draw, 500) ? (uint32_t)draw_border(&w->draw)
						    : draw_below(&w->draw, PROGRAM_VOCAB);
	if (draw_one_in(&w->draw, 4)) {
		x->entry.flags = ABI_EXTEND_PARENTS;
		make_parents(w, x, ids + n_ids);
		ids += n_ids;
	}
	x->entry.body_bytes = (uint32_t)((uint8_t *)(ids + n_ids) - (uint8_t *)head);
}

static void make_accept(struct world *w, struct nonsense *x, const struct sched_seq *seq)
{
	uint32_t last = WORK_NONE, n_live = seq ? store_seq_n_live(seq->store) : 0;

	x->entry.kind = ABI_ACCEPT;
	for (uint32_t i = 0; i < n_live; i++) {
		uint32_t parent = seq->parents ? seq->parents[i] : i - 1;

		if (parent != last || draw_one_in(&w->draw, 3))
			continue;
		x->body.words[x->entry.count++] = last = i;
	}
	x->entry.body_bytes = x->entry.count * 4;
}

static void mutate_entry(struct world *w, struct nonsense *x)
{
	uint64_t any = draw_border(&w->draw);

	switch (draw_below(&w->draw, 10)) {
	case 0:
		x->entry.kind = (uint32_t)any;
		break;
	case 1:
		x->entry.flags = (uint32_t)any;
		break;
	case 2:
		x->entry.seq = hostile_any_handle(w);
		break;
	case 3:
		x->entry.arg = any;
		break;
	case 4:
		x->entry.layer = (uint32_t)any;
		break;
	case 5:
		x->entry.count = (uint32_t)any;
		break;
	case 6:
		x->entry.body = (uint32_t)any;
		break;
	case 7:
		x->entry.body_bytes = (uint32_t)any;
		break;
	case 8:
		x->entry.ticket = any;
		break;
	default: /* count and body agree, the ids are what lies there */
		x->entry.count = draw_below(&w->draw, 70000);
		x->entry.body_bytes = x->entry.count * (draw_one_in(&w->draw, 2) ? 4 : 8);
	}
}

/* What may come next for a sequence, most of the time. */
static uint32_t next_kind(struct world *w, const struct sched_seq *seq)
{
	if (draw_one_in(&w->draw, 8))
		return draw_below(&w->draw, ABI_N_KINDS);
	if (!seq || seq->voided)
		return ABI_TRIM;
	if (seq->computed)
		return ABI_ACCEPT;
	if (seq->model->program && !draw_one_in(&w->draw, 6))
		return ABI_DECODE;
	if (store_seq_n_live(seq->store))
		return ABI_STEP;
	return draw_one_in(&w->draw, 6)	  ? ABI_FORK
	       : draw_one_in(&w->draw, 6) ? ABI_SPARSE
	       : draw_one_in(&w->draw, 6) ? ABI_TRIM
					  : ABI_EXTEND;
}

static void make_sparse(struct world *w, struct nonsense *x)
{
	const struct abi_sparse wish = {
		.tau = draw_below(&w->draw, 110) / 100.0,
		.stride = draw_one_in(&w->draw, 8) ? draw_below(&w->draw, 20) : 8,
		.block_tokens = 32u << draw_below(&w->draw, 4),
		.sink_blocks = draw_below(&w->draw, 3),
		.recent_blocks = draw_one_in(&w->draw, 8) ? UINT32_MAX : draw_below(&w->draw, 3),
	};

	x->entry.kind = ABI_SPARSE;
	x->entry.body_bytes = sizeof(wish);
	memcpy(&x->body, &wish, sizeof(wish));
}

static void make_any(struct world *w, struct nonsense *x)
{
	const struct sched_seq *seq = hostile_any_seq(w, hostile_lane(w), false);

	x->entry = (struct abi_entry){.ticket = w->hostile.ticket, .seq = seq ? seq->handle : 0};
	switch (next_kind(w, seq)) {
	case ABI_STEP:
		make_step(w, x);
		break;
	case ABI_EXTEND:
		make_extend(w, x);
		break;
	case ABI_ACCEPT:
		make_accept(w, x, seq);
		break;
	case ABI_TRIM:
		x->entry.kind = ABI_TRIM;
		if (seq)
			x->entry.arg = store_seq_n_tokens(seq->store) -
				       draw_below(&w->draw, store_seq_n_tokens(seq->store) + 1) /
					       (draw_one_in(&w->draw, 4) ? 1 : 8);
		break;
	case ABI_FORK:
		x->entry.kind = ABI_FORK;
		break;
	case ABI_SPARSE:
		make_sparse(w, x);
		break;
	case ABI_DECODE:
		make_decode(w, x);
		break;
	default:
		break;
	}
	x->entry.body = draw_below(&w->draw, (ABI_BODY_ARENA_BYTES - x->entry.body_bytes) / 8) * 8;
}

void hostile_entry(struct world *w)
{
	static struct nonsense x; /* large */
	struct hostile *hostile = &w->hostile;
	uint32_t room = ABI_BODY_ARENA_BYTES;

	hostile->ticket++;
	make_any(w, &x);
	room -= x.entry.body;
	memcpy(hostile->lane->bodies + x.entry.body, &x.body,
	       x.entry.body_bytes < room ? x.entry.body_bytes : room);
	if (draw_one_in(&w->draw, 12))
		mutate_entry(w, &x);
	hostile->lane->entries[ring_slot(hostile->ticket)] = x.entry;
	ring_publish(hostile->lane, hostile->ticket);
	hostile->n_entries++;
}

/* ---- the hostile session: scribbling -------------------------------------------------------- */

void hostile_scribble_arena(struct world *w)
{
	static const uint32_t bad[] = {0x7fc00000, 0x7f800000, 0xff800000,
				       0x7f7fffff, 1,	       0x7fc07fc0};
	uint32_t *words = (uint32_t *)(void *)w->hostile.arena;
	uint32_t at = draw_below(&w->draw, ARENA_BYTES / 4 - 4096);
	uint32_t with = bad[draw_below(&w->draw, sizeof(bad) / sizeof(*bad))];

	if (draw_one_in(&w->draw, 2)) {
		draw_fill(&w->draw, words + at, 4096);
		return;
	}
	for (uint32_t i = 0; i < 4096; i++)
		words[at + i] = with;
}

void hostile_scribble_words(struct world *w)
{
	struct abi_lane *lane = w->hostile.lane;
	uint32_t slot = draw_below(&w->draw, ABI_LANE_SLOTS);

	switch (draw_below(&w->draw, 10)) {
	case 0:
		atomic_store(&lane->ready, draw_border(&w->draw));
		break;
	case 6:
		atomic_store(&lane->ready_words[draw_below(&w->draw, N_WORDS)],
			     draw_border(&w->draw));
		break;
	case 7:
		atomic_store(&lane->done_words[draw_below(&w->draw, ABI_LANE_WORDS)],
			     draw_border(&w->draw));
		break;
	case 1:
		atomic_store(&lane->sleepers, (uint32_t)draw_border(&w->draw));
		break;
	case 2:
		atomic_store(&lane->notify, (uint32_t)draw_border(&w->draw));
		break;
	case 3:
		atomic_store(draw_one_in(&w->draw, 2) ? &lane->done : &lane->soon,
			     draw_border(&w->draw));
		break;
	case 4:
		draw_fill(&w->draw, &lane->completions[slot], sizeof(lane->completions[slot]));
		break;
	case 5:
		draw_fill(&w->draw, &lane->entries[slot], sizeof(lane->entries[slot]));
		break;
	default:
		draw_fill(&w->draw,
			  lane->bodies + draw_below(&w->draw, ABI_BODY_ARENA_BYTES - 4096), 4096);
	}
}
