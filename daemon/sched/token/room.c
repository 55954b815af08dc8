/*
 * room.c - who goes with a pass, and with how many tokens.
 *
 * Decode comes first, and prompts may make its pass longer by a part, each in turn; prompts alone
 * have the budget, one that nobody is beside four of them. What a row takes is modelled: its
 * products, and attention over its path; what paths have in common is read once. Prompts beside
 * decode have their part of what passes take in fact (longer.h). A path that is not all on the
 * device any more cannot be computed on: its entry fails.
 */
#include "room.h"

#include "asked.h"
#include "candidates.h"
#include "company.h"

#include "daemon/base/grow.h"
#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/run/job_tree.h"
#include "daemon/sched/run/slice.h"
#include "daemon/sched/seq/evicted.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/step/step_end.h"

#include "proto/arith.h"

#include "kvstore/seq/gather.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of what the weights take to be read, or the budget: decode, which goes together rather than read
 * them once more; and where somebody wants tokens of other weights, whose turn comes later the more
 * all others have first. */
#define DECODE_PARTS 4.0
#define DECODE_PARTS_BESIDE 1.0
#define LEAST_PART 0.25 /* of the budget: prompts, however much decode there is */
/* A prompt that is alone: of the budget, and of the rows whose products reading the weights hides a
 * part of. More are hardly any faster. */
#define ALONE_PARTS 4.0
#define ALONE_HIDDEN 4u
/* The next pass is foreseen so often in one, each time over so many nodes of paths at most. */
#define FORESEEN_TIMES 3u
#define FORESEEN_NODES 4096u
#define KEPT_ROWS_PART 4u /* of all rows: decode leaves so many to prompts */

/* Passes that are nearly all weights say nothing of attention: until another was seen that may take
 * as long as anything on a machine of which nobody has seen anything; then what it usually does. */
static double fear(const struct sched_core *core)
{
	return fmax(core->attention.times / core->passes.times, 1);
}

void room_begin(struct passes *p, const struct sched_model *model, struct room *ret)
{
	double ns = fmax(pass_budget_ns(p->core), model->program->cost.fixed_ns);
	double parts = company_is_of_others(p, model) ? DECODE_PARTS_BESIDE : DECODE_PARTS;
	struct plan_config plan;

	job_config(p->core, &model->shape, p->core->config->policy.policy, &plan);
	*ret = (struct room){.model = model,
			     .program = p->core->ops->program,
			     .rows = p->core->ops->program->max_rows,
			     .ns = parts * ns,
			     .budget_ns = ns,
			     .parts = parts,
			     .layer_ns = pass_budget_ns(p->core),
			     .fear = fear(p->core),
			     .plan_ns = p->core->config->batch_budget_ms * 1e6,
			     .segment_tokens = plan.segment_tokens,
			     .paths = paths_begin(p->plans)};
}

/* From now on prompts are taken. */
static void room_begin_prompts(const struct passes *p, struct room *room)
{
	double pass_ns = room->model->program->cost.fixed_ns + room->taken_ns;
	bool beside = room->n_taken > 0 && !room->halved;
	double most_ns = (beside ? room->parts : 1) * room->budget_ns, part;

	room->ns = fmax(most_ns - room->taken_ns, LEAST_PART * room->budget_ns);
	room->decode_ns = room->n_taken > 0 ? pass_ns : 0;
	if (!beside)
		return;
	part = p->core->config->prompt_percent / 100.0;
	room->ns = fmin(room->ns, longer_prompts_ns(&room->model->longer, pass_ns, part));
}

double room_attention_ns(const struct room *room)
{
	return room->model->shape.n_layers * room->attend_ns;
}

double room_results_ns(const struct room *room)
{
	return asked_results_ns(room, room->n_wanted);
}

/* ---- rows are taken -------------------------------------------------------------------------- */

/* How many of its n rows the pass has time for; where a prompt is alone, for so many it takes
 * longer. */
static uint32_t most_rows(const struct room *room, const struct asked *a, uint32_t n)
{
	double longer_ns = (ALONE_PARTS - 1) * room->budget_ns;
	bool cut = room->program->holds;
	uint32_t most;

	n = (uint32_t)fmin(n, cut ? asked_in_memory(room, a) : asked_in_time(room, a));
	most = asked_rows_in(room, a, room->ns, n);
	if (room->n_taken + most >= room->alone_rows)
		return most;
	return asked_rows_in(room, a, room->ns + longer_ns,
			     min_u32(n, room->alone_rows - room->n_taken));
}

