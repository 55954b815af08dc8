/*
 * streamed_impl.h - between the parts of streamed attention: streamed.c decides which legs there
 * are, streamed_stage.c brings what they need, streamed_view.c makes one into a job,
 * streamed_choice.c decides what sparse prefill sees of them.
 */
#ifndef COPPICED_STREAMED_IMPL_H
#define COPPICED_STREAMED_IMPL_H

#include "streamed.h"

#include "daemon/sched/core/turns.h"

#include "kernels/plan/plan.h"
#include "proto/arith.h"

#include <math.h>

/* So many times as long as modelled a leg takes, until one was seen, and as far as is learned: as
 * much again where the machine is slow. */
#define STREAMED_UNSEEN 8.0
#define STREAMED_MOST 64.0
/* How long a leg takes is learned from those that seem to take so long. */
#define STREAMED_LEARN_NS 1e6

/* Of all members. */
static inline uint32_t streamed_n_rows(const struct streamed *p)
{
	const struct streamed_member *last;

	if (p->n_members == 0)
		return 0;
	last = &p->members[p->n_members - 1];
	return last->first_row + last->n_rows;
}

/* Of modelled time, for what the backend has of it. */
static inline double streamed_budget_ns(const struct streamed *p)
{
	return p->core->config->batch_budget_ms * 1e6 / p->slowness.times;
}

/* What the leg counts as, that is modelled to take so long: by how much more it takes than batches
 * do, as far as that was seen. */
static inline double streamed_charged_ns(const struct streamed *p, double ns)
{
	double batches = p->core->batches.seen ? p->core->batches.times : 1;

	return p->slowness.seen ? ns * fmax(p->slowness.times / batches, 1) : ns;
}

/* A leg took so long. */
static inline void streamed_learn(struct streamed *p, double modelled_ns, double took_ns)
{
	if (modelled_ns * p->slowness.times >= STREAMED_LEARN_NS)
		slowness_learn(&p->slowness, STREAMED_MOST, modelled_ns, took_ns);
}

/* Tokens that one leg may see, of so many rows: as many as the budget has time for. */
static inline uint32_t streamed_leg_tokens(const struct streamed *p, uint32_t n_rows)
{
	double n = streamed_budget_ns(p) / work_ns(p->model, n_rows, 1);

	return (uint32_t)min_u64(n, UINT32_MAX);
}

/* Of a page. */
static inline uint64_t streamed_layer_bytes(const struct streamed *p)
{
	return p->model->page_bytes / p->model->shape.n_layers;
}

/* The stage's pages are of one layer: all layers' parts of a page lie one after the other. */
static inline uint32_t streamed_extent_pages(const struct streamed *p)
{
	return (uint32_t)(p->core->config->extent_bytes / streamed_layer_bytes(p));
}

static inline const struct gather *streamed_gather(const struct streamed *p,
						   const struct streamed_leg *leg)
{
	return &p->members[leg->member == STREAMED_ALL ? 0 : leg->member].gather;
}

/* Of slices [begin, end). */
static inline uint32_t streamed_tokens(const struct gather *g, uint32_t begin, uint32_t end)
{
	uint32_t n = 0;

	for (uint32_t i = begin; i < end; i++)
		n += g->slices[i].count;
	return n;
}

/* Bits of a KV head's blocks; head n_kv_heads: of those that any has. */
static inline const uint64_t *choice_bits(const struct streamed *p, uint32_t head)
{
	return p->choice.kept + (size_t)head * p->choice.n_words;
}

/* Does the KV head, see choice_bits, see what stands here of the path? */
static inline bool choice_has(const struct streamed *p, uint32_t head, uint32_t pos)
{
	return !p->choice.made || select_has(choice_bits(p, head), pos / p->choice.block_tokens);
}

/* Cells for the model's layer; a stage of very few pages has as many. */
void stage_cut(struct streamed *p);
/* Copies for a cell that is free, as long as no more than so many are filled: one at a time, as
 * attention is submitted in between. */
void stage_ask(struct streamed *p, uint32_t n_cells);
/* What the next leg is about is there. */
bool stage_is_ready(struct streamed *p);

/* The slice that is about to begin: whether blocks can be chosen for it, as its sequence wants that
 * and its summary knows what lies before; its rows are to be appended first, then choice_make.
 * False: it sees all. */
bool choice_begin(struct streamed *p);
/* Chooses them. What cannot be chosen for is seen whole. 0, or -EIO: the backend has failed. */
MUST_CHECK int choice_make(struct streamed *p);
/* It is done. */
void choice_end(struct streamed *p);
/* Jobs of KV heads for a view of the path, of which there is one as if all were seen. 0 or
 * -errno. */
MUST_CHECK int choice_jobs(struct streamed *p, const struct streamed_leg *leg,
			   const struct plan_config *plan, struct streamed_view *v);
/* What was submitted has seen these tokens: they go into the summary. 0 or -EIO. */
MUST_CHECK int choice_take_in(struct streamed *p, const struct streamed_view *v);
void choice_done(struct streamed_choice *choice);

/* K and V of the only member's rows go to their pages. Blocks. As streamed_submit. */
MUST_CHECK int streamed_append(struct streamed *p);
void streamed_views_done(struct streamed *p);
/* Submits the next leg, whose slices are there. 0, -ENOMEM, or what the backend says. */
MUST_CHECK int streamed_submit(struct streamed *p);

#endif
