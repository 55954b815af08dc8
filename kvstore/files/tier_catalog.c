/*
 * tier_catalog.c - models and images, in tables and in the journal.
 *
 * What is new goes to the journal first, what goes leaves the tables first: so the journal never
 * has less than the tables. Replayed in order, images are kept whose path before them is whole.
 * When the journal is full, or much of it is of no use, all that is needed is written anew. A
 * model's record goes to the journal before that of its first image, so that a number may be given
 * again once no image has it.
 */
#include "tier_catalog.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum record_type { RECORD_MODEL = 1, RECORD_IMAGE = 2, RECORD_SHORTER = 3 };

/* Of an image the first n_tokens are left; 0: it is gone. */
struct record_shorter {
	uint64_t id;
	uint32_t place;
	uint32_t n_tokens;
};

_Static_assert(sizeof(struct tier_model) == 160 && sizeof(struct tier_image) == 64 &&
		       sizeof(struct record_shorter) == 16,
	       "as they lie in files");

static uint32_t image_bytes(const struct tier_image *image)
{
	return (uint32_t)(sizeof(*image) + image->n_tokens * sizeof(image->tokens[0]));
}

/* Of a model's page; 0: too large for a chunk. */
static uint32_t units_of(const struct tier_catalog *c, uint64_t page_bytes)
{
	uint64_t n = ceil_div_u64(page_bytes, c->unit_bytes);

	return n <= c->room.chunk_units ? (uint32_t)n : 0;
}

bool tier_catalog_follows(const struct tier_catalog *c, const struct tier_image *image)
{
	uint64_t n_units = (uint64_t)c->room.n_chunks * c->room.chunk_units;

	if (image->pos == 0)
		return true;
	const struct tier_image *before = image->before < n_units ? c->images[image->before] : NULL;
	return before && before->id == image->before_id && before->model == image->model &&
	       before->domain == image->domain && before->salt == image->salt &&
	       before->pos < image->pos && before->pos + before->n_tokens >= image->pos;
}

static uint64_t model_record_bytes(void)
{
	return tier_journal_record_bytes(sizeof(struct tier_model));
}

static uint64_t image_record_bytes(const struct tier_image *image)
{
	return tier_journal_record_bytes(image_bytes(image));
}

/* The image leaves the table; its place is another matter. */
static void image_forget(struct tier_catalog *c, uint32_t place)
{
	struct tier_image *image = c->images[place];
	struct tier_model_entry *entry = &c->models[image->model - 1];

	tier_shares_take(&c->shares, image->domain, image_record_bytes(image));
	if (--entry->n_images == 0) {
		tier_shares_take(&c->shares, entry->payer, model_record_bytes());
		c->n_kept_models--;
	}
	free(image);
	c->images[place] = NULL;
}

static void image_shorten(struct tier_catalog *c, struct tier_image *image, uint32_t n_tokens)
{
	tier_shares_take(&c->shares, image->domain, image_record_bytes(image));
	image->n_tokens = n_tokens;
	tier_shares_add(&c->shares, image->domain, image_record_bytes(image));
}

static int image_remember(struct tier_catalog *c, const struct tier_image *image)
{
	struct tier_model_entry *entry = &c->models[image->model - 1];
	struct tier_image *copy = malloc(image_bytes(image));

	if (!copy || tier_shares_reserve(&c->shares, image->domain)) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, image, image_bytes(image));
	c->images[image->place] = copy;
	tier_shares_add(&c->shares, image->domain, image_record_bytes(image));
	if (entry->n_images++ == 0) {
		entry->payer = image->domain;
		c->n_kept_models++;
		tier_shares_add(&c->shares, entry->payer, model_record_bytes());
	}
	return 0;
}

/* As many models as the journal could have records of. */
static uint64_t max_models(const struct tier_catalog *c)
{
	return c->journal.area_bytes / model_record_bytes();
}

/* The table has an entry of this number. -ENOMEM. */
static int models_reserve(struct tier_catalog *c, uint32_t number)
{
	if (number <= c->n_models)
		return 0;
	struct tier_model_entry *models = realloc(c->models, number * sizeof(*models));
	if (!models)
		return -ENOMEM;
	memset(models + c->n_models, 0, (number - c->n_models) * sizeof(*models));
	c->models = models;
	c->n_models = number;
	return 0;
}

