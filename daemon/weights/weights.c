/*
 * weights.c - the table of weights: who has them, who stands for whom.
 *
 * The lock is held for moments; memory is given back outside it, as gigabytes take their time. Who
 * may load is load_slots.c's, who may have room share.c's, and who goes for it room.c's.
 */
#include "content.h"
#include "load_slots.h"
#include "share.h"
#include "table.h"

#include "proto/clock.h"
#include "daemon/base/log_user.h"
#include "proto/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct weights_config *weights_config(const struct weights *weights)
{
	return &weights->home->config;
}

int weights_table_new(const struct weights_config *config, struct weights_table **ret)
{
	struct weights_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	table->config = *config;
	pthread_mutex_init(&table->lock, NULL);
	pthread_cond_init(&table->over, NULL);
	TAILQ_INIT(&table->all);
	*ret = table;
	return 0;
}

void weights_free(struct weights *weights)
{
	const struct weights_config *config = &weights->home->config;

	if (weights->content.memory)
		config->ops->program->weights_free(config->backend, weights->content.memory);
	ledger_give(config->ledger, LEDGER_WEIGHTS, weights->content.bytes);
	content_done(&weights->content);
	free(weights->files);
	free(weights);
}

void weights_table_end_loads(struct weights_table *table)
{
	if (!table)
		return;
	atomic_store(&table->ending, true);
	pthread_mutex_lock(&table->lock);
	while (table->n_loads > 0)
		pthread_cond_wait(&table->over, &table->lock);
	pthread_mutex_unlock(&table->lock);
}

void weights_table_free(struct weights_table *table)
{
	struct weights *weights;
	struct hanging *hanging;

	if (!table)
		return;
	weights_table_end_loads(table);
	while ((weights = TAILQ_FIRST(&table->all))) {
		TAILQ_REMOVE(&table->all, weights, link);
		weights_free(weights);
	}
	while ((hanging = SLIST_FIRST(&table->hanging))) {
		SLIST_REMOVE_HEAD(&table->hanging, link);
		free(hanging);
	}
	pthread_cond_destroy(&table->over);
	pthread_mutex_destroy(&table->lock);
	free(table);
}

/* ---- references ----------------------------------------------------------------------------- */

struct weights *weights_ref(struct weights *weights)
{
	pthread_mutex_lock(&weights->home->lock);
	weights->n_refs++;
	pthread_mutex_unlock(&weights->home->lock);
	return weights;
}

/* Under the lock. Of one that nobody has: out of the table where there is nothing to keep. Those
 * that are being loaded have the thread's reference. */
static bool unref_locked(struct weights *weights)
{
	if (--weights->n_refs == 1 && weights_state(weights) == WEIGHTS_LOADING && !weights->same)
		load_slots_cancel(weights);
	if (weights->n_refs > 0)
		return false;
	weights->used = ++weights->home->n_uses;
	if (weights_state(weights) == WEIGHTS_READY && !weights->same)
		return false;
	TAILQ_REMOVE(&weights->home->all, weights, link);
	return true;
}

void weights_unref(struct weights *weights)
{
	struct weights_table *table;
	struct weights *same = NULL;
	bool goes;

	if (!weights)
		return;
	table = weights->home;
	pthread_mutex_lock(&table->lock);
	goes = unref_locked(weights);
	if (goes)
		same = weights->same;
	pthread_mutex_unlock(&table->lock);
	if (goes)
		weights_free(weights);
	weights_unref(same);
}

struct weights *weights_real(struct weights *weights)
{
	struct weights_table *table = weights->home;

	pthread_mutex_lock(&table->lock);
	while (weights->same)
		weights = weights->same;
	pthread_mutex_unlock(&table->lock);
	return weights;
}

struct weights *weights_ready(struct weights *weights)
{
	struct weights *real = weights_real(weights);

	/* They were others' before they were ready. */
	return weights_state(real) == WEIGHTS_READY ? weights_real(real) : NULL;
}

/* ---- to load -------------------------------------------------------------------------------- */

static struct weights *weights_new(struct weights_table *table, uid_t domain)
{
	struct weights *weights = calloc(1, sizeof(*weights));

	if (!weights)
		return NULL;
	weights->home = table;
	weights->domain = domain;
	weights->loader_fd = -1;
	weights->begin_ns = clock_now_ns();
	weights->n_refs = 2; /* the caller's, and the thread's */
	return weights;
}

int weights_enter(struct weights_table *table, uid_t domain, struct weights **ret)
{
	struct weights *weights = weights_new(table, domain);
	bool may;

	if (!weights)
		return -ENOMEM;
	pthread_mutex_lock(&table->lock);
	may = load_slots_ask(table, domain);
	if (may) {
		weights->number = ++table->last_number;
		weights->loads = true;
		TAILQ_INSERT_TAIL(&table->all, weights, link);
		table->n_loads++;
	}
	pthread_mutex_unlock(&table->lock);
	if (!may) {
		weights_free(weights);
		return -EAGAIN;
	}
	*ret = weights;
	return 0;
}

void weights_leave(struct weights *weights)
{
	struct weights_table *table = weights->home;

	pthread_mutex_lock(&table->lock);
	TAILQ_REMOVE(&table->all, weights, link);
	table->n_loads--;
	pthread_mutex_unlock(&table->lock);
	weights_free(weights);
}

/* ---- to who loads --------------------------------------------------------------------------- */

/* Of files that are there, or on their way. */
static bool has_same_files(const struct weights *other, const struct weights *weights)
{
	return other->files && weights_state(other) != WEIGHTS_FAILED &&
	       !atomic_load(&other->cancelled) && !other->fresh &&
	       other->n_files == weights->n_files &&
	       memcmp(other->files, weights->files, other->n_files * sizeof(*other->files)) == 0 &&
	       share_may_be_used(other);
}

