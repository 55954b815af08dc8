/*
 * streamed_impl.h - between the parts of passes: streamed.c decides which there are and brings what
 * they need, streamed_view.c makes one into a job, streamed_choice.c decides what sparse prefill
 * sees of them.
 */
#ifndef COPPICED_PASSES_IMPL_H
#define COPPICED_PASSES_IMPL_H

#include "streamed.h"

#include "daemon/sched/sched_impl.h"
#include "daemon/sched/step/step.h"

/* Of all members. */
static inline uint32_t passes_n_rows(const struct passes *p)
{
	const struct passes_member *last;

	if (p->n_members == 0)
		return 0;
	last = &p->members[p->n_members - 1];
	return last->first_row + last->n_rows;
}

/* Of a page. */
static inline uint64_t passes_layer_bytes(const struct passes *p)
{
	return p->model->page_bytes / p->model->shape.n_layers;
}

/* The stage's pages are of one layer: all layers' parts of a page lie one after the other. */
static inline uint32_t passes_extent_pages(const struct sched *s)
{
	return (uint32_t)(s->config->extent_bytes / passes_layer_bytes(&s->passes));
}

static inline const struct gather *passes_gather(const struct passes *p,
						 const struct passes_pass *pass)
{
	return &p->members[pass->member == PASSES_ALL ? 0 : pass->member].gather;
}

/* Bits of a KV head's blocks; head n_kv_heads: of those that any has, n_kv_heads + 1: that all
 * have. */
static inline const uint64_t *choice_bits(const struct passes *p, uint32_t head)
{
	return p->choice.kept + (size_t)head * p->choice.n_words;
}

/* Does the KV head, see choice_bits, see what stands here of the path? */
static inline bool choice_has(const struct passes *p, uint32_t head, uint32_t pos)
{
	return !p->choice.made || select_has(choice_bits(p, head), pos / p->choice.block_tokens);
}

/* The slice that is about to begin: blocks are chosen where its sequence wants it and its summary
 * can tell, and appends then, for which it blocks. What cannot be chosen for is seen whole. 0, or
 * -EIO: the backend has failed. */
int choice_begin(struct sched *s);
/* It is done. */
void choice_end(struct sched *s);
/* Jobs of KV heads for a view of the path, of which there is one as if all were seen. 0 or
 * -errno. */
int choice_jobs(struct sched *s, const struct passes_pass *pass, const struct plan_config *plan,
		struct passes_view *v);
/* What was submitted has seen these tokens: they go into the summary. 0 or -EIO. */
int choice_take_in(struct sched *s, const struct passes_view *v);
void choice_done(struct passes_choice *choice);

/* K and V of the only member's rows go to their pages. As passes_submit. */
int passes_append(struct sched *s);
void passes_views_done(struct passes *p);
/* Submits the next pass, whose slices are there. 0, -ENOMEM, or what the backend says. */
int passes_submit(struct sched *s);

#endif
