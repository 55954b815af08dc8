/*
 * streamed.c - the way of steps whose paths are not all on the device.
 *
 * While something is under way its lanes are STREAMING, and only they go on with it, a leg at a
 * turn. If any of the lanes' steps ends early all is given up: the others wait for their turn
 * again, and begin anew.
 *
 *      members      0: a b c d e x        legs    1  what all share on the device: a b
 *                   1: a b c d e y z                2  the same, staged: c d | e
 *                                                   3  each member's own, staged or not: x, y z
 *                                                   4  all: tails; live tokens, which are appended
 */
#include "streamed_impl.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/step/step_end.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

#define STATE_BYTES (UINT64_C(256) << 20) /* of all members' rows */
#define ROWS_MAX 8192u
#define MEMBERS_MAX 256u
#define GROUP_ROWS 16u /* a member of several has so many at most */

/* ---- which steps ---------------------------------------------------------------------------- */

static bool is_long(const struct step *step)
{
	for (uint32_t i = 0; i < step->n_parts; i++)
		if (!store_seq_is_resident(step->parts[i].seq->store))
			return true;
	return false;
}

void streamed_init(struct streamed *p, struct sched_core *core)
{
	*p = (struct streamed){.core = core, .slowness.times = STREAMED_UNSEEN};
}

void streamed_find(struct streamed *p)
{
	struct sched_lane *lane;

	if (!streamed_is_needed(p))
		return;
	TAILQ_FOREACH (lane, &p->core->lanes, link) {
		bool decodes = lane->state == STEP_RUNNABLE || lane->state == STEP_HELD;

		if ((!decodes && lane->state != STEP_WAITING_TURN) ||
		    lane->step.kind == STEP_STREAMED || !is_long(&lane->step))
			continue;
		lane->step.kind = STEP_STREAMED;
		if (decodes)
			step_move(&p->core->steps, lane, STEP_WAITING_TURN);
	}
}

/* Could all of the step be done together with others'? */
static bool may_join(const struct step *step)
{
	for (uint32_t i = 0; i < step->n_parts; i++) {
		const struct step_part *part = &step->parts[i];

		if (part->n_new > GROUP_ROWS || part->seq->parents || !part->io.o)
			return false;
	}
	return step->next_part == 0 && step->next_row == 0;
}

/* ---- members -------------------------------------------------------------------------------- */

static uint32_t rows_room(const struct sched_model *model)
{
	const struct work_shape *shape = &model->shape;
	uint64_t row_bytes = (uint64_t)shape->n_q_heads * (shape->head_dim + 2) * sizeof(float);
	uint64_t most = STATE_BYTES / row_bytes + 1;

	return (uint32_t)min_u64(most, ROWS_MAX);
}

static int member_add(struct streamed *p, struct sched_lane *lane, uint32_t part, uint32_t row,
		      uint32_t n_rows)
{
	uint32_t first_row = streamed_n_rows(p);
	/* one that never was has a gather of nothing */
	int r = GROW_ZEROED(p->members, p->members_room, p->n_members + 1);

	if (r < 0)
		return r;
	struct streamed_member *m = &p->members[p->n_members];

	m->lane = lane;
	m->part = &lane->step.parts[part];
	m->row = row;
	m->n_rows = n_rows;
	m->first_row = first_row;
	r = gather_begin(&m->gather, m->part->seq->store);
	p->n_members += r == 0;
	return r;
}

static void members_drop(struct streamed *p, uint32_t n_left)
{
	while (p->n_members > n_left)
		gather_end(&p->members[--p->n_members].gather);
}

/* Slices that two paths begin with. */
static uint32_t common(const struct gather *a, const struct gather *b)
{
	uint32_t n = min_u32(a->n_slices, b->n_slices), i = 0;

	while (i < n && (i < a->n_device) == (i < b->n_device) &&
	       !memcmp(&a->slices[i], &b->slices[i], sizeof(*a->slices)))
		i++;
	return i;
}

/* Does the last member's path begin with half of the first's at least? */
static bool is_alike(const struct streamed *p)
{
	const struct gather *first = &p->members[0].gather;

	return 2 * common(first, &p->members[p->n_members - 1].gather) >= first->n_slices;
}

/* All parts of a step; none of one that is not alike those that are there. */
static int step_join(struct streamed *p, struct sched_lane *lane)
{
	uint32_t n_before = p->n_members;
	int r = 0;

	for (uint32_t i = 0; i < lane->step.n_parts && r == 0; i++) {
		r = member_add(p, lane, i, 0, lane->step.parts[i].n_new);
		if (r == 0 && n_before > 0 && !is_alike(p))
			r = -EXDEV;
	}
	if (r < 0)
		members_drop(p, n_before);
	return r;
}

