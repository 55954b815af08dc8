/*
 * lane_fuzz.c - a session whose shared memory is nonsense, beside two that must not notice.
 *
 *      hostile   domain 1000   its lane is scribbled over between rounds; its entries are valid but for a field
 *      friend    domain 1000   shares a prefix with it that the friend computed
 *      stranger  domain 2000   uses the very token ids that the hostile one uses
 *
 * Q is zero, so that attention is the mean of V over the path, and V is made of a hash of all tokens up to it: a foreign or
 * stale row shows in the mean, and so does a NaN of the hostile session's. Nobody must read or write outside the
 * hostile session's arena, which lies between pages that cannot be touched.
 */
#include "lane_honest.h"

#include "daemon/passes.h"
#include "daemon/sched_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define N_WORDS 4 /* pairs that steps have: few, so that two have the same */
#define GUARD_BYTES 65536u
#define ARENA_BYTES (256u << 10)
#define HOSTILE_LANE 2
#define MAX_STEP_SEQS 4
#define SECONDS 3
#define MAX_TURNS 200000
#define TURNS_A_CHECK 8

struct hostile {
	struct client c; /* its lane and arena of number 1 are left as they are */
	struct abi_lane *lane; /* owned; number 2 */
	uint8_t *arena; /* owned, between guards; number 2 */
	int notify[2]; /* owned */
	uint64_t ticket;
	uint32_t other_model;
	uint64_t n_entries, n_lanes, n_done[ABI_N_KINDS];
};

struct world {
	bool tight; /* paths are longer than the pool, and go through a stage */
	struct harness h;
	struct draw draw;
	struct hostile hostile;
	struct lane_honest honest[2]; /* the friend, the stranger */
};

/* ---- the hostile session: its requests ------------------------------------------------------------------- */

/* Goes the rounds until the request is back, which may be at the end of a wait. */
static int hostile_call(struct world *w, struct sched_request *rq)
{
	rq->session = w->hostile.c.session;
	return harness_call(&w->h, rq);
}

static void lane_make(struct world *w)
{
	struct hostile *x = &w->hostile;
	struct sched_request rq = {.verb = SCHED_LANE_ADD};

	x->lane = mmap(NULL, sizeof(*x->lane), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_ptr_not_equal(x->lane, MAP_FAILED);
	x->ticket = 0;
	x->n_lanes++;
	rq.in.lane.lane = HOSTILE_LANE;
	rq.in.lane.shared = x->lane;
	rq.in.lane.notify_fd = x->notify[0];
	assert_int_equal(hostile_call(w, &rq), 0);
}

/* Its sequences go with it, whatever is in flight. */
static void lane_unmake(struct world *w)
{
	struct sched_request rq = {.verb = SCHED_LANE_REMOVE, .in.lane.lane = HOSTILE_LANE};

	assert_int_equal(hostile_call(w, &rq), 0);
	munmap(w->hostile.lane, sizeof(*w->hostile.lane));
}

static void arena_make(struct world *w)
{
	uint8_t *map = mmap(NULL, ARENA_BYTES + 2 * GUARD_BYTES, PROT_NONE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sched_request rq = {.verb = SCHED_ARENA_ADD};

	assert_ptr_not_equal(map, MAP_FAILED);
	w->hostile.arena = map + GUARD_BYTES;
	assert_int_equal(mprotect(w->hostile.arena, ARENA_BYTES, PROT_READ | PROT_WRITE), 0);
	rq.in.arena.arena = 2;
	rq.in.arena.base = w->hostile.arena;
	rq.in.arena.bytes = ARENA_BYTES;
	assert_int_equal(hostile_call(w, &rq), 0);
}

static void arena_unmake(struct world *w)
{
	struct sched_request rq = {.verb = SCHED_ARENA_REMOVE, .in.arena.arena = 2};

	assert_int_equal(hostile_call(w, &rq), 0);
	munmap(w->hostile.arena - GUARD_BYTES, ARENA_BYTES + 2 * GUARD_BYTES);
}

static uint32_t other_model(struct world *w)
{
	struct sched_request rq = {.verb = SCHED_MODEL_OPEN};

	strcpy(rq.in.model.name, "other");
	rq.in.model.shape = (struct work_shape){.n_layers = 3,
						.n_q_heads = 4,
						.n_kv_heads = w->tight ? 4 : 2,
						.head_dim = w->tight ? 64 : 32,
						.page_tokens = 32,
						.dtype = WORK_BF16};
	assert_int_equal(hostile_call(w, &rq), 0);
	return rq.out.model.model;
}

static void hostile_start(struct world *w)
{
	struct hostile *x = &w->hostile;

	client_start(&x->c, &w->h, 1000, &LANE_SHAPE, 1 << 20);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x->notify), 0);
	x->other_model = other_model(w);
	lane_make(w);
	arena_make(w);
}

