/*
 * select.c - blocks by their mass until there is enough, and the plan of those that are kept; see
 * select.h. What must be kept comes first. The others are dealt into buckets by mass rather than
 * sorted, which would take longer than the attention that is saved.
 */
#include "select.h"

#include "build.h"
#include "proto/arith.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct heavy {
	double mass;
	uint32_t block;
};

static int compare_heavy(const void *left, const void *right)
{
	const struct heavy *a = left, *b = right;

	if (a->mass != b->mass)
		return a->mass > b->mass ? -1 : 1;
	return a->block > b->block ? -1 : a->block < b->block;
}

/* A row of blocks, of which those that are needed are being chosen. */
struct choice {
	const struct select_config *config;
	const double *mass;
	uint64_t *kept;
	struct select_result result; /* so far */
};

static void mark(struct choice *c, uint32_t block)
{
	c->kept[block / 64] |= UINT64_C(1) << (block % 64);
	c->result.n_kept++;
}

static void keep(struct choice *c, uint32_t block)
{
	if (select_has(c->kept, block))
		return;
	mark(c, block);
	c->result.kept_mass += c->mass[block];
}

/* Does the kept mass do, with so much more? */
static bool is_enough(const struct choice *c, double more)
{
	return c->config->tau < 1 &&
	       c->result.kept_mass + more >= c->config->tau * c->result.total_mass;
}

/*
 * Sorting all would take longer than the attention that is saved, and where the line is drawn is
 * all that counts: so masses are dealt into buckets by size, the heaviest first, and those of the
 * bucket that the line goes through into finer ones.
 */
#define BUCKETS 256u
#define BUCKET_BITS 8u
#define FIRST_SHIFT 49u /* an eighth of an octave; the last bucket is all that is lighter */
#define SORTED_MOST 24u /* so few are sorted */

static uint64_t bits_of(double mass)
{
	uint64_t bits;

	memcpy(&bits, &mass, sizeof(bits));
	return bits;
}

/* The first bucket not all of whose blocks are needed, BUCKETS if there is none; the mass of those
 * before it is counted. */
static uint32_t find_line(struct choice *c, const double (*sums)[BUCKETS])
{
	uint32_t line = 0;

	for (; line < BUCKETS && !is_enough(c, (*sums)[line]); line++)
		c->result.kept_mass += (*sums)[line];
	return line;
}

/* Blocks whose masses are alike but for the last shift bits: returns how many the line goes through
 * now, which come first. */
static uint32_t refine(struct choice *c, struct heavy *some, uint32_t n, uint32_t shift)
{
	double sums[BUCKETS] = {0};
	uint32_t line, n_left = 0;

	for (uint32_t i = 0; i < n; i++)
		sums[BUCKETS - 1 - (bits_of(some[i].mass) >> shift) % BUCKETS] += some[i].mass;
	line = find_line(c, &sums);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t bucket = BUCKETS - 1 - (bits_of(some[i].mass) >> shift) % BUCKETS;

		if (bucket < line)
			mark(c, some[i].block);
		else if (bucket == line)
			some[n_left++] = some[i];
	}
	return n_left;
}

/* Blocks that may be left out: those from begin to end. */
struct field {
	uint32_t begin, end;
	uint64_t most; /* bits of the heaviest */
};

static uint32_t bucket_of(const struct field *f, double mass)
{
	uint64_t bucket = (f->most >> FIRST_SHIFT) - (bits_of(mass) >> FIRST_SHIFT);

	return bucket < BUCKETS ? (uint32_t)bucket : BUCKETS - 1;
}

/* Keeps what is heavier than the line's bucket; returns how many are in that. */
static uint32_t keep_above(struct choice *c, const struct field *f, uint32_t line,
			   struct heavy *ret_line)
{
	uint32_t n = 0, n_kept = 0;