static bool has_room_for(const struct streamed *p, const struct step *step)
{
	uint32_t n_rows = streamed_n_rows(p);

	for (uint32_t i = 0; i < step->n_parts; i++)
		n_rows += step->parts[i].n_new;
	return n_rows <= rows_room(p->model) && p->n_members + step->n_parts <= MEMBERS_MAX;
}

static void others_join(struct streamed *p, const struct sched_lane *leader)
{
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->lanes, link) {
		const struct step *step = &lane->step;

		if (lane != leader && lane->state == STEP_WAITING_TURN &&
		    step->kind == STEP_STREAMED && step->model == p->model &&
		    step->layer == p->layer && may_join(step) && has_room_for(p, step))
			step_join(p, lane);
	}
}

/* Rows see each other in one leg. */
static uint32_t rows_in_time(const struct streamed *p)
{
	uint32_t most = rows_room(p->model);

	while (most > 1 && streamed_leg_tokens(p, most) < most)
		most /= 2;
	return most;
}

/* The next rows of a part of a step that is alone. */
static int slice_join(struct streamed *p, struct sched_lane *lane)
{
	const struct step *step = &lane->step;
	const struct step_part *part = &step->parts[step->next_part];
	uint32_t left = part->n_new - step->next_row, most = rows_in_time(p);

	return member_add(p, lane, step->next_part, step->next_row,
			  part->seq->parents || left < most ? left : most);
}

/* ---- what legs there are --------------------------------------------------------------------- */

static int leg_add(struct streamed *p, struct streamed_leg leg)
{
	int r = GROW(p->legs, p->legs_room, p->n_legs + 1);

	if (r == 0)
		p->legs[p->n_legs++] = leg;
	return r;
}

static uint32_t leg_rows(const struct streamed *p, const struct streamed_leg *leg)
{
	return leg->member == STREAMED_ALL ? streamed_n_rows(p) : p->members[leg->member].n_rows;
}

/* Lengthens a leg by what follows on its side of the device's end, as far as a cell has room for
 * what is seen of it, and the budget has time. Returns how many slices are seen. */
static uint32_t leg_fill(const struct streamed *p, const struct gather *g, uint32_t end,
			 struct streamed_leg *leg)
{
	bool staged = leg->kind == STREAMED_STAGED;
	uint32_t pos = leg->pos, any = p->model->shape.n_kv_heads, n_seen = 0, n_tokens = 0;
	uint32_t most_tokens = streamed_leg_tokens(p, leg_rows(p, leg));

	end = staged || end < g->n_device ? end : g->n_device;
	for (; leg->end < end; pos += g->slices[leg->end++].count) {
		if (!choice_has(p, any, pos))
			continue;
		n_tokens += g->slices[leg->end].count;
		if (n_seen > 0 && (n_tokens > most_tokens || (staged && n_seen == p->cell_pages)))
			break;
		n_seen++;
	}
	return n_seen;
}

/* Slices [begin, end) of a member's path: what is on the device in one go, the rest a cell at a
 * time. */
static int span_add(struct streamed *p, uint32_t member, uint32_t begin, uint32_t end)
{
	const struct gather *g = &p->members[member == STREAMED_ALL ? 0 : member].gather;
	uint32_t pos = streamed_tokens(g, 0, begin);
	int r = 0;

	while (begin < end && r == 0) {
		struct streamed_leg leg = {begin >= g->n_device ? STREAMED_STAGED : STREAMED_DEVICE,
					   member, begin, begin, pos};
		if (leg_fill(p, g, end, &leg) > 0)
			r = leg_add(p, leg);
		pos += streamed_tokens(g, begin, leg.end);
		begin = leg.end;
	}
	return r;
}

/* How much of the first's path all have. */
static uint32_t shared_slices(const struct streamed *p)
{
	uint32_t n = p->members[0].gather.n_slices;

	for (uint32_t i = 1; i < p->n_members; i++) {
		uint32_t c = common(&p->members[0].gather, &p->members[i].gather);

		n = min_u32(c, n);
	}
	return n;
}

/* What needs no copies goes before what does, where the rows are one member's: these have its time
 * too. */
