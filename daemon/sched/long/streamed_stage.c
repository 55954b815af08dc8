/*
 * streamed_stage.c - copies into the stage: of each leg over host memory, what is seen of it.
 *
 * A cell of the stage is written when the leg that read it last has ended (`users`), and read when
 * its last copy has (`tokens`). Copies of one block go together, and legs are asked for in their
 * order.
 */
#include "streamed_impl.h"
#include "proto/arith.h"

void stage_cut(struct streamed *p)
{
	uint64_t n_pages = (uint64_t)p->n_extents * streamed_extent_pages(p), newest = 0;

	p->n_cells = (uint32_t)min_u64(n_pages, STREAMED_CELLS);
	p->cell_pages = (uint32_t)(n_pages / p->n_cells);
	for (uint32_t i = 0; i < STREAMED_CELLS; i++)
		newest = max_u64(p->users[i], newest);
	for (uint32_t i = 0; i < STREAMED_CELLS; i++)
		p->users[i] = newest; /* another model's cells lay elsewhere */
}

/* Heads [head, head + n_heads) of a page's layer. */
static void copy_ask(struct streamed *p, uint32_t page, const char *host, uint32_t head,
		     uint32_t n_heads)
{
	uint64_t bytes = streamed_layer_bytes(p), head_bytes = bytes / p->model->shape.n_kv_heads;
	uint32_t each = streamed_extent_pages(p);
	struct backend_copy copy = {
		.extent = p->first_extent + page / each,
		.offset_bytes = page % each * bytes + head * head_bytes,
		.bytes = n_heads * head_bytes,
		.host = (char *)(uintptr_t)host + p->layer * bytes + head * head_bytes,
		.after = p->users[page / p->cell_pages],
	};

	p->tokens[page / p->cell_pages] = p->core->ops->tier->up(p->core->backend, &copy);
	p->staged_bytes += copy.bytes;
}

/* Slices [slice, end) of a path, all of one block: what any head sees of them, heads that stand
 * together in one go, so that copies lie at equal distances. */
static void block_ask(struct streamed *p, const struct gather *g, uint32_t pos, uint32_t slice,
		      uint32_t end)
{
	uint32_t n_heads = p->model->shape.n_kv_heads, next;
	uint32_t page = p->n_asked % p->n_cells * p->cell_pages + p->n_asked_pages;

	if (!choice_has(p, n_heads, pos))
		return;
	p->n_asked_pages += end - slice;
	for (uint32_t head = 0; head < n_heads; head = next + 1) {
		for (next = head; next < n_heads && choice_has(p, next, pos);)
			next++;
		for (uint32_t i = slice; i < end && next > head; i++)
			copy_ask(p, page + i - slice, gather_memory(g, i), head, next - head);
	}
}

/* Where the block ends that the slice at this position is in: the first slice behind it, end at
 * most. In block_tokens, choice's too. */
static uint32_t block_end(const struct gather *g, uint32_t block_tokens, uint32_t pos,
			  uint32_t slice, uint32_t end)
{
	uint32_t block = pos / block_tokens;

	for (; slice < end && pos / block_tokens == block; slice++)
		pos += g->slices[slice].count;
	return slice;
}

static bool all_are_there(const struct gather *g, uint32_t slice, uint32_t end)
{
	while (slice < end && gather_is_there(g, slice))
		slice++;
	return slice == end;
}

/* Of one leg. False: slices are still on their way down, they come later. */
static bool leg_ask(struct streamed *p, const struct streamed_leg *leg)
{
	const struct gather *g = streamed_gather(p, leg);
	uint32_t slice = leg->begin + p->n_asked_slices, end;
	uint32_t pos = leg->pos + streamed_tokens(g, leg->begin, slice);

	for (; slice < leg->end; pos += streamed_tokens(g, slice, end), slice = end) {
		end = block_end(g, p->core->config->stage_block, pos, slice, leg->end);
		if (!all_are_there(g, slice, end))
			return false;
		block_ask(p, g, pos, slice, end);
		p->n_asked_slices += end - slice;
	}
	p->n_asked++;
	p->n_asked_slices = p->n_asked_pages = 0;
	p->core->ops->tier->kick(p->core->backend);
	return true;
}

void stage_ask(struct streamed *p, uint32_t n_cells)
{
	while (p->ask < p->n_legs && p->legs[p->ask].kind != STREAMED_STAGED)
		p->ask++;
	if (p->ask < p->n_legs && p->n_asked < p->n_staged + n_cells &&
	    leg_ask(p, &p->legs[p->ask]))
		p->ask++;
}

bool stage_is_ready(struct streamed *p)
{
	if (p->legs[p->n_begun].kind != STREAMED_STAGED)
		return true;
	return p->n_filled < p->n_asked && p->tokens[p->n_filled % p->n_cells] <=
						   p->core->ops->tier->ups_done(p->core->backend);
}
