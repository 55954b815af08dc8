/*
 * fold.c - one tile after the other; within a tile one block of rows after the other.
 *
 *      tile    keys 0 ........................ 63      at most 64; rows may see unlike pieces
 *      runs    [page 7, rows 40-63][page 9, 0-39]      stretches of one page, whoever sees them
 *      mask    one bit a key and token: what a row sees
 *
 * Scores are computed for whole runs and cut by the mask afterwards; V is read only where a row's
 * bit is set, so that what lies outside the pieces reaches no result, whatever it is.
 */
#include "fold.h"
#include "kernels/accesses.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct run {
	const char *k; /* block of the page and the first KV head */
	uint32_t first;
	uint32_t count;
	uint32_t key;
};

struct runs {
	struct run at[WORK_TILE_TOKENS];
	uint32_t n;
};

int fold_state_init(struct fold_state *state)
{
	size_t q = (FOLD_ROWS / 8) * VEC_BLOCK * POOL_DIM_MAX, o = FOLD_ROWS * POOL_DIM_MAX;
	size_t sum = FOLD_ROWS * VEC_LANES_MAX, s = VEC_BLOCK * WORK_TILE_TOKENS;
	size_t n = q + o + sum + 2 * s + FOLD_ROWS + POOL_DIM_MAX;
	float *at;

	if (posix_memalign((void **)&at, 64, n * sizeof(*at) + FOLD_ROWS * sizeof(uint64_t)))
		return -ENOMEM;
	state->q = at;
	state->o = state->q + q;
	state->sum = state->o + o;
	state->s = state->sum + sum;
	state->spill = state->s + s;
	state->max = state->spill + s;
	state->line = state->max + FOLD_ROWS;
	state->mask = (uint64_t *)(state->line + POOL_DIM_MAX);
	return 0;
}

void fold_state_done(struct fold_state *state)
{
	free(state->q);
	*state = (struct fold_state){0};
}

static uint32_t group_of(const struct fold *f)
{
	return f->job->shape->n_q_heads / f->job->shape->n_kv_heads;
}

static uint32_t block_rows(uint32_t group)
{
	return group % 8 == 0 ? 8 : VEC_BLOCK;
}

uint32_t fold_stride(uint32_t group, uint32_t n_rows)
{
	return (uint32_t)round_up(n_rows, block_rows(group));
}

/* A row's place in its block is a column: a value of each line, VEC_BLOCK apart. Both are the
 * thread's own. */
static RACES_TOLD void put_column(float *to, const float *row, uint32_t dim)
{
#pragma GCC unroll 8
	for (uint32_t d = 0; d < dim; d++)
		to[d * VEC_BLOCK] = row[d];
}

/* Widens Q of a KV head, times the softmax scale and log2 e, into the packed blocks from row on. */
static void pack_q(const struct fold *f, struct fold_state *state, uint32_t head, uint32_t first)
{
	const struct work_shape *shape = f->job->shape;
	uint32_t group = group_of(f), block = block_rows(group), dim = shape->head_dim;
	size_t head_bytes = dim * work_dtype_bytes(shape->dtype);
	float scale = (float)(shape->scale * M_LOG2E), *line = state->line;

	for (uint32_t i = 0; i < (f->end - f->begin) * group; i++) {
		const struct work_row *row = &f->job->list->rows[f->begin + i / group];
		const struct backend_io *io = &f->job->io[row->query];
		uint64_t q =
			io->q + row->token * io->q_stride + (head * group + i % group) * head_bytes;
		float *to = state->q + (size_t)((first + i) / block) * VEC_BLOCK * dim + i % block;

		if (io->o)
			f->vec->widen[shape->dtype](line, (const void *)(uintptr_t)q, dim, scale);
		else
			memset(line, 0, dim * sizeof(*line));
		put_column(to, line, dim);
	}
}

static void find_runs(const struct fold *f, const struct work_tile *tile, struct runs *ret)
{
	const struct work_piece *piece = &f->job->list->pieces[tile->piece];
	uint32_t page = WORK_NONE;

	ret->n = 0;
	for (uint32_t i = 0; i < tile->n_pieces; i++, piece++) {
		struct run *last = &ret->at[ret->n ? ret->n - 1 : 0];

		assert(piece->key + piece->count <= WORK_TILE_TOKENS);
		assert(piece->page < f->pages->n_pages);
		if (piece->page == page && last->first + last->count == piece->first &&
		    last->key + last->count == piece->key) {
			last->count += piece->count;
			continue;
		}
		assert(ret->n < WORK_TILE_TOKENS);
		page = piece->page;
		ret->at[ret->n++] = (struct run){pool_block(f->pages, page, f->job->layer, f->head),
						 piece->first, piece->count, piece->key};
	}
}

static uint64_t low_bits(uint32_t n)
{
	return n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
}