/* With whatever is in flight. */
static void hostile_end(struct world *w)
{
	struct hostile *x = &w->hostile;

	client_end(&x->c);
	munmap(x->lane, sizeof(*x->lane));
	munmap(x->arena - GUARD_BYTES, ARENA_BYTES + 2 * GUARD_BYTES);
	close(x->notify[0]);
	close(x->notify[1]);
}

static uint32_t hostile_id(struct world *w)
{
	return draw_below(&w->draw, 3);
}

static void hostile_open(struct world *w)
{
	uint32_t ids[200], n_base = draw_below(&w->draw, N_BASE + 1);
	struct sched_request rq = {.verb = SCHED_SEQ_OPEN};

	rq.in.open.n_tokens = n_base + 1 + draw_below(&w->draw, 100);
	for (uint32_t i = 0; i < rq.in.open.n_tokens; i++)
		ids[i] = i < n_base ? BASE_ID + i : hostile_id(w);
	rq.in.open.tokens = ids;
	rq.in.open.lane = draw_one_in(&w->draw, 8) ? 1 : HOSTILE_LANE;
	rq.in.open.model = draw_one_in(&w->draw, 4) ? w->hostile.other_model : w->hostile.c.model;
	rq.in.open.salt = draw_one_in(&w->draw, 8) ? draw_below(&w->draw, 3) : 0;
	hostile_call(w, &rq);
}

/* One of its sequences, as the scheduler knows it, or NULL. */
static struct sched_seq *any_seq(struct world *w, const struct sched_lane *lane, bool live)
{
	struct sched_seq *seq, *found = NULL;
	uint32_t n = 0;

	LIST_FOREACH (seq, &w->hostile.c.session->seqs, link) {
		if ((!lane || seq->lane == lane) && (!live || store_seq_n_live(seq->store)) &&
		    draw_one_in(&w->draw, ++n))
			found = seq;
	}
	return found;
}

static uint64_t any_handle(struct world *w)
{
	const struct sched_seq *seq = any_seq(w, NULL, false);

	if (draw_one_in(&w->draw, 20))
		return w->honest[draw_below(&w->draw, 2)].seqs[0].handle;
	if (!seq || draw_one_in(&w->draw, 20))
		return draw_border(&w->draw);
	return seq->handle;
}

static void hostile_request(struct world *w)
{
	struct sched_request rq = {.in.seq = {any_handle(w), draw_below(&w->draw, 200000)}};

	switch (draw_below(&w->draw, 6)) {
	case 0:
		rq.verb = SCHED_SEQ_CLOSE;
		break;
	case 1:
		rq.verb = SCHED_SEQ_PIN;
		break;
	case 2:
		rq = (struct sched_request){.verb = SCHED_UNPIN,
					    .in.pin = draw_below(&w->draw, 1000)};
		break;
	default:
		rq.verb = SCHED_SEQ_WAIT;
	}
	hostile_call(w, &rq);
}

/* ---- the hostile session: its entries ---------------------------------------------------------------------- */

