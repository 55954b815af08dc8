/*
 * live.c - extending, publishing, accepting and voiding; see store.h.
 *
 * Each call reserves all memory and pages first and changes things afterwards. Joining the tree has
 * two halves for that reason: join_prepare finds how much the tree has by now and makes room for
 * the rest, join_commit does it.
 */
#include "proto/arith.h"
#include "proto/cleanup.h"
#include "live_rows.h"
#include "position.h"
#include "prompt.h"
#include "kvstore/tiers/want.h"
#include "kvstore/store.h"
#include "kvstore/tree/claim.h"
#include "kvstore/tiers/evict.h"
#include "kvstore/tiers/move.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/radix.h"
#include "kvstore/tiers/stripe.h"
#include "tail.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct store_model *model_of(const struct store_seq *q)
{
	return q->node->namespace->holding->model;
}

/* Slots that n tokens at a row take. */
static uint32_t slots_needed(const struct store_seq *q, uint32_t row, uint32_t n)
{
	return (uint32_t)(((uint64_t)row + n - 1) / model_of(q)->lent.page_tokens) + 1;
}

/* Nothing of what was in the array is kept. */
static int array_reserve(struct blocks *blocks, void **array, uint32_t *capacity, uint32_t n,
			 size_t item_bytes)
{
	size_t bytes = n * item_bytes;

	if (n <= *capacity)
		return 0;
	void *grown = blocks_get(blocks, &bytes);
	if (!grown)
		return -ENOMEM;
	blocks_put(blocks, *array, *capacity * item_bytes);
	*array = grown;
	*capacity = (uint32_t)(bytes / item_bytes);
	return 0;
}

static int live_reserve(struct store_seq *q, uint32_t n, uint32_t n_slots)
{
	struct blocks *blocks = &node_store(q->node)->blocks;
	int r = array_reserve(blocks, (void **)&q->ids, &q->ids_capacity, n, sizeof(*q->ids));

	if (!r)
		r = array_reserve(blocks, (void **)&q->slots, &q->slots_capacity, n_slots,
				  sizeof(*q->slots));
	return r;
}

/* The page of the last token, where the path ends at the end of this node; PAGES_NONE: it is none
 * of the device's. */
static uint32_t page_before(const struct store_seq *q, const struct store_node *end)
{
	if (q->tail.n > 0)
		return tail_last_page(q);
	return end->n_slices > 0 && tail_is_resident(q) ? end->slices[end->n_slices - 1].page
							: PAGES_NONE;
}

/* May the tokens at this row go on in that page? */
static bool page_goes_on(const struct store_seq *q, uint32_t page, uint32_t row)
{
	const struct store_model *m = model_of(q);

	return row > 0 && page != PAGES_NONE &&
	       pages_at(&m->store->pages, &m->lent, page)->fill == row;
}

/* The pages are in slots[].page; hands out their rows. */
static void live_fill(struct store_seq *q, uint32_t row, uint32_t n)
{
	struct store_model *m = model_of(q);

	for (uint32_t i = 0; i < q->n_slots; i++) {
		uint32_t room = m->lent.page_tokens - row;
		uint32_t count = min_u32(n, room);
		q->slots[i] = pages_fill(&m->store->pages, &m->lent, q->slots[i].page, count);
		n -= count;
		row = 0;
	}
}

struct take {
	uint32_t page; /* of the last token before */
	uint32_t row, n, n_slots;
	bool draft;
	bool goes_on; /* in the path's last page */
};

/* Of a striped model: the device of each new page. */
static void take_devices(struct store_seq *q, const struct take *t, struct stripe *stripe)
{
	uint32_t page_tokens = model_of(q)->lent.page_tokens, row = t->row, n = t->n;

	for (uint32_t i = 0; i < t->n_slots; i++) {
		uint32_t room = page_tokens - row, count = min_u32(n, room);
		if (i > 0 || !t->goes_on)
			q->slots[i].page = stripe_choose(stripe, room, count);
		else
			stripe_go_on(stripe, t->page, count);
		n -= count;
		row = 0;
	}
}