/* Bit j: the row sees token j of the piece. */
static uint64_t keys_seen(const struct work_row *row, const struct work_piece *piece)
{
	uint32_t begin = row->low > piece->pos ? row->low - piece->pos : 0;

	if (!work_row_sees_some(row, piece->pos, piece->count))
		return 0;
	return low_bits(min_u32(piece->count, row->pos - piece->pos + 1)) & ~low_bits(begin);
}

/* What tokens [lo, hi) see of a tile: state->mask[token - lo]. */
static void find_masks(const struct fold *f, const struct work_tile *tile, uint32_t lo, uint32_t hi,
		       uint64_t *mask)
{
	const struct work_row *rows = f->job->list->rows;
	const struct work_piece *piece = &f->job->list->pieces[tile->piece];

	memset(mask, 0, (hi - lo) * sizeof(*mask));
	for (uint32_t i = 0; i < tile->n_pieces; i++, piece++) {
		uint32_t end = min_u32(hi, piece->row_end);

		for (uint32_t r = max_u32(lo, piece->row_begin); r < end; r++) {
			mask[r - lo] |= keys_seen(&rows[r], piece) << piece->key;
		}
	}
}

/* A block's part that meets a tile. */
struct block {
	size_t shift; /* bytes from the first KV head's blocks to this one's */
	uint32_t row; /* in state */
	uint32_t n_rows;
	const float *q;
	uint64_t mask[VEC_BLOCK]; /* by row */
	float shrink[VEC_LANES_MAX];
};

/* Keys [from, to) of a page whose scores make up a run's: whole pairs of vectors. */
struct stretch {
	uint32_t from, to;
};

static struct stretch scored_keys(const struct fold *f, const struct run *run)
{
	uint32_t page = f->job->shape->page_tokens, step = min_u32(2 * f->vec->lanes, page);
	uint32_t end = ceil_div(run->first + run->count, step) * step;

	return (struct stretch){run->first / step * step, min_u32(end, page)};
}

/* Where the run does not fill them, beside s, and takes what is wanted. */
static void score_run(const struct fold *f, struct fold_state *state, const struct block *b,
		      const struct run *run)
{
	const struct work_shape *shape = f->job->shape;
	struct stretch keys = scored_keys(f, run);
	bool whole = keys.from == run->first && keys.to == run->first + run->count;
	struct vec_score a = {
		.q = b->q,
		.k = run->k + b->shift + keys.from * work_dtype_bytes(shape->dtype),
		.s = whole ? state->s + run->key : state->spill,
		.n_rows = b->n_rows,
		.n_keys = keys.to - keys.from,
		.head_dim = shape->head_dim,
		.page_tokens = shape->page_tokens,
	};

	f->vec->score[shape->dtype](&a);
	for (uint32_t r = 0; !whole && r < b->n_rows; r++)
		memcpy(state->s + r * WORK_TILE_TOKENS + run->key,
		       state->spill + r * WORK_TILE_TOKENS + run->first - keys.from,
		       run->count * sizeof(float));
}

/* The stretches of V that a row with this mask sees, in ascending order of keys. */
static uint32_t find_spans(const struct fold *f, const struct block *b, const struct runs *runs,
			   uint64_t mask, struct vec_span *spans)
{
	size_t line = f->job->shape->head_dim * work_dtype_bytes(f->job->shape->dtype);
	uint32_t n = 0;

	for (uint32_t i = 0; i < runs->n; i++) {
		const struct run *run = &runs->at[i];
		uint64_t bits = mask >> run->key & low_bits(run->count);
		const char *v = run->k + b->shift + f->pages->value_bytes + run->first * line;

		while (bits) {
			uint32_t skip = (uint32_t)__builtin_ctzll(bits);
			uint64_t rest = ~(bits >> skip);
			uint32_t count = rest ? (uint32_t)__builtin_ctzll(rest) : 64;

			spans[n++] = (struct vec_span){v + skip * line, run->key + skip, count};
			bits &= ~(low_bits(count) << skip);
		}
	}
	return n;
}

/* Rows that see the same keys go together. */
static void add_values(const struct fold *f, struct fold_state *state, const struct block *b,
		       const struct runs *runs)
{
	uint32_t dim = f->job->shape->head_dim;
	struct vec_span spans[WORK_TILE_TOKENS];

	for (uint32_t r = 0, end; r < b->n_rows; r = end) {
		for (end = r + 1; end < b->n_rows && b->mask[end] == b->mask[r];)
			end++;
		if (!b->mask[r])
			continue;

		struct vec_values a = {
			.s = state->s + r * WORK_TILE_TOKENS,
			.shrink = b->shrink + r,
			.spans = spans,
			.n_spans = find_spans(f, b, runs, b->mask[r], spans),
			.o = state->o + (size_t)(b->row + r) * dim,
			.n_rows = end - r,
			.head_dim = dim,
		};

		f->vec->values[f->job->shape->dtype](&a);
	}
}

