/*
 * move.c - copies down and up, reads and writes: begun, and taken note of when they have ended.
 *
 * What a move serves is looked for when it ends, by the node's id and by what the slice is then: a
 * tree that has changed since has no use for it, and the move only gives back what it held. Each
 * way has a queue in order of beginning, and a move takes effect when those before it have.
 */
#include "move.h"

#include "dirty.h"
#include "kvstore/tree/places.h"
#include "forget.h"
#include "proto/cleanup.h"
#include "kvstore/tree/border.h"
#include "kvstore/tree/lru.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/namespace.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define IO_BYTES (UINT64_C(2) << 20)

bool move_has_room(const struct tiers *t, enum tier_way way)
{
	return t->queues[way].n < t->depth;
}

static struct tier_move *move_new(struct store *s, struct store_holding *h, enum tier_way way)
{
	struct tier_queue *queue = &s->tiers->queues[way];
	struct tier_move *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->holding = h;
	v->file = TIER_NONE;
	h->n_moves++;
	TAILQ_INSERT_TAIL(&queue->moves, v, link);
	queue->n++;
	return v;
}

static void move_of_slice(struct tier_move *v, const struct store_node *n, uint32_t index,
			  uint32_t pos)
{
	v->node_id = n->id;
	v->pos = pos;
	v->slice = n->slices[index];
	v->n_dropped = n->residency->n_dropped;
}

static struct tier_copy copy_of(const struct store *s, const struct store_model *m,
				struct store_slice page, uint32_t host)
{
	return (struct tier_copy){
		.extent = page.page / m->lent.extent_pages,
		.offset_bytes = page.page % m->lent.extent_pages * m->lent.page_bytes,
		.bytes = m->lent.page_bytes,
		.host = tier_host_at(s->places.host, host),
		.page_tokens = m->lent.page_tokens,
		.first = page.first,
		.count = page.count,
	};
}

int move_down(struct store *s, struct store_holding *h, struct store_slice page, uint32_t host,
	      uint64_t *ret_token)
{
	struct tiers *t = s->tiers;
	struct tier_move *v = move_new(s, h, TIER_DOWN);
	struct tier_copy copy = copy_of(s, h->model, page, host);

	if (!v)
		return -ENOMEM;
	v->slice = page;
	v->host = host;
	places_ref(t->places, STORE_HOST, host);
	t->places->host->filling[host] = true;
	v->token = t->mover.down(t->mover.ctx, &copy);
	*ret_token = v->token;
	return 0;
}

int move_up(struct store *s, struct store_node *n, uint32_t index, struct store_slice page)
{
	struct tiers *t = s->tiers;
	struct store_residency *res = n->residency;
	struct tier_move *v = move_new(s, n->namespace->holding, TIER_UP);
	uint32_t host = n->slices[index].page;
	struct tier_copy copy = copy_of(s, node_model(n), page, host);

	if (!v)
		return -ENOMEM;
	move_of_slice(v, n, index, 0);
	v->slice.page = page.page;
	v->host = host;
	places_ref(t->places, STORE_HOST, host);
	res->n_rising++;
	v->token = t->mover.up(t->mover.ctx, &copy);
	return 0;
}

int move_read(struct store *s, struct store_node *n, uint32_t index, uint32_t host)
{
	struct tiers *t = s->tiers;
	struct tier_move *v = move_new(s, n->namespace->holding, TIER_READ);

	if (!v)
		return -ENOMEM;
	move_of_slice(v, n, index, 0);
	v->host = host;
	v->file = n->residency->images[index];
	v->state = MOVE_IO;
	places_ref(t->places, STORE_FILE, v->file);
	n->residency->n_reading++;
	tier_file_read(t->places->file, v->file, tier_host_at(t->places->host, host),
		       node_model(n)->lent.page_bytes, v);
	return 0;
}

static void write_begin_io(struct tiers *t, struct tier_move *v)
{
	v->state = MOVE_IO;
	tier_file_write(t->places->file, v->file, tier_host_at(t->places->host, v->host),
			v->holding->model->lent.page_bytes, v);
}

int move_write(struct store *s, struct store_node *n, uint32_t index, struct move_source from,
	       uint32_t file)
{
	struct tier_move *v = move_new(s, n->namespace->holding, TIER_WRITE);

	if (!v)
		return -ENOMEM;
	uint32_t pos = n->pos + n->residency->backed_tokens;
	for (uint32_t i = n->residency->n_backed; i < index; i++)
		pos += n->slices[i].count;
	move_of_slice(v, n, index, pos);
	v->host = from.host;
	v->file = file;
	v->token = from.token;
	v->state = from.token ? MOVE_COPYING : MOVE_READY;
	n->residency->n_writing++;
	return 0;
}