/* The same of a draft, all on one; it leaves the path's last page where it is needed elsewhere. */
static void take_device(struct store_seq *q, struct take *t, struct stripe *stripe)
{
	uint32_t device = t->goes_on ? pages_device(&model_of(q)->lent, t->page) : 0;

	if (t->n_slots > 1 && !(t->goes_on && stripe_allows(stripe, device, t->n)))
		t->goes_on = false;
	if (!t->goes_on)
		device = stripe_choose(stripe, t->n, t->n);
	for (uint32_t i = t->goes_on; i < t->n_slots; i++)
		q->slots[i].page = device;
}

/* Pages for an extension, in slots[].page. */
static int live_take(struct store_seq *q, struct take *t)
{
	struct stripe stripe;

	for (uint32_t i = 0; i < t->n_slots; i++)
		q->slots[i].page = 0;
	if (model_of(q)->lent.n_devices > 1) {
		stripe_begin(&stripe, q->node, q->n_path);
		if (t->draft)
			take_device(q, t, &stripe);
		else
			take_devices(q, t, &stripe);
	}
	int r = evict_take(q->node->namespace, t->goes_on ? 0 : t->row, q->slots + t->goes_on,
			   t->n_slots - t->goes_on);
	if (!r && t->goes_on)
		q->slots[0].page = t->page;
	return r;
}

/* Would the tokens be refused when they are to join the tree? */
static int check_path(struct store_seq *q)
{
	struct store_node *n = q->node;

	if (q->n_path < node_end(n) || !tail_is_resident(q) ||
	    radix_may_go_on(n, position_is_alone(q, n)))
		return 0;
	return -EMLINK;
}

static int live_extend(struct store_seq *q, const uint32_t *ids, uint32_t n, bool draft)
{
	struct store *s = node_store(q->node);
	struct store_node *upper = NULL;
	uint32_t row = (q->n_path + q->tail.n) % model_of(q)->lent.page_tokens;
	uint32_t n_slots = slots_needed(q, row, n);
	int r = check_path(q);

	if (!r)
		r = live_reserve(q, n, n_slots);
	if (!r && q->n_path < node_end(q->node))
		r = radix_split_prepare(q->node, q->n_path - q->node->pos, &upper);
	if (r)
		return r;
	struct take take = {page_before(q, upper ? upper : q->node), row, n, n_slots, draft, false};
	take.goes_on = page_goes_on(q, take.page, row);
	r = live_take(q, &take);
	if (r) {
		node_free(s, upper);
		return r;
	}
	if (upper)
		radix_split(q->node, upper);
	q->n_slots = n_slots;
	q->n_live = n;
	q->draft = draft;
	live_fill(q, row, n);
	memcpy(q->ids, ids, n * sizeof(*ids));
	return 0;
}

/* The page of the last token there is, be it live. */
static uint32_t last_page(const struct store_seq *q)
{
	return q->n_live > 0 ? q->slots[q->n_slots - 1].page : page_before(q, q->node);
}

uint32_t store_seq_foresee(const struct store_seq *q, uint32_t n, struct store_foresight *foresight,
			   struct store_slice *ret)
{
	struct store_model *m = model_of(q);
	const struct store_holding *h = q->node->namespace->holding;
	uint32_t row = (q->n_path + q->n_live) % m->lent.page_tokens;
	uint32_t page = last_page(q), n_slots = 0;

	/* Inside a node an extension cuts that in two; of what is not there nobody makes plans. */
	if (q->n_path < node_end(q->node) || !tail_is_resident(q))
		return 0;
	if (!page_goes_on(q, page, row))
		page = pages_look_on(&m->store->pages, &h->pages, foresight);
	for (; n > 0 && page != PAGES_NONE; row = 0) {
		uint32_t room = m->lent.page_tokens - row, count = min_u32(n, room);

		ret[n_slots++] = (struct store_slice){page, (uint16_t)row, (uint16_t)count};
		n -= count;
		page = n > 0 ? pages_look_on(&m->store->pages, &h->pages, foresight) : page;
	}
	return n > 0 ? 0 : n_slots;
}

bool store_model_get_ready(struct store_model *m, const struct store_foresight *foresight)
{
	return pages_make_spare(&m->store->pages, &m->lent, foresight->n_empty);
}