struct nonsense {
	struct abi_entry entry;
	union {
		uint32_t words[ABI_BODY_MAX_BYTES / 4];
		struct abi_step_seq recs[MAX_STEP_SEQS];
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
		rec->seq = any_handle(w);
	else if (i < 6)
		*wide[i] = draw_one_in(&w->draw, 3) ? ARENA_BYTES - draw_below(&w->draw, 300)
						    : draw_border(&w->draw);
	else
		*narrow[i - 6] = (uint32_t)draw_border(&w->draw);
}

static const struct sched_lane *hostile_lane(struct world *w)
{
	const struct sched_lane *lane;

	LIST_FOREACH (lane, &w->hostile.c.session->lanes, session_link) {
		if (lane->number == HOSTILE_LANE)
			return lane;
	}
	fail();
	return NULL;
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
		seq = any_seq(w, hostile_lane(w), true);
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
		x->entry.seq = any_handle(w);
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
	const struct sched_seq *seq = any_seq(w, hostile_lane(w), false);

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
	default:
		break;
	}
	x->entry.body = draw_below(&w->draw, (ABI_BODY_ARENA_BYTES - x->entry.body_bytes) / 8) * 8;
}

static void hostile_entry(struct world *w)
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

/* ---- the hostile session: scribbling ------------------------------------------------------------------------- */

/* Floats that nobody likes, among others. */
static void scribble_arena(struct world *w)
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

static void scribble_words(struct world *w)
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

/* The one word that ends a lane when it makes no sense; then a new one. */
static void scribble_submitted(struct world *w)
{
	uint64_t near = w->hostile.ticket + draw_below(&w->draw, 600) - 300;

	atomic_store(&w->hostile.lane->submitted,
		     draw_one_in(&w->draw, 2) ? near : draw_border(&w->draw));
	for (int i = 0; i < 100; i++)
		sched_round(w->h.sched);
	lane_unmake(w);
	lane_make(w);
}

static void hostile_act(struct world *w)
{
	uint32_t what = draw_below(&w->draw, 400);

	if (what == 0) {
		scribble_submitted(w);
	} else if (what == 1) {
		arena_unmake(w);
		arena_make(w);
	} else if (what < 30) {
		hostile_open(w);
	} else if (what < 60) {
		hostile_request(w);
	} else if (what < 90) {
		scribble_arena(w);
	} else if (what < 120) {
		scribble_words(w);
	} else {
		/* A ring that is not full, most of the time. */
		if (w->hostile.ticket - hostile_lane(w)->accepted < ABI_LANE_SLOTS)
			hostile_entry(w);
	}
}

/* As a stream would; or it never comes, until something else lets the lane go. */
static void write_ready(struct world *w)
{
	const struct sched_lane *lane = hostile_lane(w);

	if (!lane->awaited || draw_one_in(&w->draw, 6))
		return;
	if (lane->word < ABI_LANE_WORDS)
		atomic_store(&w->hostile.lane->ready_words[lane->word], 1);
	else
		atomic_store(&w->hostile.lane->ready, lane->accepted);
}

/* And counts what has gone well; the completion may be scribbled over, which is of no matter. */
static void rounds_until_served(struct world *w)
{
	struct hostile *x = &w->hostile;
	const struct sched_lane *lane = hostile_lane(w);

	for (int i = 0; i < 1000 && (lane->accepted < x->ticket || lane->parked); i++) {
		write_ready(w);
		sched_round(w->h.sched);
	}
	uint32_t slot = ring_slot(x->ticket), kind = x->lane->entries[slot].kind;

	if (kind < ABI_N_KINDS && x->lane->completions[slot].status == 0)
		x->n_done[kind]++;
}