static double plan_ns(const struct room *room, double n_tokens, double n_nodes)
{
	return n_nodes * NODE_NS + pages_ns(room->model, n_tokens);
}

/* There is time left to plan for its path, too: mostly so, whatever of it others have. Once there
 * is not, nobody's is walked any more but for what others have. */
static bool is_planned_in_time(struct room *room, const struct asked *a)
{
	double left_ns = fmax(room->plan_ns, 0);
	struct path_added added;

	if (plan_ns(room, a->n_before, store_seq_most_nodes(asked_seq(a)->store)) <= left_ns)
		return true;
	added = paths_look(room->paths, asked_seq(a), (uint32_t)(left_ns / NODE_NS));
	if (plan_ns(room, added.n_tokens, added.n_nodes) <= left_ns)
		return true;
	room->plan_ns = 0;
	return false;
}

/* Of the part's left tokens as many as there is room for, of the first of all at least one; of
 * another draft all or none. */
static uint32_t rows_for(struct room *room, const struct asked *a)
{
	uint32_t n_left = a->n_left, n = most_rows(room, a, n_left);
	bool is_first = !room->n_of_lane && (room->n_lanes == 0 || room->first_prompt);

	if (n > 0 && n < n_left)
		n = asked_whole_tiles(room, a, asked_whole(room, a, n));
	if (n == 0 && n_left > 0 && is_first)
		n = 1;
	n = min_u32(n, room->rows);
	if (is_first)
		return n;
	if (n < n_left && a->lane->decode.parents)
		return 0;
	return n > 0 && is_planned_in_time(room, a) ? n : 0;
}

/* Returns how long they take. */
static double room_take(struct room *room, const struct asked *a, uint32_t n)
{
	const struct sched_model *m = room->model;
	struct path_added added = paths_add(room->paths, asked_seq(a));
	double read_ns = room->fear * work_ns(m, 0, added.n_tokens);
	double nodes_ns = added.n_nodes * NODE_NS, named_ns = pages_ns(m, added.n_tokens);
	double ns =
		asked_rows_ns(room, a, n) + fmax(m->shape.n_layers * read_ns, named_ns) + nodes_ns;

	room->plan_ns -= nodes_ns + named_ns;
	room->attend_ns += asked_attended_as(room, n) * asked_layer_ns(room, a) + read_ns;
	room->partials_bytes += n * asked_partials_bytes(room, a);
	room->n_nodes += added.n_nodes;
	room->rows -= n;
	room->n_taken += n;
	room->n_wanted += asked_n_wanted(a, n);
	room->n_of_lane += n;
	room->ns -= ns;
	room->taken_ns += ns;
	return ns;
}

/* A draft has its parents with it, until it is accepted or goes. */
static int part_draft(const struct sched_lane *lane, uint32_t part)
{
	struct sched_seq *seq = lane->step.parts[part].seq;
	const struct decode_part *d = &lane->decode.parts[part];
	uint32_t *parents = malloc(d->n_new * sizeof(*parents));

	if (!parents)
		return -ENOMEM;
	memcpy(parents, lane->decode.parents + d->first_id, d->n_new * sizeof(*parents));
	seq->parents = parents;
	seq->draft = true;
	return 0;
}

/* The part's next n rows are to be live. A draft is so as a whole, from its first rows on. */
static int part_live(struct passes *p, const struct sched_lane *lane, uint32_t part, uint32_t n)
{
	const struct decode_part *d = &lane->decode.parts[part];
	struct sched_seq *seq = lane->step.parts[part].seq;
	const uint32_t *ids = lane->decode.ids + d->first_id + d->n_done;
	int r;

	if (!lane->decode.parents)
		return seq_extend(p->core, seq, ids, n, false);
	if (d->n_done > 0)
		return 0;
	r = seq_extend(p->core, seq, ids, d->n_new, true);
	return r < 0 ? r : part_draft(lane, part);
}