/* Are these more than there would be if all else went? */
static bool is_hopeless(const struct store_seq *q, uint32_t n_slots)
{
	const struct store_model *m = model_of(q);
	const struct pages_account *account = &q->node->namespace->holding->domain->pages;
	uint64_t n_extents = m->store->config.n_extents;

	if (account->max_extents > 0 && account->max_extents < n_extents)
		n_extents = account->max_extents;
	return n_slots > n_extents * m->lent.extent_pages ||
	       (account->max_bytes > 0 && n_slots * m->lent.page_bytes > account->max_bytes);
}

/* What is used makes room where nothing else can. */
static bool may_make_room(struct store_seq *q, int error, uint32_t n)
{
	uint32_t row = (q->n_path + q->tail.n) % model_of(q)->lent.page_tokens;

	return (error == -ENOSPC || error == -EDQUOT) && !is_hopeless(q, slots_needed(q, row, n)) &&
	       tail_make_room(q);
}

int store_seq_extend(struct store_seq *q, const uint32_t *ids, uint32_t n, bool draft,
		     uint64_t now_ns)
{
	struct store *s = position_enter(q, now_ns);
	int r;

	if (q->n_live > 0)
		return -EBUSY;
	if (n == 0 || !ids || n > s->config.max_seq_tokens ||
	    q->n_path + q->tail.n > s->config.max_seq_tokens - n)
		return -EINVAL;
	want_end(s, q);
	if (s->tiers)
		moves_retire(s); /* pages of copies that have ended may be had */
	do
		r = live_extend(q, ids, n, draft);
	while (may_make_room(q, r, n));
	if (r)
		live_rows_end(q);
	if (!r && q->claims && !prompt_agrees(q, q->n_path, ids, n))
		claim_end(s, q);
	return r;
}

struct join {
	const uint32_t *ids;
	uint32_t n;
	uint32_t n_adopted; /* of them in the tree by now, on the device */
	uint32_t n_filled; /* of the others in the tree, in lower tiers: they get the own rows */
	struct store_position at; /* where these end */
	struct radix_graft graft; /* for the others, if any */
};

/* How far the tree goes on in lower tiers; a node ends there. */
static int fill_prepare(struct store *s, struct join *j)
{
	struct store_position end = j->at;
	uint32_t n_filled =
		radix_match_anywhere(s, &end, j->ids + j->n_adopted, j->n - j->n_adopted);

	if (n_filled == 0)
		return 0;
	if (node_path(s, end.node) == 0)
		return -ENOMEM;
	int r = radix_split_at(&end);
	if (r)
		return r;
	j->n_filled = n_filled;
	j->at = end;
	return 0;
}

static int join_prepare(struct store_seq *q, const uint32_t *ids, uint32_t n, struct join *ret)
{
	struct join j = {.ids = ids, .n = n, .at = {.node = q->node, .n_path = q->n_path}};
	int r = 0;

	assert(q->n_path == node_end(q->node));
	j.n_adopted = radix_match(node_store(q->node), &j.at, ids, n);
	if (j.n_adopted < n && node_store(q->node)->tiers)
		r = fill_prepare(node_store(q->node), &j);
	uint32_t n_new = n - j.n_adopted - j.n_filled;
	if (!r && n_new > 0)
		r = radix_graft_prepare(j.at, n_new,
					slots_needed(q, j.at.n_path % model_of(q)->lent.page_tokens,
						     n_new),
					position_is_alone(q, j.at.node), &j.graft);
	if (!r)
		*ret = j;
	return r;
}

static void join_commit(struct store_seq *q, struct join *j, uint64_t now_ns)
{
	struct store *s = node_store(q->node);
	struct store_node *n = j->at.node;
	const uint32_t *ids = j->ids + j->n_adopted + j->n_filled;
	uint32_t n_new = j->n - j->n_adopted - j->n_filled;

	live_rows_keep(q, j->n_adopted, j->n);
	if (j->n_filled > 0)
		q->n_slots = live_rows_fill(s, n, q->slots, q->n_slots);
	if (n_new > 0)
		n = radix_graft_commit(&j->graft, ids[0]);
	if (j->n_adopted > 0 || q->draft)
		q->path_version++;
	position_move_down(q, n, q->n_path + j->n);
	if (n_new > 0)
		node_append(n, ids, n_new, q->slots, q->n_slots);
	s->stats.tokens_published += j->n - j->n_adopted;
	s->stats.tokens_dropped += j->n_adopted;
	prompt_pass(q, j->ids, j->n);
	live_rows_end(q);
	claim_move(s, q);
	claim_renew(s, q, now_ns);
}