static void hostile_turn(struct world *w)
{
	uint32_t n = 1 + draw_below(&w->draw, 12), n_rounds = draw_below(&w->draw, 8);

	while (n--) {
		hostile_act(w);
		if (!draw_one_in(&w->draw, 4))
			rounds_until_served(w);
	}
	while (n_rounds--)
		sched_round(w->h.sched);
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

/* What is on its way through the stage has references of its own. */
static void assert_valid(const struct world *w)
{
	char error[200] = "";

	if (passes_busy(&w->h.sched->passes))
		return;
	if (store_validate(w->h.sched->store, error, sizeof(error)) < 0)
		fail_msg("the store: %s", error);
}

/* An extent for small pages, of which the stranger finds some whatever the others hold; two for large ones, of which 21 are in one;
 * the stage. */
static void make_tight(struct config *config)
{
	config->max_seqs = 5;
	config->max_seq_tokens = 1500;
	config->pool_bytes = 4 * config->extent_bytes;
	config->stage_bytes = config->extent_bytes;
	config->host_tier_bytes = 4 * config->extent_bytes;
	config->stage_block = 64;
	config->domain_bytes = 0;
}

static void world_init(struct world *w)
{
	draw_init(&w->draw, SECONDS);
	harness_init(&w->h);
	w->h.config.pool_bytes = 8 * w->h.config.extent_bytes;
	w->h.config.domain_bytes = 384 << 10;
	w->h.config.max_seqs = 12;
	w->h.config.max_seq_tokens = 1 << 17;
	w->h.config.claim_ms = 1;
	w->h.config.n_threads = 1;
	w->h.config.prefill_rows = 64;
	if (w->tight)
		make_tight(&w->h.config);
	w->h.stepped = true;
	harness_start(&w->h);
	for (int i = 0; i < 2; i++) {
		client_start(&w->honest[i].c, &w->h, 1000 * (i + 1), &LANE_SHAPE, 1 << 20);
		w->honest[i].is_friend = i == 0;
		lane_honest_open(&w->draw, &w->honest[i], &w->honest[i].seqs[0], 1);
		assert_int_not_equal(w->honest[i].seqs[0].handle, 0);
	}
	hostile_start(w);
}

/* Nothing is left of anybody once pins are over and everything that can go is evicted. */
static void world_done(struct world *w)
{
	struct sched_request evict = {.verb = SCHED_EVICT};

	hostile_end(w);
	assert_valid(w);
	for (int i = 0; i < 2; i++) {
		lane_honest_turn(&w->draw, &w->honest[i]);
		client_end(&w->honest[i].c);
	}
	usleep(1000); /* pins hold for 200 us at most */
	sched_round(w->h.sched);
	sched_round(w->h.sched);
	do
		assert_int_equal(harness_call(&w->h, &evict), 0);
	while (evict.out.evict.more);
	struct sched_status end = harness_status(&w->h);

	assert_int_equal(end.store.n_seqs + end.store.n_claims + end.store.n_pins, 0);
	assert_int_equal(end.store.n_pages, 0);
	if (!w->tight) /* host memory has it yet */
		assert_int_equal(end.store.n_tokens + end.store.n_nodes, 0);
	assert_int_equal(end.n_lanes + end.n_sessions, 0);
	assert_valid(w);
	harness_stop(&w->h);
}

static void hurt_nobody(bool tight)
{
	struct world *w = calloc(1, sizeof(*w));
	uint32_t n = 0;

	w->tight = tight;
	world_init(w);
	for (; n < MAX_TURNS && draw_goes_on(&w->draw); n++) {
		hostile_turn(w);
		lane_honest_turn(&w->draw, &w->honest[draw_below(&w->draw, 2)]);
		if (n % TURNS_A_CHECK == 0)
			assert_valid(w);
	}
	print_message("%u turns, %llu entries in %llu lanes, %llu failed; friend %llu steps, "
		      "%llu refused; stranger %llu\n",
		      n, (unsigned long long)w->hostile.n_entries,
		      (unsigned long long)w->hostile.n_lanes,
		      (unsigned long long)harness_status(&w->h).entries_failed,
		      (unsigned long long)w->honest[0].n_steps,
		      (unsigned long long)w->honest[0].n_refused,
		      (unsigned long long)w->honest[1].n_steps);
	for (int kind = 0; kind < ABI_N_KINDS; kind++)
		print_message("kind %d: %llu went well\n", kind,
			      (unsigned long long)w->hostile.n_done[kind]);
	print_message("%llu passes\n", (unsigned long long)harness_status(&w->h).n_passes);
	assert_true(w->honest[1].n_steps > 0);
	world_done(w);
	free(w);
}

static void nonsense_in_a_lane_hurts_nobody_else(void **state)
{
	(void)state;
	hurt_nobody(false);
}

static void nor_where_kv_is_below_the_pool(void **state)
{
	(void)state;
	hurt_nobody(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nonsense_in_a_lane_hurts_nobody_else),
		cmocka_unit_test(nor_where_kv_is_below_the_pool),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