static void move_free(struct store *s, struct tier_move *v, enum tier_way way)
{
	struct store_holding *h = v->holding;
	struct store_node *n = node_by_id(s, v->node_id);

	if (n)
		border_note(n);
	TAILQ_REMOVE(&s->tiers->queues[way].moves, v, link);
	s->tiers->queues[way].n--;
	free(v);
	h->n_moves--;
	holding_prune(h);
}

static bool same_rows(struct store_slice a, struct store_slice b)
{
	return a.first == b.first && a.count == b.count;
}

static void retire_down(struct store *s, struct tier_move *v)
{
	struct tiers *t = s->tiers;

	t->places->host->filling[v->host] = false;
	t->stats.tiers[STORE_HOST].bytes_in += v->holding->model->lent.page_bytes;
	places_unref(s, STORE_HOST, v->host);
}

/* Is this slice, in host memory, the next one of the node to be on the device? */
static bool rises(const struct store_node *n, const struct tier_move *v)
{
	const struct store_residency *res = n->residency;

	return res->n_device < res->n_memory && n->slices[res->n_device].page == v->host &&
	       same_rows(n->slices[res->n_device], v->slice) &&
	       node_n_device(n->parent) == n->parent->n_slices;
}

static void retire_up(struct store *s, struct tier_move *v)
{
	struct store_holding *h = v->holding;
	struct store_node *n = node_by_id(s, v->node_id);
	struct store_residency *res = n ? n->residency : NULL;

	if (res && res->n_rising > 0)
		res->n_rising--;
	s->tiers->stats.tiers[STORE_HOST].bytes_out += h->model->lent.page_bytes;
	if (res && rises(n, v)) {
		n->slices[res->n_device++].page = v->slice.page;
		res->device_tokens += v->slice.count;
		h->n_idle_slices += n->listed;
		places_unref(s, STORE_HOST, v->host); /* the slice's */
		lru_update(n);
	} else {
		pages_drop(&s->pages, &h->pages, v->slice);
	}
	places_unref(s, STORE_HOST, v->host);
}

/* Is this image's slice the next one of the node to be in memory? */
static bool arrives(const struct store_node *n, const struct tier_move *v)
{
	const struct store_residency *res = n->residency;

	return res->n_memory < res->n_backed && res->images[res->n_memory] == v->file &&
	       same_rows(n->slices[res->n_memory], v->slice) &&
	       node_n_memory(n->parent) == n->parent->n_slices;
}

static void retire_read(struct store *s, struct tier_move *v)
{
	struct store_node *n = node_by_id(s, v->node_id);
	struct store_residency *res = n ? n->residency : NULL;

	if (res && res->n_reading > 0)
		res->n_reading--;
	s->tiers->stats.images_bad += v->result != 0;
	s->tiers->stats.tiers[STORE_FILE].bytes_out +=
		v->result ? 0 : v->holding->model->lent.page_bytes;
	if (res && v->result == 0 && arrives(n, v)) {
		n->slices[res->n_memory++].page = v->host;
		lru_update(n);
	} else {
		places_unref(s, STORE_HOST, v->host);
		if (res && v->result && arrives(n, v))
			forget_from(s, n, res->n_memory);
	}
	places_unref(s, STORE_FILE, v->file);
}

/* Is this slice the next one of the node to be in the file? Another in its place may have as many
 * tokens in the same rows, once any was dropped. */
static bool lasts(const struct store_node *n, const struct tier_move *v)
{
	const struct store_residency *res = n->residency;

	return res->n_dropped == v->n_dropped && res->n_backed < n->n_slices &&
	       n->pos + res->backed_tokens == v->pos &&
	       same_rows(n->slices[res->n_backed], v->slice) &&
	       res->n_backed < res->images_capacity &&
	       node_n_backed(n->parent) == n->parent->n_slices;
}

static int model_number(struct tier_catalog *c, struct store_model *m)
{
	struct tier_model model = {
		.fingerprint = {m->fingerprint[0], m->fingerprint[1]},
		.page_bytes = m->lent.page_bytes,
		.page_tokens = m->lent.page_tokens,
	};

	memcpy(model.name, m->name, sizeof(model.name));
	return tier_catalog_model(c, &model, &m->file_number);
}

/* The image of the node's next slice to be in the file. 0 or -errno. */
static int image_keep(struct store *s, const struct store_node *n, const struct tier_move *v)
{
	struct tier_catalog *c = tier_file_catalog(s->places.file);
	const struct store_residency *res = n->residency;
	const struct store_node *above = res->n_backed > 0 ? n : n->parent;
	uint32_t n_before = res->n_backed > 0 ? res->n_backed : above->n_slices;
	size_t tokens_bytes = v->slice.count * sizeof(uint32_t);
	CLEANUP_FREE struct tier_image *image = malloc(sizeof(*image) + tokens_bytes);

	if (!image)
		return -ENOMEM;
	int r = model_number(c, node_model(n));
	if (r)
		return r;
	*image = (struct tier_image){
		.domain = n->namespace->holding->domain->id,
		.salt = n->namespace->salt,
		.checksum = v->checksum,
		.place = v->file,
		.before = n_before > 0 ? above->residency->images[n_before - 1] : TIER_NONE,
		.model = node_model(n)->file_number,
		.pos = v->pos,
		.n_tokens = v->slice.count,
	};
	memcpy(image->tokens, n->tokens + res->backed_tokens, tokens_bytes);
	return tier_catalog_keep(c, image);
}