/* What is to become the tail's is nobody's to wait for. Room is reserved. */
static void tail_publish(struct store_seq *q, const uint32_t *ids, uint32_t n)
{
	struct store *s = node_store(q->node);

	tail_append(q, ids, n);
	s->stats.tokens_published += n;
	claim_end(s, q);
	prompt_drop(q);
	s->epoch++;
}

int store_seq_publish(struct store_seq *q, uint64_t now_ns)
{
	struct join join;

	position_enter(q, now_ns);
	if (q->n_live == 0 || q->draft)
		return -EINVAL;
	bool resident = tail_is_resident(q);
	int r = resident ? join_prepare(q, q->ids, q->n_live, &join) : tail_reserve(q, q->n_live);
	if (r)
		return r;
	if (resident)
		join_commit(q, &join, now_ns);
	else
		tail_publish(q, q->ids, q->n_live);
	return 0;
}

static bool indices_ok(const struct store_seq *q, const uint32_t *indices, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (indices[i] >= q->n_live || (i > 0 && indices[i] <= indices[i - 1]))
			return false;
	return true;
}

/* Page and row of a live token; every slot but the last reaches to the end of its page. */
static void live_slot(const struct store_seq *q, uint32_t token, uint32_t *ret_page,
		      uint32_t *ret_row)
{
	uint32_t page_tokens = model_of(q)->lent.page_tokens;
	uint32_t at = (q->n_path + q->tail.n) % page_tokens + token;

	*ret_page = q->slots[at / page_tokens].page;
	*ret_row = at % page_tokens;
}

/* Moves for the accepted tokens from first on; those before have rows in the tree already. */
static uint32_t live_moves(const struct store_seq *q, const uint32_t *indices, uint32_t first,
			   uint32_t n, struct store_move *ret)
{
	uint32_t n_moves = 0;

	for (uint32_t i = first; i < n; i++) {
		if (indices[i] == i)
			continue;
		struct store_move *m = &ret[n_moves++];
		live_slot(q, indices[i], &m->from_page, &m->from_row);
		live_slot(q, i, &m->to_page, &m->to_row);
	}
	return n_moves;
}

/* Those that stay, in order, are to be published; the caller still reads rows that go now. */
static int live_accept(struct store_seq *q, const uint32_t *indices, uint32_t n, uint64_t now_ns,
		       struct store_moves *ret)
{
	CLEANUP_FREE uint32_t *ids = malloc(n * sizeof(*ids));
	struct pages *pages = &node_store(q->node)->pages;
	struct join join = {.n_adopted = 0};
	bool resident = tail_is_resident(q);

	if (!ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = q->ids[indices[i]];
	int r = resident ? join_prepare(q, ids, n, &join) : tail_reserve(q, n);
	if (r)
		return r;
	pages_hold(pages);
	ret->n = live_moves(q, indices, join.n_adopted, n, ret->moves);
	if (resident)
		join_commit(q, &join, now_ns);
	else
		tail_publish(q, ids, n);
	return 0;
}

int store_seq_accept(struct store_seq *q, const uint32_t *indices, uint32_t n, uint64_t now_ns,
		     struct store_moves *ret)
{
	position_enter(q, now_ns);
	if (!q->draft || n > q->n_live || !indices_ok(q, indices, n))
		return -EINVAL;
	if (n > 0)
		return live_accept(q, indices, n, now_ns, ret);
	live_rows_drop(q);
	ret->n = 0;
	return 0;
}

void store_seq_void(struct store_seq *q, uint64_t now_ns)
{
	position_enter(q, now_ns);
	live_rows_drop(q);
}

uint32_t store_seq_n_live(const struct store_seq *q)
{
	return q->n_live;
}

const struct store_slice *store_seq_slots(const struct store_seq *q, uint32_t *ret_n)
{
	*ret_n = q->n_slots;
	return q->slots;
}