static void fold_block(const struct fold *f, struct fold_state *state, struct block *b,
		       const struct runs *runs)
{
	for (uint32_t i = 0; i < runs->n; i++)
		score_run(f, state, b, &runs->at[i]);

	struct vec_softmax a = {
		.s = state->s,
		.mask = b->mask,
		.max = state->max + b->row,
		.sum = state->sum + (size_t)b->row * VEC_LANES_MAX,
		.shrink = b->shrink,
		.n_rows = b->n_rows,
	};

	f->vec->softmax(&a);
	add_values(f, state, b, runs);
}

/* Of a KV head, whose rows begin at base. */
struct head_rows {
	uint32_t base, first, end;
};

/* b says where the head's KV is. */
static void fold_head(const struct fold *f, struct fold_state *state, struct block *b,
		      const struct runs *runs, struct head_rows rows)
{
	uint32_t group = group_of(f), size = block_rows(group);

	for (uint32_t row = rows.first; row < rows.end; row += b->n_rows) {
		uint32_t in = row % size;

		b->row = rows.base + row;
		b->n_rows = min_u32(size - in, rows.end - row);
		b->q = state->q + (size_t)(b->row / size) * VEC_BLOCK * f->job->shape->head_dim +
		       in;
		for (uint32_t r = 0; r < b->n_rows; r++)
			b->mask[r] = state->mask[(row - rows.first + r) / group];
		fold_block(f, state, b, runs);
	}
}

static void tell_keys(const struct fold *f, const struct block *b, const struct run *run)
{
	size_t bytes = work_dtype_bytes(f->job->shape->dtype);
	size_t line = f->job->shape->page_tokens * bytes;
	struct stretch keys = scored_keys(f, run);
	const char *k = run->k + b->shift + keys.from * bytes;

	access_read_lines(k, (keys.to - keys.from) * bytes, line, f->job->shape->head_dim);
}

/* The KV of a head that n tokens read of a tile, each byte once for all their rows (accesses.h). */
static void tell_head(const struct fold *f, const struct block *b, const struct runs *runs,
		      const uint64_t *mask, uint32_t n)
{
	size_t line = f->job->shape->head_dim * work_dtype_bytes(f->job->shape->dtype);
	struct vec_span spans[WORK_TILE_TOKENS];
	uint64_t seen = 0;
	uint32_t n_spans;

	for (uint32_t i = 0; i < n; i++)
		seen |= mask[i];
	for (uint32_t i = 0; i < runs->n; i++)
		tell_keys(f, b, &runs->at[i]);
	n_spans = find_spans(f, b, runs, seen, spans);
	for (uint32_t i = 0; i < n_spans; i++)
		access_read(spans[i].v, spans[i].count * line);
}

static void fold_tile(const struct fold *f, struct fold_state *state, const struct work_tile *tile,
		      const struct runs *runs)
{
	uint32_t lo = max_u32(tile->row_begin, f->begin), hi = min_u32(tile->row_end, f->end);
	uint32_t group = group_of(f), stride = fold_stride(group, (f->end - f->begin) * group);

	if (lo >= hi)
		return;
	find_masks(f, tile, lo, hi, state->mask);
	for (uint32_t h = 0; h < f->n_heads; h++) {
		struct block b = {.shift = h * f->pages->block_bytes};
		struct head_rows rows = {h * stride, (lo - f->begin) * group,
					 (hi - f->begin) * group};

		if (ACCESSES_ARE_TOLD)
			tell_head(f, &b, runs, state->mask, hi - lo);
		fold_head(f, state, &b, runs, rows);
	}
}

static void start_rows(const struct fold *f, struct fold_state *state)
{
	uint32_t group = group_of(f), stride = fold_stride(group, (f->end - f->begin) * group);
	size_t n = (size_t)stride * f->n_heads;

	assert(n <= FOLD_ROWS);
	for (uint32_t h = 0; h < f->n_heads; h++)
		pack_q(f, state, f->head + h, h * stride);
	memset(state->o, 0, n * f->job->shape->head_dim * sizeof(float));
	memset(state->sum, 0, n * VEC_LANES_MAX * sizeof(float));
	for (size_t i = 0; i < n; i++)
		state->max[i] = -INFINITY;
}

void fold_run(const struct fold *f, struct fold_state *state)
{
	const struct work_tile *tiles = f->job->list->tiles + f->item->tile;

	start_rows(f, state);
	for (uint32_t i = 0; i < f->item->n_tiles; i++) {
		struct runs runs;

		find_runs(f, &tiles[i], &runs);
		fold_tile(f, state, &tiles[i], &runs);
	}
}

float fold_sum(const struct fold_state *state, uint32_t row)
{
	const float *lanes = state->sum + (size_t)row * VEC_LANES_MAX;
	float sum = lanes[0];

#pragma GCC unroll 16
	for (uint32_t i = 1; i < VEC_LANES_MAX; i++)
		sum += lanes[i];
	return sum;
}