/* The part's next rows are live from now on. */
static int part_extend(struct passes *p, struct sched_lane *lane, uint32_t part, struct room *room)
{
	struct step_part *step = &lane->step.parts[part];
	const struct decode_part *d = &lane->decode.parts[part];
	const struct asked asked = {lane, part, store_seq_n_tokens(step->seq->store),
				    d->n_new - d->n_done};
	uint32_t n = rows_for(room, &asked);
	int r = n > 0 ? part_live(p, lane, part, n) : 0;

	if (r < 0)
		return r;
	step->n_new = n;
	step->first_row = lane->decode.parents ? d->n_done : 0;
	step->n_seen = store_seq_n_tokens(step->seq->store) + step->first_row + n;
	if (n > 0)
		lane->step.alone_ns += room_take(room, &asked, n);
	return 0;
}

/* It is in the pass, with some rows, or has failed. */
static void lane_take(struct passes *p, struct sched_lane *lane, struct room *room)
{
	room->n_of_lane = 0;
	lane->decode.n_rows = 0;
	lane->step.alone_ns = 0;
	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		lane->step.parts[i].n_new = 0;
	for (uint32_t i = 0; i < lane->step.n_parts; i++) {
		int r = part_extend(p, lane, i, room);

		if (r < 0) {
			step_fail(p->core, lane, outcome_of_store(r, i));
			return;
		}
	}
	lane->decode.n_rows = room->n_of_lane;
	if (lane->decode.n_rows == 0)
		return;
	if (job_add(p->core, &p->now->job, lane) < 0) {
		step_fail(p->core, lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
		return;
	}
	room->n_lanes++;
	lane->decode.pass = p->now->number;
	lane->decode.pass_ns = p->core->now_ns;
	lane->decode.pass_of = room->model;
	step_move(&p->core->steps, lane, STEP_IN_PASS);
}

/* ---- rows are foreseen ----------------------------------------------------------------------- */

/* Once the pass under way has ended. */
static struct asked asked_next(struct sched_lane *lane, uint32_t part)
{
	const struct step_part *step = &lane->step.parts[part];
	const struct decode_part *d = &lane->decode.parts[part];
	uint32_t n_live = lane->state == STEP_IN_PASS ? step->n_new : 0;
	uint32_t n_left = d->n_new - d->n_done - n_live;

	return (struct asked){lane, part, store_seq_n_tokens(step->seq->store) + n_live,
			      candidate_left_behind(lane) > 0 ? n_left : 1};
}

static int part_foresee(struct next_job *next, const struct asked *a, uint32_t n)
{
	struct next_rows *rows;
	uint32_t n_slots;

	if (GROW(next->rows, next->rows_room, next->n_rows + 1) < 0 ||
	    GROW(next->slots, next->slots_room, next->n_slots + n) < 0)
		return -ENOMEM;
	n_slots = store_seq_foresee(asked_seq(a)->store, n, &next->foresight,
				    next->slots + next->n_slots);
	rows = &next->rows[next->n_rows++];
	*rows = (struct next_rows){.seq = asked_seq(a),
				   .n_rows = n,
				   .first_slot = next->n_slots,
				   .n_slots = n_slots,
				   .lane = a->lane->serial,
				   .part = a->part};
	next->n_slots += n_slots;
	return n_slots > 0 ? 0 : -EAGAIN;
}

/* Where all is foreseen, whoever comes meanwhile waits for the walks over its paths. */
static bool is_long(const struct room *room, const struct asked *a)
{
	return room->n_nodes + store_seq_most_nodes(asked_seq(a)->store) > FORESEEN_NODES;
}

/* In the order in which they are to be taken, until something is unclear. Of a draft the plan would
 * have to have parents, which come with its rows. */
static void lane_foresee(struct passes *p, struct sched_lane *lane, struct room *room)
{
	room->n_of_lane = 0;
	room->unclear |= lane->decode.parents != NULL;
	for (uint32_t i = 0; i < lane->step.n_parts && !room->unclear; i++) {
		const struct asked asked = asked_next(lane, i);
		uint32_t n = asked.n_left > 0 ? rows_for(room, &asked) : 0;

		if (n == 0)
			continue;
		room->unclear = is_long(room, &asked) || part_foresee(&p->next, &asked, n) < 0;
		if (!room->unclear)
			room_take(room, &asked, n);
	}
	room->n_lanes += room->n_of_lane > 0;
}

/* ---- who has them ---------------------------------------------------------------------------- */

/* Of another user, who has had less: half of the pass is his. */
static bool is_before(const struct pass_candidate *prompt, const struct pass_candidate *decode)
{
	return prompt->lane->session->user != decode->lane->session->user &&
	       prompt->user_ns < decode->user_ns;
}

static void lane_have(struct passes *p, struct sched_lane *lane, struct room *room)
{
	if (room->foreseen)
		lane_foresee(p, lane, room);
	else
		lane_take(p, lane, room);
}

static void take_decode(struct passes *p, struct room *room)
{
	const struct pass_candidate *prompt = candidates_first(p, false),
				    *decode = candidates_first(p, true);
	uint32_t kept = prompt ? room->rows / KEPT_ROWS_PART : 0;

	room->halved = prompt && decode && is_before(prompt, decode);
	if (room->halved)
		room->ns = room->budget_ns / 2;
	room->rows -= kept;
	for (uint32_t i = 0; i < p->n_candidates && room->rows > 0 && room->ns > 0; i++)
		if (p->candidates[i].decode)
			lane_have(p, p->candidates[i].lane, room);
	room->rows += kept;
}

static void take_prompts(struct passes *p, struct room *room)
{
	room_begin_prompts(p, room);
	/* Whoever comes while such a pass is under way waits longer for his first one. */
	if (room->n_taken == 0 && p->n_candidates == 1 && !company_is_there(p, p->candidates->lane))
		room->alone_rows = ALONE_HIDDEN * room->model->program->cost.hidden_rows;
	room->first_prompt = true;
	for (uint32_t i = 0; i < p->n_candidates && room->rows > 0; i++) {
		if (p->candidates[i].decode)
			continue;
		if (room->ns <= 0)
			break;
		lane_have(p, p->candidates[i].lane, room);
		room->first_prompt = false;
	}
	room->first_prompt = false;
}

uint32_t room_absent_part(const struct sched_lane *lane)
{
	uint32_t part = 0;

	while (part < lane->step.n_parts &&
	       store_seq_is_resident(lane->step.parts[part].seq->store))
		part++;
	return part;
}

/* What a pass reads is on the device; somebody who came later may have moved something away. */
static void drop_absent(struct passes *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->now->job.n_lanes; i++) {
		struct sched_lane *lane = p->now->job.lanes[i];
		uint32_t part = room_absent_part(lane);

		if (part == lane->step.n_parts)
			p->now->job.lanes[n++] = lane;
		else
			step_fail(p->core, lane, outcome_bad(-ENOSPC, ABI_NO_ROOM, part));
	}
	p->now->job.n_lanes = n;
}

