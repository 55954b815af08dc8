/* schedule_strips.c - strips of an item's rows, and which KV blocks these see. See
 * schedule_impl.h. */
#include "schedule_impl.h"
#include "proto/arith.h"

#include <errno.h>

static uint32_t page_source(const struct schedule_want *want, uint32_t page)
{
	const struct pool_pages *pages = &want->pages;

	return (uint32_t)(page / pages->per_extent * pages->extent_sources +
			  page % pages->per_extent * pages->page_sources);
}

/* ---- KV blocks of a strip ------------------------------------------------------------------- */

/* Does some row of [begin, end), of the strip at hand, see only some of the tokens at [first,
 * last]? */
static bool is_causal(const struct make *m, uint32_t begin, uint32_t end, uint32_t first,
		      uint32_t last)
{
	const struct work_row *rows = m->list->rows;

	if (m->least_pos >= last && m->most_low <= first)
		return false;
	for (uint32_t row = begin; row < end; row++) {
		if (rows[row].pos < last || rows[row].low > first)
			return true;
	}
	return false;
}

static bool some_row_sees(const struct make *m, const struct strip *strip,
			  const struct device_kv_block *g)
{
	for (uint32_t t = g->row_begin; t < g->row_end; t++) {
		if (work_row_sees_some(&m->list->rows[strip->row_begin + t],
				       (uint32_t)(g->pos + g->first), (uint32_t)g->end - g->first))
			return true;
	}
	return false;
}

/* The KV block's last token is that of its only row: what follows in the KV block will be its next
 * ones. */
static bool grows(const struct make *m, const struct strip *strip, const struct device_kv_block *g)
{
	uint32_t row = strip->row_begin + g->row_begin;

	return m->want->tails && make_one_token(m, row, strip->row_begin + g->row_end) &&
	       m->list->rows[row].pos == (uint32_t)(g->pos + g->end - 1);
}

static bool is_tail(const struct make *m, const struct strip *strip,
		    const struct device_kv_block *g)
{
	const uint32_t *last = m->p->scratch[LAST_OWN].at;
	uint32_t row = strip->row_begin + g->row_begin;

	return m->want->tails && make_one_token(m, row, strip->row_begin + g->row_end) &&
	       last[row] == (uint32_t)(g->pos + g->end);
}

/* What its rows see of a KV block by position, and which of them goes on in it or behind it. False:
 * they see nothing. */
static bool look_closer(struct make *m, const struct strip *strip, bool causal,
			struct piece_kv_block *at)
{
	const struct device_kv_block *g = &at->kv_block;

	if (causal && !some_row_sees(m, strip, g))
		return false;
	at->causal = causal &&
		     is_causal(m, strip->row_begin + g->row_begin, strip->row_begin + g->row_end,
			       (uint32_t)(g->pos + g->first), (uint32_t)(g->pos + g->end - 1));
	at->grows = grows(m, strip, g);
	at->tail = at->grows || is_tail(m, strip, g);
	if (at->grows) {
		at->kv_block.end = KV_BLOCK_TOKENS;
		at->causal = true;
	}
	return true;
}

static int add_piece(struct make *m, const struct strip *strip, const struct work_piece *piece)
{
	uint32_t begin = max_u32(piece->row_begin, strip->row_begin);
	uint32_t end = min_u32(piece->row_end, strip->row_end);
	uint32_t step = make_kv_block_step(m);
	uint32_t first = piece->first, last = first + piece->count;
	uint32_t index = first / KV_BLOCK_TOKENS;
	struct piece_kv_block like = {.kv_block.row_begin = (uint16_t)(begin - strip->row_begin),
				      .kv_block.row_end = (uint16_t)(end - strip->row_begin)};
	struct piece_kv_block *kv_blocks;
	bool causal;

	if (begin >= end)
		return 0;
	kv_blocks = make_scratch(m, KV_BLOCKS, (size_t)m->n_kv_blocks + last / KV_BLOCK_TOKENS + 1,
				 sizeof(*kv_blocks));
	if (!kv_blocks)
		return -ENOMEM;
	causal = is_causal(m, begin, end, piece->pos, piece->pos + piece->count - 1);
	like.source = page_source(m->want, piece->page);
	for (; index * KV_BLOCK_TOKENS < last; index++) {
		struct piece_kv_block *at = &kv_blocks[m->n_kv_blocks];
		uint32_t base = index * KV_BLOCK_TOKENS;

		*at = like;
		at->kv_block.pos = (int32_t)((int64_t)piece->pos + base - first);
		at->kv_block.first = (uint16_t)(max_u32(first, base) - base);
		at->kv_block.end = (uint16_t)min_u32(last - base, KV_BLOCK_TOKENS);
		at->source += index * step;
		if ((!causal && !m->want->tails) || look_closer(m, strip, causal, at))
			m->n_kv_blocks++;
	}
	return 0;
}