static void rest_goes_ahead(struct streamed *p)
{
	struct streamed_leg rest = p->legs[p->n_legs - 1];
	uint32_t i = p->n_legs - 1;

	for (; i > 0 && p->legs[i - 1].kind == STREAMED_STAGED; i--)
		p->legs[i] = p->legs[i - 1];
	p->legs[i] = rest;
}

static int streamed_make(struct streamed *p)
{
	bool appends = p->members[0].part->io.o == 0; /* who only appends sees nothing */
	uint32_t n_shared = shared_slices(p);
	int r = appends ? 0 : span_add(p, STREAMED_ALL, 0, n_shared);

	for (uint32_t i = 0; i < p->n_members && r == 0 && !appends; i++)
		r = span_add(p, i, n_shared, p->members[i].gather.n_slices);
	if (r == 0)
		r = leg_add(p,
			    (struct streamed_leg){.kind = STREAMED_REST, .member = STREAMED_ALL});
	if (r == 0 && p->n_members == 1)
		rest_goes_ahead(p);
	return r;
}

/* ---- from the first leg to the last ---------------------------------------------------------- */

/* Nothing is under way any more: its lanes wait for their turn. */
static void give_up(struct streamed *p)
{
	struct step_queues *steps = &p->core->steps;
	struct sched_lane *lane;

	members_drop(p, 0);
	p->choice.sums = p->choice.made = p->choice.appended = false;
	p->choice.shares = (struct select_shares){0};
	p->n_legs = p->n_begun = p->n_ended = p->ask = 0;
	p->in_flight = false;
	while ((lane = step_first(steps, STEP_STREAMING)) != NULL)
		step_move(steps, lane, STEP_WAITING_TURN);
}

/* All of a lane's parts are members where it has company. */
static void members_begin(struct streamed *p)
{
	for (uint32_t i = 0; i < p->n_members; i++)
		if (p->members[i].lane->state != STEP_STREAMING)
			step_move(&p->core->steps, p->members[i].lane, STEP_STREAMING);
}

static int append_and_choose(struct streamed *p)
{
	int r = streamed_append(p);

	return r < 0 ? r : choice_make(p);
}

static int slice_begin(struct streamed *p, struct sched_lane *lane)
{
	p->model = lane->step.model;
	p->layer = lane->step.layer;
	stage_cut(p);
	p->rows_id++;
	p->n_filled = p->n_staged = p->n_asked = p->n_asked_slices = p->n_asked_pages = 0;
	p->n_legs = p->n_begun = p->n_ended = p->ask = 0;
	bool group = may_join(&lane->step) && has_room_for(p, &lane->step);
	int r = group ? step_join(p, lane) : slice_join(p, lane);

	if (r == 0 && group)
		others_join(p, lane);
	if (r == 0 && !group && choice_begin(p))
		r = append_and_choose(p);
	if (r == 0)
		r = streamed_make(p);
	if (r < 0)
		give_up(p);
	else
		members_begin(p);
	if (r == 0 && p->legs[0].kind == STREAMED_STAGED)
		stage_ask(p, 1); /* the others while the first leg is at work */
	return r;
}

/* Who has had less of the backend's time, or as much and has waited longer. */
static bool comes_first(const struct streamed *p, const struct sched_lane *a,
			const struct sched_lane *b)
{
	return turn_is_before(p->core, a, b) ||
	       (a->moved < b->moved && !turn_is_before(p->core, b, a));
}

/* What is under way goes on when what its next leg is about is there; else nothing else that is
 * streamed can begin. */
struct sched_lane *streamed_next_turn(struct streamed *p)
{
	const struct step_queues *steps = &p->core->steps;
	struct sched_lane *next = NULL, *lane;

	if (streamed_busy(p) && stage_is_ready(p))
		next = step_first(steps, STEP_STREAMING);
	TAILQ_FOREACH (lane, &steps->lanes[STEP_WAITING_TURN], state_link) {
		if (lane->step.kind == STEP_STREAMED && streamed_busy(p))
			continue;
		if (!next || comes_first(p, lane, next))
			next = lane;
	}
	return next;
}

