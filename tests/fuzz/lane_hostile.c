/*
 * lane_hostile.c - the hostile session's lane, arena and requests.
 */
#include "lane_program.h"

#include "daemon/control/arenas.h"
#include "daemon/control/lanes.h"
#include "daemon/control/pins.h"
#include "daemon/control/seqs.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/seq/wait.h"
#include "daemon/sched/verbs/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GUARD_BYTES 65536u
#define HOSTILE_LANE 2

/* Goes the rounds until the request is back, which may be at the end of a wait. */
static int hostile_call(struct world *w, const struct verb *verb, void *room)
{
	struct sched_request rq = {.serve = verb->serve,
				   .session = w->hostile.c.session,
				   .room = room};

	return harness_call(&w->h, &rq);
}

void hostile_lane_make(struct world *w)
{
	struct hostile *x = &w->hostile;
	struct lane_call call = {.lane = HOSTILE_LANE, .notify_fd = x->notify[0]};

	x->lane = mmap(NULL, sizeof(*x->lane), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_ptr_not_equal(x->lane, MAP_FAILED);
	x->ticket = 0;
	x->n_lanes++;
	call.shared = x->lane;
	assert_int_equal(hostile_call(w, &verb_lane_seal, &call), 0);
}

void hostile_lane_unmake(struct world *w)
{
	struct lane_call call = {.lane = HOSTILE_LANE};

	assert_int_equal(hostile_call(w, &verb_lane_free, &call), 0);
	munmap(w->hostile.lane, sizeof(*w->hostile.lane));
}

void hostile_arena_make(struct world *w)
{
	uint8_t *map = mmap(NULL, ARENA_BYTES + 2 * GUARD_BYTES, PROT_NONE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct arena_call call = {.arena = 2, .bytes = ARENA_BYTES};

	assert_ptr_not_equal(map, MAP_FAILED);
	w->hostile.arena = map + GUARD_BYTES;
	assert_int_equal(mprotect(w->hostile.arena, ARENA_BYTES, PROT_READ | PROT_WRITE), 0);
	call.base = w->hostile.arena;
	assert_int_equal(hostile_call(w, &verb_arena_new, &call), 0);
}

void hostile_arena_unmake(struct world *w)
{
	struct arena_call call = {.arena = 2};

	assert_int_equal(hostile_call(w, &verb_arena_free, &call), 0);
	munmap(w->hostile.arena - GUARD_BYTES, ARENA_BYTES + 2 * GUARD_BYTES);
}

static uint32_t other_model(struct world *w)
{
	struct model_call call = {.name = "other",
				  .shape = {.n_layers = 3,
					    .n_q_heads = 4,
					    .n_kv_heads = w->tight ? 4 : 2,
					    .head_dim = w->tight ? 64 : 32,
					    .page_tokens = 32,
					    .dtype = WORK_BF16}};

	assert_int_equal(hostile_call(w, &verb_model_open, &call), 0);
	return call.model;
}

void hostile_start(struct world *w)
{
	struct hostile *x = &w->hostile;

	client_start(&x->c, &w->h, 1000, &LANE_SHAPE, 1 << 20);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x->notify), 0);
	x->other_model = other_model(w);
	x->program_model = lane_program_open(w);
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
	struct seq_open_call open = {0};

	open.n_tokens = n_base + 1 + draw_below(&w->draw, 100);
	for (uint32_t i = 0; i < open.n_tokens; i++)
		ids[i] = i < n_base ? BASE_ID + i : hostile_id(w);
	open.lane = draw_one_in(&w->draw, 8) ? 1 : HOSTILE_LANE;
	open.model = draw_one_in(&w->draw, 4)	? w->hostile.other_model
		     : draw_one_in(&w->draw, 4) ? w->hostile.program_model
						: w->hostile.c.model;
	open.salt = draw_one_in(&w->draw, 8) ? draw_below(&w->draw, 3) : 0;
	open.tokens = client_tokens(ids, open.n_tokens);
	hostile_call(w, &verb_seq_open, &open);
	free(open.tokens);
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
	uint64_t seq = hostile_any_handle(w), for_ns = draw_below(&w->draw, 200000), pin;
	struct pin_call pin_call = {.what = seq, .for_ns = for_ns};
	struct seq_wait_call wait = {.seq = seq, .for_ns = for_ns};

	switch (draw_below(&w->draw, 6)) {
	case 0:
		hostile_call(w, &verb_seq_close, &seq);
		break;
	case 1:
		hostile_call(w, &verb_seq_pin, &pin_call);
		break;
	case 2:
		pin = draw_below(&w->draw, 1000);
		hostile_call(w, &verb_unpin, &pin);
		break;
	default:
		hostile_call(w, &verb_seq_wait, &wait);
	}
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
