/*
 * lane_hostile.c - the hostile session's lane, arena and requests.
 */
#include "lane_hostile.h"

#include "daemon/control/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GUARD_BYTES 65536u
#define HOSTILE_LANE 2

/* Goes the rounds until the request is back, which may be at the end of a wait. */
static int hostile_call(struct world *w, struct sched_request *rq)
{
	rq->session = w->hostile.c.session;
	return harness_call(&w->h, rq);
}

void hostile_lane_make(struct world *w)
{
	struct hostile *x = &w->hostile;
	struct sched_request rq = {.serve = verb_lane_new.serve};

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

void hostile_lane_unmake(struct world *w)
{
	struct sched_request rq = {.serve = verb_lane_free.serve, .in.lane.lane = HOSTILE_LANE};

	assert_int_equal(hostile_call(w, &rq), 0);
	munmap(w->hostile.lane, sizeof(*w->hostile.lane));
}

void hostile_arena_make(struct world *w)
{
	uint8_t *map = mmap(NULL, ARENA_BYTES + 2 * GUARD_BYTES, PROT_NONE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sched_request rq = {.serve = verb_arena_new.serve};

	assert_ptr_not_equal(map, MAP_FAILED);
	w->hostile.arena = map + GUARD_BYTES;
	assert_int_equal(mprotect(w->hostile.arena, ARENA_BYTES, PROT_READ | PROT_WRITE), 0);
	rq.in.arena.arena = 2;
	rq.in.arena.base = w->hostile.arena;
	rq.in.arena.bytes = ARENA_BYTES;
	assert_int_equal(hostile_call(w, &rq), 0);
}

void hostile_arena_unmake(struct world *w)
{
	struct sched_request rq = {.serve = verb_arena_free.serve, .in.arena.arena = 2};

	assert_int_equal(hostile_call(w, &rq), 0);
	munmap(w->hostile.arena - GUARD_BYTES, ARENA_BYTES + 2 * GUARD_BYTES);
}

static uint32_t other_model(struct world *w)
{
	struct sched_request rq = {.serve = verb_model_open.serve};

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

void hostile_start(struct world *w)
{
	struct hostile *x = &w->hostile;

	client_start(&x->c, &w->h, 1000, &LANE_SHAPE, 1 << 20);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x->notify), 0);
	x->other_model = other_model(w);
	hostile_lane_make(w);
	hostile_arena_make(w);
}

void hostile_end(struct world *w)
{
	struct hostile *x = &w->hostile;

	client_end(&x->c);
	munmap(x->lane, sizeof(*x->lane));
	munmap(x->arena - GUARD_BYTES, ARENA_BYTES + 2 * GUARD_BYTES);
	close(x->notify[0]);
	close(x->notify[1]);
}

uint32_t hostile_id(struct world *w)
{
	return draw_below(&w->draw, 3);
}

void hostile_open(struct world *w)
{
	uint32_t ids[200], n_base = draw_below(&w->draw, N_BASE + 1);
	struct sched_request rq = {.serve = verb_seq_open.serve};

	rq.in.open.n_tokens = n_base + 1 + draw_below(&w->draw, 100);
	for (uint32_t i = 0; i < rq.in.open.n_tokens; i++)
		ids[i] = i < n_base ? BASE_ID + i : hostile_id(w);
	rq.in.open.tokens = ids;
	rq.in.open.lane = draw_one_in(&w->draw, 8) ? 1 : HOSTILE_LANE;
	rq.in.open.model = draw_one_in(&w->draw, 4) ? w->hostile.other_model : w->hostile.c.model;
	rq.in.open.salt = draw_one_in(&w->draw, 8) ? draw_below(&w->draw, 3) : 0;
	hostile_call(w, &rq);
}

struct sched_seq *hostile_any_seq(struct world *w, const struct sched_lane *lane, bool live)
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

uint64_t hostile_any_handle(struct world *w)
{
	const struct sched_seq *seq = hostile_any_seq(w, NULL, false);

	if (draw_one_in(&w->draw, 20))
		return w->honest[draw_below(&w->draw, 2)].seqs[0].handle;
	if (!seq || draw_one_in(&w->draw, 20))
		return draw_border(&w->draw);
	return seq->handle;
}

void hostile_request(struct world *w)
{
	struct sched_request rq = {.in.seq = {hostile_any_handle(w), draw_below(&w->draw, 200000)}};

	switch (draw_below(&w->draw, 6)) {
	case 0:
		rq.serve = verb_seq_close.serve;
		break;
	case 1:
		rq.serve = verb_seq_pin.serve;
		break;
	case 2:
		rq = (struct sched_request){.serve = verb_unpin.serve,
					    .in.pin = draw_below(&w->draw, 1000)};
		break;
	default:
		rq.serve = verb_seq_wait.serve;
	}
	hostile_call(w, &rq);
}

const struct sched_lane *hostile_lane(struct world *w)
{
	const struct sched_lane *lane;

	LIST_FOREACH (lane, &w->hostile.c.session->lanes, session_link) {
		if (lane->number == HOSTILE_LANE)
			return lane;
	}
	fail();
	return NULL;
}