static int replay_model(struct tier_catalog *c, const struct tier_model *model, uint32_t bytes)
{
	if (bytes != sizeof(*model) || model->number == 0 || model->number > max_models(c) ||
	    (model->number <= c->n_models && c->models[model->number - 1].n_images > 0) ||
	    model->page_tokens == 0 || model->page_bytes == 0 ||
	    memchr(model->name, 0, sizeof(model->name)) == NULL)
		return -EINVAL;
	int r = models_reserve(c, model->number);
	if (!r)
		c->models[model->number - 1] =
			(struct tier_model_entry){.model = *model, .logged = true};
	return r;
}

static int replay_image(struct tier_catalog *c, const struct tier_image *image, uint32_t bytes)
{
	if (bytes < sizeof(*image) || image->n_tokens == 0 ||
	    bytes != sizeof(*image) + image->n_tokens * sizeof(uint64_t) / 2 || image->model == 0 ||
	    image->model > c->n_models || image->id <= c->last_id)
		return -EINVAL;
	const struct tier_model *m = &c->models[image->model - 1].model;
	if (m->page_tokens == 0 ||
	    image->pos % m->page_tokens + (uint64_t)image->n_tokens > m->page_tokens ||
	    (uint64_t)image->pos + image->n_tokens > UINT32_MAX ||
	    (image->pos == 0) != (image->before == TIER_NONE) ||
	    !tier_room_claim(&c->room, image->place, units_of(c, m->page_bytes)))
		return -EINVAL;
	int r = image_remember(c, image);
	if (r) {
		tier_room_unref(&c->room, image->place);
		return r;
	}
	c->last_id = image->id;
	return 0;
}

static int replay_shorter(struct tier_catalog *c, const struct record_shorter *shorter,
			  uint32_t bytes)
{
	uint64_t n_units = (uint64_t)c->room.n_chunks * c->room.chunk_units;
	struct tier_image *image = bytes == sizeof(*shorter) && shorter->place < n_units
					   ? c->images[shorter->place]
					   : NULL;

	if (!image || image->id != shorter->id || shorter->n_tokens >= image->n_tokens)
		return -EINVAL;
	if (shorter->n_tokens > 0) {
		image_shorten(c, image, shorter->n_tokens);
		return 0;
	}
	image_forget(c, shorter->place);
	tier_room_unref(&c->room, shorter->place);
	return 0;
}

static int replay(void *ctx, uint32_t type, const void *body, uint32_t bytes)
{
	switch (type) {
	case RECORD_MODEL:
		return replay_model(ctx, body, bytes);
	case RECORD_IMAGE:
		return replay_image(ctx, body, bytes);
	case RECORD_SHORTER:
		return replay_shorter(ctx, body, bytes);
	default:
		return -EINVAL;
	}
}

/* Images whose paths are whole, which are to be had, and those that are not. */
static int catalog_count(struct tier_catalog *c)
{
	struct tier_image **images;
	uint64_t n;
	int r = tier_catalog_images(c, &images, &n);

	if (r)
		return r;
	bool *whole = calloc((uint64_t)c->room.n_chunks * c->room.chunk_units, sizeof(*whole));
	for (uint64_t i = 0; whole && i < n; i++) {
		const struct tier_image *image = images[i];

		if (!tier_catalog_follows(c, image) || (image->pos > 0 && !whole[image->before])) {
			c->report.n_lost++;
			continue;
		}
		whole[image->place] = true;
		c->report.n_images++;
		c->report.n_tokens += image->n_tokens;
	}
	free(images);
	if (!whole)
		return -ENOMEM;
	free(whole);
	c->report.n_models = c->n_kept_models;
	c->report.n_records = c->journal.n_records;
	return 0;
}