	for (uint32_t i = f->begin, end; i < f->end; i = end) {
		uint64_t word = 0;

		end = min_u32((i / 64 + 1) * 64, f->end);
		for (uint32_t j = i; j < end; j++) {
			uint32_t bucket = bucket_of(f, c->mass[j]);

			word |= (uint64_t)(bucket < line) << (j % 64);
			n_kept += bucket < line;
			ret_line[n] = (struct heavy){c->mass[j], j};
			n += bucket == line;
		}
		c->kept[i / 64] |= word;
	}
	c->result.n_kept += n_kept;
	return n;
}

/* order: room for all blocks of the field, and one more. */
static void keep_heaviest(struct choice *c, const struct field *f, struct heavy *order)
{
	uint32_t line, n, shift = FIRST_SHIFT;
	double sums[BUCKETS] = {0};

	for (uint32_t i = f->begin; i < f->end; i++)
		sums[bucket_of(f, c->mass[i])] += c->mass[i];
	line = find_line(c, &sums);
	n = keep_above(c, f, line, order);
	while (n > SORTED_MOST && shift >= BUCKET_BITS && line < BUCKETS - 1) {
		shift -= BUCKET_BITS;
		n = refine(c, order, n, shift);
	}
	qsort(order, n, sizeof(*order), compare_heavy);
	for (uint32_t i = 0; i < n && !is_enough(c, 0); i++)
		keep(c, order[i].block);
}

int select_blocks(const struct select_config *config, const double *mass, uint32_t n,
		  uint64_t *ret_kept, struct select_result *ret)
{
	struct choice c = {.config = config, .mass = mass, .kept = ret_kept};
	struct field f = {.begin = min_u32(config->sink_blocks, n)};
	CLEANUP_FREE struct heavy *order = malloc((n + 1u) * sizeof(*order));

	if (!order)
		return -ENOMEM;
	memset(ret_kept, 0, select_n_words(n) * sizeof(*ret_kept));
	f.end = config->recent_blocks < n - f.begin ? n - config->recent_blocks : f.begin;
	for (uint32_t i = 0; i < n; i++) {
		c.result.total_mass += mass[i];
		if (i < f.begin || i >= f.end)
			keep(&c, i);
		else if (bits_of(mass[i]) > f.most)
			f.most = bits_of(mass[i]);
	}
	if (!is_enough(&c, 0))
		keep_heaviest(&c, &f, order);
	*ret = c.result;
	return 0;
}

struct select_range select_range_at(const struct select_chunk *chunk, uint32_t index)
{
	uint32_t begin = chunk->skip + index * chunk->block_tokens;
	uint32_t n = min_u32(chunk->n - begin, chunk->block_tokens);

	return (struct select_range){index ? begin : 0, begin + n};
}

/* Of a range whose last query stands in block `last`, the first in block `first`: what its queries
 * stand in is kept. */
static struct select_config range_config(const struct select_config *config, uint32_t first,
					 uint32_t last)
{
	struct select_config own = *config;

	own.recent_blocks = max_u32(own.recent_blocks, last - first + 1);
	return own;
}

/* select_blocks, of masses as they are estimated. */
static int select_one(const struct select_config *config, const float *mass, uint32_t n,
		      uint64_t *ret_kept, struct select_result *ret)
{
	CLEANUP_FREE double *masses = malloc(n * sizeof(*masses));

	if (!masses)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		masses[i] = (double)mass[i];
	return select_blocks(config, masses, n, ret_kept, ret);
}

int select_chunk(const struct select_config *config, const struct select_chunk *chunk,
		 const float *mass, uint64_t *ret_kept, struct select_shares *shares)
{
	uint32_t n = select_n_ranges(chunk), n_words = select_n_words(chunk->n_blocks);

	memset(ret_kept, 0, (size_t)n * n_words * sizeof(*ret_kept));
	for (uint32_t i = 0; i < n; i++) {
		struct select_range range = select_range_at(chunk, i);
		uint32_t first = (chunk->pos + range.begin) / chunk->block_tokens;
		uint32_t last = (chunk->pos + range.end - 1) / chunk->block_tokens;
		struct select_config own = range_config(config, first, last);
		struct select_result result;
		int r = select_one(&own, mass + (size_t)i * chunk->n_blocks, last + 1,
				   ret_kept + (size_t)i * n_words, &result);
		if (r)
			return r;
		shares->attended += (double)(range.end - range.begin) * result.n_kept;
		shares->visible += (double)(range.end - range.begin) * (last + 1);
		shares->kept_mass += result.kept_mass;
		shares->total_mass += result.total_mass;
	}
	return 0;
}