static bool has_same_bytes(const struct weights *other, const struct weights *weights)
{
	return weights_state(other) == WEIGHTS_READY &&
	       memcmp(&other->content.digest, &weights->content.digest,
		      sizeof(other->content.digest)) == 0;
}

/* Under the lock. other stands for these from now on. What was read last says what they are known
 * by. */
static void stand_for(struct weights *other, struct weights *weights)
{
	struct loader_file *files = other->files;
	uint32_t n_files = other->n_files;

	other->n_refs++;
	weights->same = other;
	if (!other->fresh || weights->fresh)
		return;
	other->files = weights->files;
	other->n_files = weights->n_files;
	other->fresh = false;
	weights->files = files;
	weights->n_files = n_files;
}

/* Under the lock: others of the user's stand for these if there are such. */
static bool find_same(struct weights *weights,
		      bool (*is_same)(const struct weights *other, const struct weights *weights))
{
	struct weights *other;

	TAILQ_FOREACH (other, &weights->home->all, link) {
		if (other == weights || other->same || other->domain != weights->domain ||
		    !is_same(other, weights))
			continue;
		stand_for(other, weights);
		return true;
	}
	return false;
}

bool weights_are_known(struct weights *weights, struct loader_file *files, uint32_t n, bool fresh)
{
	struct weights_table *table = weights->home;
	bool known;

	pthread_mutex_lock(&table->lock);
	weights->files = files;
	weights->n_files = n;
	weights->fresh = fresh;
	known = find_same(weights, has_same_files);
	pthread_mutex_unlock(&table->lock);
	return known;
}

void weights_make_ready(struct weights *weights)
{
	struct weights_table *table = weights->home;

	pthread_mutex_lock(&table->lock);
	(void)find_same(weights, has_same_bytes);
	/* Who wanted them to end came too late. */
	atomic_store(&weights->cancelled, false);
	/* Pairs with the acquire of weights_state. */
	atomic_store_explicit(&weights->state, WEIGHTS_READY, memory_order_release);
	pthread_mutex_unlock(&table->lock);
}

void weights_lend_loader(struct weights *weights, int fd)
{
	pthread_mutex_lock(&weights->home->lock);
	weights->loader_fd = fd;
	pthread_mutex_unlock(&weights->home->lock);
}

void weights_thread_over(struct weights *weights)
{
	struct weights_table *table = weights->home;

	weights_unref(weights);
	pthread_mutex_lock(&table->lock);
	table->n_loads--;
	pthread_cond_signal(&table->over);
	pthread_mutex_unlock(&table->lock);
}

/* Of a load that came to nothing, or to what is there already: its memory goes at once. */
static void strip(struct weights *weights)
{
	struct weights_table *table = weights->home;
	const struct weights_config *c = &table->config;
	struct backend_weights *memory = weights->content.memory;

	if (weights_state(weights) == WEIGHTS_READY && !weights->same)
		return;
	weights->content.memory = NULL;
	if (memory)
		c->ops->program->weights_free(c->backend, memory);
	ledger_give(c->ledger, LEDGER_WEIGHTS, weights->content.bytes);
	pthread_mutex_lock(&table->lock);
	content_done(&weights->content);
	weights->content.bytes = weights->content.names_bytes = 0;
	pthread_mutex_unlock(&table->lock);
}

static void say_end(const struct weights *weights)
{
	if (weights->same)
		log_user(weights->domain, "weights %" PRIu64 " of uid %u are weights %" PRIu64,
			 weights->number, weights->domain, weights->same->number);
	else if (weights_state(weights) == WEIGHTS_READY)
		log_user(weights->domain, "weights %" PRIu64 " of uid %u: %u tensors, %s",
			 weights->number, weights->domain, weights->content.n_tensors,
			 size_text(weights->content.bytes, 0).text);
	else
		log_user(weights->domain, "weights %" PRIu64 " of uid %u cannot be had: %s",
			 weights->number, weights->domain, weights->why);
}

void weights_load_over(struct weights *weights, pid_t pid)
{
	struct weights_table *table = weights->home;
	struct hanging *hanging = pid ? malloc(sizeof(*hanging)) : NULL;

	strip(weights);
	say_end(weights);
	if (hanging)
		*hanging = (struct hanging){.pid = pid, .domain = weights->domain};
	pthread_mutex_lock(&table->lock);
	if (hanging)
		SLIST_INSERT_HEAD(&table->hanging, hanging, link);
	weights->loads = false;
	pthread_mutex_unlock(&table->lock);
	weights_thread_over(weights);
}

/* ---- to who lists them ---------------------------------------------------------------------- */

uint32_t weights_rows(struct weights_table *table, uint64_t after, struct weights_row *ret,
		      uint32_t n)
{
	const struct weights *w;
	uint32_t i = 0;

	pthread_mutex_lock(&table->lock);
	TAILQ_FOREACH (w, &table->all, link) {
		if (w->number <= after || w->same || i == n)
			continue;
		ret[i++] = (struct weights_row){
			.number = w->number,
			.domain = w->domain,
			.state = weights_state(w),
			.n_refs = w->n_refs,
			.n_tensors = weights_state(w) == WEIGHTS_READY ? w->content.n_tensors : 0,
			.bytes = w->content.bytes,
			.bytes_done = atomic_load(&w->bytes_done),
			.bytes_all = atomic_load(&w->bytes_all),
		};
	}
	pthread_mutex_unlock(&table->lock);
	return i;
}

const struct weights_config *weights_table_config(const struct weights_table *table)
{
	return &table->config;
}

const struct ledger *weights_ledger(const struct weights_table *table)
{
	return table->config.ledger;
}