/* Its lane's step fails, and with it what is under way. */
static void lane_fail(struct streamed *p, struct sched_lane *lane, int r)
{
	if (r == -EIO)
		core_fail(p->core);
	streamed_forget(p, lane);
	step_fail(p->core, lane,
		  outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
}

/* What the next leg reads on the device may have left it, for others of the same user's: all begins
 * anew then. */
static bool next_is_where_it_was(struct streamed *p)
{
	if (p->legs[p->n_begun].kind != STREAMED_DEVICE)
		return true;
	for (uint32_t i = 0; i < p->n_members; i++)
		if (!gather_holds(&p->members[i].gather))
			return false;
	return true;
}

void streamed_begin(struct streamed *p, struct sched_lane *lane)
{
	int r = 0;

	if (lane->state == STEP_STREAMING)
		step_move(&p->core->steps, lane, STEP_STREAMING);
	else
		r = slice_begin(p, lane);
	if (r == 0 && !stage_is_ready(p))
		return;
	if (r == 0 && !next_is_where_it_was(p)) {
		give_up(p);
		return;
	}
	if (r == 0)
		r = streamed_submit(p);
	if (r < 0)
		lane_fail(p, lane, r);
}

/* Who comes now waits for all that the backend has: no longer than for a batch. */
static bool next_fits_beside(const struct streamed *p)
{
	const struct streamed_leg *leg = &p->legs[p->n_begun];
	double n_tokens = streamed_tokens(streamed_gather(p, leg), leg->begin, leg->end);
	double ns = work_ns(p->model, leg_rows(p, leg) * n_tokens, n_tokens);

	for (uint32_t i = p->n_ended; i < p->n_begun; i++)
		ns += p->views[i % STREAMED_VIEWS].ns;
	return ns <= streamed_budget_ns(p);
}

/* The leg after one that the backend has, where nobody else waits: so the backend need not. */
static void go_ahead(struct streamed *p)
{
	uint32_t n_flying = p->n_begun - p->n_ended;

	if (p->n_members != 1 || step_n_there(&p->core->steps) > 1 || n_flying == 0 ||
	    n_flying == STREAMED_VIEWS || p->n_begun == p->n_legs || !stage_is_ready(p) ||
	    !next_fits_beside(p) || !next_is_where_it_was(p))
		return;
	int r = streamed_submit(p);
	if (r < 0)
		lane_fail(p, p->members[0].lane, r);
}

static void slice_end(struct streamed *p)
{
	const struct select_shares chosen = p->choice.shares;
	uint32_t n = p->n_members;

	choice_end(p);
	give_up(p);
	p->core->stats.prefill_jobs++;
	for (uint32_t i = 0; i < n; i++)
		step_finish_slice(p->core, p->members[i].lane,
				  p->members[i].row + p->members[i].n_rows, &chosen);
}

/* The backend has legs one after the other, and nothing between them. What is slow in batches too
 * is in the budget already. */
static void leg_learn(struct streamed *p, const struct streamed_view *v)
{
	uint64_t begun_ns = max_u64(v->begun_ns, p->ended_ns);

	p->ended_ns = core_clock(p->core);
	streamed_learn(p, v->ns, (double)(p->ended_ns - begun_ns));
}

static void leg_end(struct streamed *p)
{
	const struct streamed_view *v = &p->views[p->n_ended++ % STREAMED_VIEWS];

	leg_learn(p, v);
	p->core->stats.batches++;
	p->n_done++;
	p->n_staged += v->staged;
	p->in_flight = p->n_ended < p->n_begun;
}

bool streamed_poll(struct streamed *p)
{
	uint32_t n_ended = p->n_ended;
	uint64_t completed;

	if (!streamed_busy(p))
		return false;
	if (p->in_flight && p->core->ops->completed(p->core->backend, &completed) < 0) {
		core_fail(p->core);
		streamed_fail(p);
		return true;
	}
	while (p->in_flight && p->views[p->n_ended % STREAMED_VIEWS].id <= completed)
		leg_end(p);
	if (p->n_ended > n_ended)
		p->core->now_ns = p->ended_ns;
	if (p->n_ended == p->n_legs) {
		slice_end(p);
		return true;
	}
	n_ended -= p->n_ended;
	stage_ask(p, p->n_cells);
	go_ahead(p);
	return n_ended != 0;
}

void streamed_forget(struct streamed *p, const struct sched_lane *lane)
{
	if (lane->state == STEP_STREAMING)
		give_up(p);
}

void streamed_fail(struct streamed *p)
{
	struct sched_lane *lane;

	while ((lane = step_first(&p->core->steps, STEP_STREAMING)) != NULL)
		lane_fail(p, lane, -EIO);
}

void streamed_done(struct streamed *p)
{
	for (uint32_t i = 0; i < p->members_room; i++)
		gather_done(&p->members[i].gather);
	streamed_views_done(p);
	choice_done(&p->choice);
	free(p->members);
	free(p->legs);
}