struct select {
	struct build build;
	const struct select_query *query;
	uint32_t block_tokens;
	uint32_t segment; /* of the item that is open, plus 1; 0: none is */
	uint32_t node; /* on the path: those before it have been passed */
};

static bool is_kept(const struct select *s, uint32_t pos)
{
	uint32_t block = pos / s->block_tokens;

	return !s->query->kept || block >= s->query->n_blocks || select_has(s->query->kept, block);
}

/* Tokens [from, to) of the path, which lie in one tile. */
static void add_tile(struct select *s, uint32_t from, uint32_t to, struct order_rows rows)
{
	const struct order *order = s->build.order;
	const struct work_node *nodes = s->build.tree->nodes;

	while (from < to) {
		const struct work_node *node = &nodes[order->path[s->node]];
		uint32_t end = node->pos + node->n_tokens;
		if (from >= end) {
			s->node++;
			continue;
		}
		build_tokens(&s->build, order->path[s->node], from, min_u32(end, to), rows);
		from = end;
	}
	build_tile_end(&s->build);
}

/* A row's partials are of segments, as with `none`. */
static void open_segment(struct select *s, uint32_t pos)
{
	uint32_t segment = pos / s->build.config->segment_tokens + 1;

	if (s->segment == segment)
		return;
	if (s->segment)
		build_item_end(&s->build);
	build_item(&s->build);
	s->segment = segment;
}

static void add_span(struct select *s, const struct order_span *span)
{
	struct order_rows rows = {span->row_begin, span->row_end};

	s->segment = 0;
	s->node = 0;
	for (uint32_t pos = span->start, next; pos < span->end; pos = next) {
		next = span->end - pos < WORK_TILE_TOKENS - pos % WORK_TILE_TOKENS
			       ? span->end
			       : pos + WORK_TILE_TOKENS - pos % WORK_TILE_TOKENS;
		if (!is_kept(s, pos))
			continue;
		open_segment(s, pos);
		add_tile(s, pos, next, rows);
	}
	if (s->segment)
		build_item_end(&s->build);
}

static int select_make(struct select *s, const struct select_query *queries)
{
	struct build *build = &s->build;
	struct order *order = build->order;
	int r = order_count(order, build->tree);

	if (!r)
		r = build_begin(build, NULL);
	if (r)
		return r;
	for (uint32_t i = 0; i < build->tree->n_queries; i++) {
		order_step(order, build->tree, &order->spans[i]);
		s->query = &queries[order->spans[i].query];
		add_span(s, &order->spans[i]);
	}
	return build_finish(build);
}

int select_plan(const struct plan_config *config, const struct work_tree *tree,
		const struct select_query *queries, uint32_t block_tokens, struct work_list *list)
{
	struct select s = {
		.build = {.config = config, .tree = tree, .list = list, .tiles_by_pos = true},
		.block_tokens = block_tokens,
	};

	build_empty(list);
	if (!config->group_heads || !block_tokens || block_tokens % WORK_TILE_TOKENS ||
	    !config->segment_tokens || config->segment_tokens % WORK_TILE_TOKENS)
		return -EINVAL;
	if (!list->scratch)
		list->scratch = calloc(1, sizeof(*list->scratch));
	if (!list->scratch)
		return -ENOMEM;
	s.build.scratch = list->scratch;
	s.build.order = &list->scratch->order;
	int r = select_make(&s, queries);
	if (r)
		build_empty(list);
	return r;
}
