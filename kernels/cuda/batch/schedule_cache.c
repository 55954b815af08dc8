/*
 * schedule_cache.c - see schedule_cache.h. What was asked for so long ago that nobody will ask for
 * it again makes room for what is new, and nothing else does.
 */
#include "schedule_cache.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a schedule is made from ------------------------------------------------------------ */

static bool is_same(const void *a, const void *b, size_t n, size_t size)
{
	return n == 0 || memcmp(a, b, n * size) == 0;
}

/* Pieces first: they name pages, which others' have not. */
static bool is_same_list(const struct work_list *a, const struct work_list *b)
{
	return a->n_rows == b->n_rows && a->n_items == b->n_items && a->n_tiles == b->n_tiles &&
	       a->n_pieces == b->n_pieces && a->kv_tokens_read == b->kv_tokens_read &&
	       is_same(a->pieces, b->pieces, a->n_pieces, sizeof(*a->pieces)) &&
	       is_same(a->rows, b->rows, a->n_rows, sizeof(*a->rows)) &&
	       is_same(a->items, b->items, a->n_items, sizeof(*a->items)) &&
	       is_same(a->tiles, b->tiles, a->n_tiles, sizeof(*a->tiles));
}

static bool is_of(const struct schedule_cache_entry *e, const struct schedule_want *want)
{
	return e->id && e->n_blocks == want->n_blocks &&
	       e->choice.work_tile_tokens == want->choice.work_tile_tokens &&
	       e->choice.share == want->choice.share &&
	       is_same(&e->shape, want->shape, 1, sizeof(e->shape)) &&
	       is_same(&e->costs, want->costs, 1, sizeof(e->costs)) &&
	       is_same_list(&e->list, want->list);
}

static void *copy_of(const void *from, size_t n, size_t size)
{
	void *copy = malloc(n * size + 1);

	return copy && n ? memcpy(copy, from, n * size) : copy;
}

static void list_free(struct work_list *list)
{
	free(list->rows);
	free(list->items);
	free(list->tiles);
	free(list->pieces);
	*list = (struct work_list){0};
}

/* False: no memory. */
static bool list_copy(struct work_list *to, const struct work_list *from)
{
	*to = (struct work_list){
		.n_rows = from->n_rows,
		.n_items = from->n_items,
		.n_tiles = from->n_tiles,
		.n_pieces = from->n_pieces,
		.kv_tokens_read = from->kv_tokens_read,
		.rows = copy_of(from->rows, from->n_rows, sizeof(*from->rows)),
		.items = copy_of(from->items, from->n_items, sizeof(*from->items)),
		.tiles = copy_of(from->tiles, from->n_tiles, sizeof(*from->tiles)),
		.pieces = copy_of(from->pieces, from->n_pieces, sizeof(*from->pieces)),
	};
	if (to->rows && to->items && to->tiles && to->pieces)
		return true;
	list_free(to);
	return false;
}

/* What a launch reads, and no memory of its making. False: no memory. */
static bool schedule_copy(struct schedule *to, const struct schedule *from)
{
	*to = *from;
	memset(to->arrays, 0, sizeof(to->arrays));
	memset(to->scratch, 0, sizeof(to->scratch));
	for (int i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		size_t size = schedule_entry_bytes(i);

		to->arrays[i].at = copy_of(from->arrays[i].at, from->n[i], size);
		to->arrays[i].bytes = from->n[i] * size;
		if (!to->arrays[i].at) {
			schedule_done(to);
			return false;
		}
	}
	return true;
}

/* ---- places ---------------------------------------------------------------------------------- */

static size_t bytes_of(const struct schedule *schedule, const struct work_list *list)
{
	size_t bytes = list->n_rows * sizeof(*list->rows) + list->n_items * sizeof(*list->items) +
		       list->n_tiles * sizeof(*list->tiles) +
		       list->n_pieces * sizeof(*list->pieces);

	for (int i = 0; i < SCHEDULE_N_ARRAYS; i++)
		bytes += schedule->n[i] * schedule_entry_bytes(i);
	return bytes;
}

static void drop(struct schedule_cache *cache, struct schedule_cache_entry *e)
{
	cache->bytes -= e->bytes;
	list_free(&e->list);
	schedule_done(&e->schedule);
	*e = (struct schedule_cache_entry){0};
}

/* Nobody will ask for it again, or it is empty. */
static bool is_old(const struct schedule_cache *cache, const struct schedule_cache_entry *e)
{
	return !e->id || cache->n_asked - e->asked > SCHEDULE_CACHE_PATIENCE;
}

static struct schedule_cache_entry *oldest(struct schedule_cache *cache)
{
	struct schedule_cache_entry *oldest = &cache->entries[0];

	for (uint32_t i = 1; i < SCHEDULE_CACHE_ENTRIES; i++)
		if (cache->entries[i].asked < oldest->asked)
			oldest = &cache->entries[i];
	return oldest;
}

/* An empty place, with room for so many bytes; NULL: what there is is needed. */
static struct schedule_cache_entry *find_place(struct schedule_cache *cache, size_t bytes)
{
	struct schedule_cache_entry *place = oldest(cache);

	if (bytes > SCHEDULE_CACHE_BYTES || !is_old(cache, place))
		return NULL;
	drop(cache, place);
	for (uint32_t i = 0; i < SCHEDULE_CACHE_ENTRIES; i++)
		if (cache->bytes + bytes > SCHEDULE_CACHE_BYTES &&
		    is_old(cache, &cache->entries[i]))
			drop(cache, &cache->entries[i]);
	return cache->bytes + bytes <= SCHEDULE_CACHE_BYTES ? place : NULL;
}

/* NULL: it is not kept. */
static struct schedule_cache_entry *keep(struct schedule_cache *cache,
					 const struct schedule_want *want,
					 const struct schedule *made)
{
	size_t bytes = bytes_of(made, want->list);
	struct schedule_cache_entry *e = find_place(cache, bytes);

	if (!e || !list_copy(&e->list, want->list))
		return NULL;
	if (!schedule_copy(&e->schedule, made)) {
		list_free(&e->list);
		return NULL;
	}
	e->id = ++cache->last_id;
	e->bytes = bytes;
	e->shape = *want->shape;
	e->choice = want->choice;
	e->costs = *want->costs;
	e->n_blocks = want->n_blocks;
	cache->bytes += bytes;
	return e;
}

static struct schedule_cache_entry *find(struct schedule_cache *cache,
					 const struct schedule_want *want)
{
	for (uint32_t i = 0; i < SCHEDULE_CACHE_ENTRIES; i++)
		if (is_of(&cache->entries[i], want))
			return &cache->entries[i];
	return NULL;
}

int schedule_cache_get(struct schedule_cache *cache, const struct schedule_want *want,
		       struct schedule *making, const struct schedule **ret, uint64_t *ret_id)
{
	struct schedule_cache_entry *e = find(cache, want);

	cache->n_asked++;
	if (!e) {
		int r = schedule_make(making, want);

		if (r)
			return r;
		e = keep(cache, want, making);
	}
	if (e)
		e->asked = cache->n_asked;
	*ret = e ? &e->schedule : making;
	*ret_id = e ? e->id : 0;
	return 0;
}

void schedule_cache_done(struct schedule_cache *cache)
{
	for (uint32_t i = 0; i < SCHEDULE_CACHE_ENTRIES; i++)
		drop(cache, &cache->entries[i]);
	*cache = (struct schedule_cache){0};
}