static void retire_write(struct store *s, struct tier_move *v)
{
	struct tiers *t = s->tiers;
	struct store_node *n = node_by_id(s, v->node_id);
	struct store_residency *res = n ? n->residency : NULL;
	int r = 0;

	if (v->result)
		dirty_clear(t, v->result);
	if (res && res->n_writing > 0)
		res->n_writing--;
	if (!v->result && res && lasts(n, v)) {
		r = image_keep(s, n, v);
		if (!r) {
			res->images[res->n_backed++] = v->file;
			res->backed_tokens += v->slice.count;
			v->file = TIER_NONE;
			t->stats.tiers[STORE_FILE].bytes_in += v->holding->model->lent.page_bytes;
			lru_update(n);
			/* at once: whose images make room for others' need not be written again */
			if (res->n_backed == n->n_slices)
				dirty_remove(t, n);
		}
	}
	if (r)
		dirty_clear(t, r == -EIO ? r : 0);
	places_unref(s, STORE_HOST, v->host);
	if (v->file != TIER_NONE)
		places_unref(s, STORE_FILE, v->file);
}

static void retire_ended(struct store *s, enum tier_way way)
{
	struct tier_move *v;

	while ((v = TAILQ_FIRST(&s->tiers->queues[way].moves)) && v->state == MOVE_ENDED) {
		if (way == TIER_DOWN)
			retire_down(s, v);
		else if (way == TIER_UP)
			retire_up(s, v);
		else if (way == TIER_READ)
			retire_read(s, v);
		else
			retire_write(s, v);
		move_free(s, v, way);
	}
}

static void copies_end(struct tier_queue *queue, uint64_t done, enum move_state then)
{
	struct tier_move *v;

	TAILQ_FOREACH (v, &queue->moves, link)
		if (v->state == MOVE_COPYING && v->token <= done)
			v->state = then;
}

/* As much at a time as a disk brings in one go: what comes next is to be asked for meanwhile, and
 * each byte of it is verified here. */
static void io_end(struct tiers *t)
{
	struct tier_done done;

	for (uint64_t bytes = 0;
	     bytes < IO_BYTES && t->places->file && tier_file_next(t->places->file, &done);) {
		struct tier_move *v = done.tag;
		bytes += v->holding->model->lent.page_bytes;
		v->result = done.result;
		v->checksum = done.checksum;
		v->state = MOVE_ENDED;
	}
}

/* Pages that are in host memory by now go on to the file: not many at a time either, as each byte
 * is summed up. */
static void writes_go_on(struct tiers *t)
{
	struct tier_move *v;
	uint64_t bytes = 0;

	TAILQ_FOREACH (v, &t->queues[TIER_WRITE].moves, link) {
		if (v->state != MOVE_READY)
			continue;
		if (bytes >= IO_BYTES || !tier_file_has_room(t->places->file))
			return;
		write_begin_io(t, v);
		bytes += v->holding->model->lent.page_bytes;
	}
}

void moves_retire_down(struct store *s)
{
	struct tiers *t = s->tiers;
	uint64_t done = t->mover.downs_done(t->mover.ctx);

	copies_end(&t->queues[TIER_DOWN], done, MOVE_ENDED);
	copies_end(&t->queues[TIER_WRITE], done, MOVE_READY);
	retire_ended(s, TIER_DOWN);
}

void moves_retire(struct store *s)
{
	struct tiers *t = s->tiers;

	moves_retire_down(s);
	copies_end(&t->queues[TIER_UP], t->mover.ups_done(t->mover.ctx), MOVE_ENDED);
	io_end(t);
	retire_ended(s, TIER_UP);
	retire_ended(s, TIER_READ);
	retire_ended(s, TIER_WRITE);
	if (t->places->file)
		writes_go_on(t);
}

static uint32_t n_under_way(const struct tiers *t)
{
	uint32_t n = 0;

	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		n += t->queues[way].n;
	return n;
}

void moves_drain(struct store *s)
{
	struct tiers *t = s->tiers;

	for (t->mover.kick(t->mover.ctx); n_under_way(t) > 0; sched_yield()) {
		moves_retire(s);
		if (t->places->file)
			tier_file_kick(t->places->file);
	}
}