/* Of the first n_kept, which the strip before had, those are set that lie beside others now. What
 * the next one is to have ends a stretch. */
static void find_stretches(struct make *m, uint32_t n_kept)
{
	struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	uint32_t step = make_kv_block_step(m);

	for (uint32_t i = m->n_kv_blocks; i-- > 0;) {
		struct piece_kv_block *at = &kv_blocks[i], *next = at + 1;
		bool same = i + 1 < m->n_kv_blocks &&
			    at->kv_block.row_begin == next->kv_block.row_begin &&
			    at->kv_block.row_end == next->kv_block.row_end;
		bool alike = same && i + 1 != m->kept.n_kv_blocks && kv_block_is_whole(at) &&
			     kv_block_is_whole(next);

		if (i + DEVICE_KV_TILE_BLOCKS < n_kept)
			break;
		if (i >= n_kept)
			at->alike_end = alike ? next->alike_end : i + 1;
		at->beside_end = same && next->source == at->source + step
					 ? min_u32(next->beside_end, i + DEVICE_KV_TILE_BLOCKS)
					 : i + 1;
	}
}

void strip_find_stretches(struct make *m)
{
	m->kept = (struct kept){0};
	find_stretches(m, 0);
}

/* ---- what the strip before has of it -------------------------------------------------------- */

/* Strips go up: what begins before one begins before the next. */
static bool is_kept(const struct make *m, const struct strip *strip)
{
	const struct kept *kept = &m->kept;

	return kept->n_rows == strip->row_end - strip->row_begin && kept->item == strip->item &&
	       kept->row_end >= strip->row_end && kept->pos <= m->least_pos && m->most_low == 0;
}

/* Nothing yet, and nothing ever of rows that do not see all before them, or take tokens in. */
static void kept_begin(struct make *m, const struct strip *strip)
{
	bool may_be = !m->want->tails && m->most_low == 0;

	m->kept = (struct kept){.item = strip->item,
				.n_rows = may_be ? strip->row_end - strip->row_begin : 0,
				.end = runs_begin(m, strip),
				.row_end = UINT32_MAX};
}

/* Run i of the item has been read. */
static void kept_add(struct make *m, const struct strip *strip, uint32_t i)
{
	const struct run *run = &((const struct run *)m->p->scratch[RUNS].at)[i];
	const struct work_piece *pieces = &m->list->pieces[run->piece];
	struct kept *kept = &m->kept;
	uint32_t pos = kept->pos;

	if (kept->end != i || run->row_begin > strip->row_begin || run->row_end < strip->row_end)
		return;
	for (uint32_t p = 0; p < run->n_pieces; p++)
		pos = max_u32(pos, pieces[p].pos + pieces[p].count - 1);
	if (pos > m->least_pos)
		return;
	kept->end = i + 1;
	kept->n_kv_blocks = m->n_kv_blocks;
	kept->row_end = min_u32(kept->row_end, run->row_end);
	kept->pos = pos;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void find_positions(struct make *m, const struct strip *strip)
{
	m->least_pos = UINT32_MAX;
	m->most_low = 0;
	for (uint32_t row = strip->row_begin; row < strip->row_end; row++) {
		m->least_pos = min_u32(m->least_pos, m->list->rows[row].pos);
		m->most_low = max_u32(m->most_low, m->list->rows[row].low);
	}
}

int strip_read(struct make *m, const struct strip *strip)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t end = runs_end(m, strip), n_kept;
	int r = 0;

	find_positions(m, strip);
	if (!is_kept(m, strip))
		kept_begin(m, strip);
	m->n_kv_blocks = n_kept = m->kept.n_kv_blocks;
	for (uint32_t i = m->kept.end; (i = runs_next(m, strip, i, end)) < end; i++) {
		for (uint32_t p = 0; p < runs[i].n_pieces && !r; p++)
			r = add_piece(m, strip, &m->list->pieces[runs[i].piece + p]);
		kept_add(m, strip, i);
	}
	find_stretches(m, n_kept);
	return r;
}