int tier_catalog_open(struct tier_catalog *c, int fd, const struct tier_head *head, bool fresh)
{
	*c = (struct tier_catalog){
		.journal = {.fd = fd,
			    .at = {TIER_HEAD_BYTES, TIER_HEAD_BYTES + head->journal_bytes},
			    .area_bytes = head->journal_bytes,
			    .file_id = head->id},
		.unit_bytes = head->unit_bytes,
		.report = {.version = head->version,
			   .unit_bytes = head->unit_bytes,
			   .file_bytes = tier_head_file_bytes(head),
			   .n_units = head->n_units},
	};
	int r = tier_room_init(&c->room, head->n_units, head->chunk_units);
	if (!r) {
		uint64_t n_units = (uint64_t)c->room.n_chunks * c->room.chunk_units;
		c->images = calloc(n_units, sizeof(struct tier_image *));
		r = c->images ? 0 : -ENOMEM;
	}
	if (!r && fresh)
		r = tier_journal_format(&c->journal);
	else if (!r)
		r = tier_journal_replay(&c->journal, replay, c, &c->report.journal_torn);
	if (!r)
		r = catalog_count(c);
	if (r)
		tier_catalog_close(c);
	return r;
}

void tier_catalog_close(struct tier_catalog *c)
{
	uint64_t n_units = (uint64_t)c->room.n_chunks * c->room.chunk_units;

	for (uint64_t i = 0; c->images && i < n_units; i++)
		free(c->images[i]);
	free(c->images);
	free(c->models);
	tier_shares_done(&c->shares);
	tier_room_done(&c->room);
	*c = (struct tier_catalog){0};
}

static int copy_all(const struct tier_catalog *c, struct tier_image *const *images, uint64_t n,
		    struct tier_journal_copy *copy)
{
	int r = 0;

	for (uint32_t i = 0; i < c->n_models && !r; i++)
		if (c->models[i].n_images > 0)
			r = tier_journal_copy_add(copy, RECORD_MODEL, &c->models[i].model,
						  sizeof(c->models[i].model));
	for (uint64_t i = 0; i < n && !r; i++)
		r = tier_journal_copy_add(copy, RECORD_IMAGE, images[i], image_bytes(images[i]));
	return r;
}