static int by_age(const void *a, const void *b)
{
	const struct sched_lane *x = *(struct sched_lane *const *)a;
	const struct sched_lane *y = *(struct sched_lane *const *)b;

	return x->serial < y->serial ? -1 : x->serial > y->serial;
}

int room_fill(struct passes *p, struct room *room)
{
	p->now->job.n_lanes = 0;
	p->now->number = ++p->number;
	if (candidates_find(p, room->model, false) < 0)
		return -ENOMEM;
	take_decode(p, room);
	take_prompts(p, room);
	drop_absent(p);
	/* Who comes again finds the plan of the last token, whoever came first. */
	if (p->now->job.n_lanes)
		qsort(p->now->job.lanes, p->now->job.n_lanes, sizeof(*p->now->job.lanes), by_age);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct next_rows *x = a, *y = b;

	if (x->lane != y->lane)
		return x->lane < y->lane ? -1 : 1;
	return x->part < y->part ? -1 : x->part > y->part;
}

bool room_foresee(struct passes *p)
{
	struct room room;

	p->next.n_rows = p->next.n_slots = 0;
	p->next.foresight = (struct store_foresight){0};
	if (p->now->n_foreseen == FORESEEN_TIMES ||
	    candidates_find(p, p->now->job.model, true) < 0 || !candidates_first(p, false))
		return false;
	p->now->n_foreseen++;
	room_begin(p, p->now->job.model, &room);
	room.foreseen = true;
	take_decode(p, &room);
	take_prompts(p, &room);
	if (room.unclear)
		p->next.n_rows = 0;
	qsort(p->next.rows, p->next.n_rows, sizeof(*p->next.rows), by_place);
	return p->next.n_rows > 0;
}

bool room_get_ready(struct passes *p)
{
	p->gets_ready = store_model_get_ready(p->now->job.model->store, &p->next.foresight);
	return p->gets_ready;
}