/* ---- strips --------------------------------------------------------------------------------- */

static void common_find(struct make *m, uint32_t item)
{
	const struct work_list *list = m->list;
	const struct work_item *of = &list->items[item];

	m->common = (struct common){.row_end = UINT32_MAX,
				    .pos = UINT32_MAX,
				    .item = item,
				    .known = true};
	for (uint32_t t = of->tile; t < of->tile + of->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];
		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces; i++) {
			const struct work_piece *piece = &list->pieces[i];
			uint64_t end = (uint64_t)piece->pos + piece->count;
			m->common.pos = min_u32(m->common.pos, piece->pos);
			m->common.row_begin = max_u32(m->common.row_begin, piece->row_begin);
			m->common.row_end = min_u32(m->common.row_end, piece->row_end);
			m->common.pos_end = max_u64(end, m->common.pos_end);
		}
	}
}

bool strip_sees_all(struct make *m, const struct strip *strip)
{
	if (!m->common.known || m->common.item != strip->item)
		common_find(m, strip->item);
	if (strip->row_begin < m->common.row_begin || strip->row_end > m->common.row_end)
		return false;
	for (uint32_t row = strip->row_begin; row < strip->row_end; row++)
		if (m->list->rows[row].pos + UINT64_C(1) < m->common.pos_end ||
		    m->list->rows[row].low > m->common.pos)
			return false;
	return true;
}

/* Strips that see all of an item cost the same. */
static void weigh(struct make *m, struct strip *strip, const struct strip *before)
{
	bool alike = before && before->item == strip->item &&
		     before->row_end - before->row_begin == strip->row_end - strip->row_begin;

	if (!alike || !strip_sees_all(m, before) || !strip_sees_all(m, strip)) {
		strip_weigh(m, strip);
		return;
	}
	strip->cost = before->cost;
	strip->n_wide = before->n_wide;
	strip->n_others = before->n_others;
}

/* How many tokens a strip has of an item, at most. */
static uint32_t strip_tokens(const struct make *m, const struct work_item *item, uint32_t tokens)
{
	uint32_t n = item->row_end - item->row_begin;

	return m->even && n > tokens ? ceil_div(n, ceil_div(n, tokens)) : tokens;
}

/* All items' rows in strips of so many tokens. */
int strips_make(struct make *m, uint32_t tokens)
{
	const struct work_list *list = m->list;

	m->n_strips = 0;
	for (uint32_t i = 0; i < list->n_items; i++) {
		const struct work_item *item = &list->items[i];

		uint32_t n = strip_tokens(m, item, tokens);

		for (uint32_t row = item->row_begin; row < item->row_end; row += n) {
			struct strip *strips =
				make_scratch(m, STRIPS, (size_t)m->n_strips + 1, sizeof(*strips));
			struct strip *strip;

			if (!strips)
				return -ENOMEM;
			strip = &strips[m->n_strips];
			*strip = (struct strip){.item = i,
						.row_begin = row,
						.row_end = min_u32(item->row_end, row + n)};
			if (!make_wants(m, strip->row_begin, strip->row_end))
				continue;
			weigh(m, strip, m->n_strips ? strip - 1 : NULL);
			m->n_strips++;
		}
	}
	return 0;
}