/* By id: as they were kept. */
static int compare_ids(const void *a, const void *b)
{
	const struct tier_image *x = *(struct tier_image *const *)a;
	const struct tier_image *y = *(struct tier_image *const *)b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* What is not needed any more leaves the journal. -ENOMEM: nothing has changed; other errors are
 * final. */
static int catalog_compact(struct tier_catalog *c)
{
	struct tier_journal_copy copy;
	struct tier_image **images;
	uint64_t n;
	int r = tier_catalog_images(c, &images, &n);

	if (r)
		return r;
	r = tier_journal_copy_begin(&c->journal, &copy);
	if (!r) {
		qsort(images, n, sizeof(struct tier_image *), compare_ids);
		r = copy_all(c, images, n, &copy);
		if (r)
			tier_journal_copy_free(&copy);
		else
			r = tier_journal_copy_commit(&c->journal, &copy);
	}
	free(images);
	for (uint32_t i = 0; i < c->n_models && !r; i++)
		c->models[i].logged = c->models[i].n_images > 0;
	if (!r)
		c->behind = false;
	return r;
}

uint64_t tier_catalog_bytes(uint64_t n_images, uint32_t n_tokens)
{
	struct tier_image image = {.n_tokens = n_tokens};

	return n_images * (image_record_bytes(&image) + model_record_bytes());
}

/* An eighth of the area stays, so that a compaction pays. */
uint64_t tier_catalog_room(const struct tier_catalog *c)
{
	uint64_t room = c->journal.area_bytes - TIER_JOURNAL_BLOCK;

	return room - room / 8;
}

/* Something new, which the tables have already: a journal that is written anew has it too. */
static int append(struct tier_catalog *c, enum record_type type, const void *body, uint32_t bytes)
{
	if (c->behind)
		return catalog_compact(c);
	int r = tier_journal_append(&c->journal, type, body, bytes);
	return r == -ENOSPC && c->shares.bytes < tier_catalog_room(c) ? catalog_compact(c) : r;
}

static bool model_is(const struct tier_model *a, const struct tier_model *b)
{
	return !strcmp(a->name, b->name) && a->page_bytes == b->page_bytes &&
	       a->page_tokens == b->page_tokens && a->fingerprint[0] == b->fingerprint[0] &&
	       a->fingerprint[1] == b->fingerprint[1];
}

/* Of a model that has one; else one that is free, or the next. */
static uint32_t model_number(const struct tier_catalog *c, const struct tier_model *model)
{
	uint32_t free_number = 0;

	for (uint32_t i = 0; i < c->n_models; i++) {
		if (model_is(&c->models[i].model, model))
			return i + 1;
		if (!free_number && c->models[i].n_images == 0)
			free_number = i + 1;
	}
	return free_number ? free_number : c->n_models + 1;
}

int tier_catalog_model(struct tier_catalog *c, const struct tier_model *model,
		       uint32_t *inout_number)
{
	uint32_t number = *inout_number;

	if (number > 0 && number <= c->n_models && model_is(&c->models[number - 1].model, model))
		return 0;
	number = model_number(c, model);
	int r = number <= max_models(c) ? models_reserve(c, number) : -ENOSPC;
	if (r)
		return r;
	if (!model_is(&c->models[number - 1].model, model)) {
		c->models[number - 1] = (struct tier_model_entry){.model = *model};
		c->models[number - 1].model.number = number;
	}
	*inout_number = number;
	return 0;
}

/* The image, which the tables have, and its model before it. A journal that is written anew
 * meanwhile has both. */
static int image_log(struct tier_catalog *c, const struct tier_image *image)
{
	struct tier_model_entry *entry = &c->models[image->model - 1];
	uint64_t generation = c->journal.generation;

	if (!entry->logged) {
		int r = append(c, RECORD_MODEL, &entry->model, sizeof(entry->model));
		if (r || c->journal.generation != generation)
			return r;
		entry->logged = true;
	}
	return append(c, RECORD_IMAGE, image, image_bytes(image));
}

int tier_catalog_keep(struct tier_catalog *c, const struct tier_image *image)
{
	assert(!c->images[image->place] && image->model > 0 && image->model <= c->n_models);
	int r = image_remember(c, image);
	if (r)
		return r;
	struct tier_image *mine = c->images[image->place];
	mine->id = ++c->last_id;
	mine->before_id = mine->before == TIER_NONE ? 0 : c->images[mine->before]->id;
	mine->pad = 0;
	r = image_log(c, mine);
	if (r)
		image_forget(c, image->place);
	return r;
}

/* Something less, which the tables do not have any more. */
static void note_shorter(struct tier_catalog *c, const struct record_shorter *shorter)
{
	int r = tier_journal_append(&c->journal, RECORD_SHORTER, shorter, sizeof(*shorter));

	if (r == -ENOSPC)
		r = catalog_compact(c);
	c->behind = c->behind || r;
}

bool tier_catalog_unref(struct tier_catalog *c, uint32_t place)
{
	if (!tier_room_unref(&c->room, place))
		return false;
	if (!c->images[place])
		return true;
	struct record_shorter gone = {.id = c->images[place]->id, .place = place};
	image_forget(c, place);
	note_shorter(c, &gone);
	return true;
}

void tier_catalog_shorten(struct tier_catalog *c, uint32_t place, uint32_t pos)
{
	struct tier_image *image = c->images[place];

	assert(image && pos > image->pos && pos < image->pos + image->n_tokens);
	image_shorten(c, image, pos - image->pos);
	note_shorter(c, &(struct record_shorter){.id = image->id,
						 .place = place,
						 .n_tokens = image->n_tokens});
}

/* By place on their paths, so that none stands before what it follows. */
static int compare_images(const void *a, const void *b)
{
	const struct tier_image *x = *(struct tier_image *const *)a;
	const struct tier_image *y = *(struct tier_image *const *)b;

	if (x->pos != y->pos)
		return x->pos < y->pos ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

int tier_catalog_images(const struct tier_catalog *c, struct tier_image ***ret, uint64_t *ret_n)
{
	uint64_t n_units = (uint64_t)c->room.n_chunks * c->room.chunk_units;
	uint64_t n = 0;

	for (uint64_t i = 0; i < n_units; i++)
		n += c->images[i] != NULL;
	struct tier_image **images = malloc((n + 1) * sizeof(struct tier_image *));
	if (!images)
		return -ENOMEM;
	n = 0;
	for (uint64_t i = 0; i < n_units; i++)
		if (c->images[i])
			images[n++] = c->images[i];
	qsort(images, n, sizeof(struct tier_image *), compare_images);
	*ret = images;
	*ret_n = n;
	return 0;
}
