/*
 * room.c - room for weights, and which weights go for it.
 *
 * Booked is what the backend takes: weights in whole grains, scratch to the byte. What a load needs
 * is booked under the table's lock first, so that two loads never have the same room; the memory
 * itself is taken and given back outside it, by the threads that load. What nobody refers to goes,
 * the longest unused first: a user's own for the user's limit, anybody's for that of all and for
 * what KV has left. Who may have room is share.c's.
 *
 * Names of tensors are heap of the daemon's, which has limits of its own and goes with its weights.
 */
#include "share.h"
#include "table.h"

#include "proto/clock.h"
#include "daemon/base/log_user.h"
#include "kernels/thread.h"
#include "proto/size_text.h"

#include "proto/arith.h"
#include "kernels/say.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define IDLE_MAX 32u /* of a domain that nobody refers to: each is looked at under the lock */

/* Under the lock: what nobody refers to and was used the longest ago, of a domain or of all; it is
 * about to go. */
static struct weights *idle_take(struct weights_table *table, const uid_t *domain)
{
	struct weights *weights, *oldest = NULL;

	TAILQ_FOREACH (weights, &table->all, link)
		if (weights->n_refs == 0 && (!domain || weights->domain == *domain) &&
		    (!oldest || weights->used < oldest->used))
			oldest = weights;
	if (!oldest)
		return NULL;
	TAILQ_REMOVE(&table->all, oldest, link);
	ledger_announce(table->config.ledger, LEDGER_WEIGHTS, oldest->content.bytes);
	return oldest;
}

static bool has_too_many_idle(const struct weights_table *table, uid_t domain)
{
	const struct weights *weights;
	uint32_t n = 0;

	TAILQ_FOREACH (weights, &table->all, link)
		n += weights->n_refs == 0 && weights->domain == domain;
	return n > IDLE_MAX;
}

/* Under the lock: whether there is room, or which limit is in the way. Nothing goes for who is
 * refused. */
static int make_room(const struct weights *weights, enum weights_kind kind, uint64_t bytes,
		     struct weights_list *ret_go)
{
	struct weights_table *table = weights->home;
	const uid_t *domain = &weights->domain;
	struct weights *idle;
	int r = share_check(table, kind, *domain, bytes);

	if (r < 0)
		return r;
	while ((share_is_beyond(table, kind, domain, bytes) || has_too_many_idle(table, *domain)) &&
	       (idle = idle_take(table, domain)))
		TAILQ_INSERT_TAIL(ret_go, idle, link);
	while (share_is_beyond(table, kind, NULL, bytes) && (idle = idle_take(table, NULL)))
		TAILQ_INSERT_TAIL(ret_go, idle, link);
	return 0;
}

/* Out of the table already. */
static void free_idle(struct weights *idle)
{
	struct ledger *ledger = idle->home->config.ledger;
	uint64_t bytes = idle->content.bytes;

	log_user(idle->domain, "weights %" PRIu64 " of uid %u make room", idle->number,
		 idle->domain);
	weights_free(idle);
	ledger_announce_no_more(ledger, LEDGER_WEIGHTS, bytes);
}

static void free_list(struct weights_list *go)
{
	struct weights *idle;

	while ((idle = TAILQ_FIRST(go))) {
		TAILQ_REMOVE(go, idle, link);
		free_idle(idle);
	}
}

/* What goes beside who asks for its room, which the table awaits. */
struct going {
	struct weights_table *table;
	struct weights_list list;
};

static void *go_main(void *arg)
{
	struct going *going = arg;
	struct weights_table *table = going->table;

	pthread_setname_np(pthread_self(), "coppice-free");
	free_list(&going->list);
	free(going);
	pthread_mutex_lock(&table->lock);
	table->n_loads--;
	pthread_cond_signal(&table->over);
	pthread_mutex_unlock(&table->lock);
	return NULL;
}

static int go_start(struct weights_table *table, struct weights_list *go)
{
	struct going *going = malloc(sizeof(*going));
	pthread_t thread;

	if (!going)
		return -ENOMEM;
	going->table = table;
	TAILQ_INIT(&going->list);
	TAILQ_CONCAT(&going->list, go, link);
	int r = thread_start(NULL, go_main, going, &thread);

	if (r == 0) {
		pthread_detach(thread);
		return 0;
	}
	TAILQ_CONCAT(go, &going->list, link);
	free(going);
	return r;
}

/* To give gigabytes back takes a while, for which the scheduler is not to wait. */
static void free_beside(struct weights_table *table, struct weights_list *go)
{
	if (TAILQ_EMPTY(go))
		return;
	pthread_mutex_lock(&table->lock);
	table->n_loads++;
	pthread_mutex_unlock(&table->lock);
	if (go_start(table, go) == 0)
		return;
	free_list(go);
	pthread_mutex_lock(&table->lock);
	table->n_loads--;
	pthread_cond_signal(&table->over);
	pthread_mutex_unlock(&table->lock);
}

static bool free_oldest(struct weights_table *table, bool beside)
{
	struct weights_list go = TAILQ_HEAD_INITIALIZER(go);
	struct weights *idle;

	pthread_mutex_lock(&table->lock);
	idle = idle_take(table, NULL);
	pthread_mutex_unlock(&table->lock);
	if (!idle)
		return false;
	TAILQ_INSERT_TAIL(&go, idle, link);
	if (beside)
		free_beside(table, &go);
	else
		free_list(&go);
	return true;
}

/* Nobody wants them any more, or the table is to end. */
static bool wait_is_over(const void *ctx)
{
	const struct weights *weights = ctx;

	return atomic_load(&weights->cancelled) || atomic_load(&weights->home->ending);
}

/* Who does not wait asks again while there is something on its way back. */
static int take_or_begin(const struct weights *weights, uint64_t bytes)
{
	struct ledger *ledger = weights->home->config.ledger;
	/* what came back by then is seen by who takes */
	bool soon = ledger && atomic_load(&ledger->announced[LEDGER_WEIGHTS]) > 0;

	if (ledger_take(ledger, LEDGER_WEIGHTS, bytes) == 0)
		return 0;
	return soon || free_oldest(weights->home, true) ? -EAGAIN : -ENOBUFS;
}

/* What is on its way back is waited for, where it makes the room, before anything goes for it.
 * -ENOBUFS: KV is in the way, and nothing is left that nobody refers to. */
static int take_of_ledger(const struct weights *weights, uint64_t bytes,
			  const struct ledger_wait *wait)
{
	struct ledger *ledger = weights->home->config.ledger;

	if (!ledger_holds_weights(ledger, bytes))
		return -ENOBUFS;
	if (!wait)
		return take_or_begin(weights, bytes);
	while (ledger_take(ledger, LEDGER_WEIGHTS, bytes) < 0) {
		if (ledger_await(ledger, bytes, wait))
			continue;
		if (wait_is_over(weights))
			return -ECANCELED;
		if (!free_oldest(weights->home, false))
			return -ENOBUFS;
	}
	return 0;
}

/* Books so much of the table's in *booking. beside: who asks does not wait for what goes. */
static int book_of_table(struct weights *weights, enum weights_kind kind, uint64_t bytes,
			 uint64_t *booking, bool beside)
{
	struct weights_table *table = weights->home;
	struct weights_list go = TAILQ_HEAD_INITIALIZER(go);
	int r;

	pthread_mutex_lock(&table->lock);
	r = make_room(weights, kind, bytes, &go);
	if (r == 0)
		*booking += bytes;
	pthread_mutex_unlock(&table->lock);
	if (beside)
		free_beside(table, &go);
	else
		free_list(&go);
	return r;
}

/* And of the ledger. wait: for what others give back; NULL: not, then -EAGAIN where there is
 * some. */
static int book(struct weights *weights, uint64_t bytes, uint64_t *booking,
		const struct ledger_wait *wait)
{
	struct weights_table *table = weights->home;
	int r = book_of_table(weights, WEIGHTS_MEMORY, bytes, booking, !wait);

	if (r < 0)
		return r;
	r = take_of_ledger(weights, bytes, wait);
	if (r == 0)
		return 0;
	pthread_mutex_lock(&table->lock);
	*booking -= bytes;
	pthread_mutex_unlock(&table->lock);
	return r;
}

/* Weights of others, and KV, have it. */
static int refuse_by_ledger(const struct ledger *ledger, const char *what, uint64_t bytes,
			    char why[WEIGHTS_WHY_BYTES])
{
	say(why, WEIGHTS_WHY_BYTES,
	    "%s %s; KV has %s and weights %s of %s, the last %s are KV's: evict KV (coppicectl "
	    "evict), or make the pool smaller.",
	    what, size_text(bytes, 0).text, size_text(atomic_load(&ledger->of[LEDGER_KV]), 0).text,
	    size_text(atomic_load(&ledger->of[LEDGER_WEIGHTS]), 0).text,
	    size_text(ledger->max_bytes, 0).text, size_text(ledger->kept_bytes, 0).text);
	return -ENOSPC;
}

static int refuse_as_others(const struct weights_max *max, const char *what, uint64_t bytes,
			    const char *key, char why[WEIGHTS_WHY_BYTES])
{
	snprintf(why, WEIGHTS_WHY_BYTES,
		 "%s %s: of the last %s of %s (%s) a user gets no more than he leaves to others.",
		 what, size_text(bytes, 0).text, size_text(share_reserved_bytes(max), 0).text,
		 size_text(max->bytes, 0).text, key);
	return -ENOSPC;
}

/* what: the sentence's begin. */
static int refuse(const struct weights *weights, const char *what, uint64_t bytes, int r,
		  char why[WEIGHTS_WHY_BYTES])
{
	const struct weights_config *c = &weights->home->config;

	if (r == -ENOBUFS)
		return refuse_by_ledger(c->ledger, what, bytes, why);
	if (r == -EUSERS)
		return refuse_as_others(&c->memory, what, bytes, "weights", why);
	const char *whose = r == -EDQUOT ? "a user's weights may take (domain_weights)"
					 : "all weights may take (weights)";
	uint64_t limit = r == -EDQUOT ? c->memory.domain_bytes : c->memory.bytes;

	snprintf(why, WEIGHTS_WHY_BYTES,
		 "%s %s, which with what is in use is more than the %s that %s.", what,
		 size_text(bytes, 0).text, size_text(limit, 0).text, whose);
	return r;
}

int weights_take_names(struct weights *weights, uint64_t bytes)
{
	static const char what[] = "The names of their tensors take";
	const struct weights_max *max = &weights->home->config.names;
	int r = book_of_table(weights, WEIGHTS_NAMES, bytes, &weights->content.names_bytes, false);

	if (r == -EUSERS)
		return refuse_as_others(max, what, bytes, "weight_names", weights->why);
	if (r < 0)
		snprintf(weights->why, sizeof(weights->why),
			 "%s %s of the daemon's memory, which with those in use is more than "
			 "the %s that names may take %s.",
			 what, size_text(bytes, 0).text,
			 size_text(r == -EDQUOT ? max->domain_bytes : max->bytes, 0).text,
			 r == -EDQUOT ? "of a user's weights (domain_weight_names)"
				      : "of all weights (weight_names)");
	return r;
}

/* What the backend takes for them. */
static uint64_t grains(const struct weights_config *c, uint64_t bytes)
{
	uint64_t taken = align_to(max_u64(bytes, 1), c->ops->program->weights_grain);

	return taken >= bytes ? taken : UINT64_MAX;
}

static int say_overdue(struct weights *weights, bool by_rate)
{
	snprintf(weights->why, sizeof(weights->why),
		 "Their files came too slowly while another waited for a place (%s).",
		 by_rate ? "load_least_rate" : "max_load_s");
	return -ETIMEDOUT;
}

int weights_say_cancelled(struct weights *weights)
{
	enum weights_overdue overdue = atomic_load(&weights->overdue);

	if (overdue)
		return say_overdue(weights, overdue == WEIGHTS_TOO_SLOW);
	snprintf(weights->why, sizeof(weights->why), "Nobody waits for them any more.");
	return -ECANCELED;
}

int weights_take_room(struct weights *weights, uint64_t wanted)
{
	const struct weights_config *c = &weights->home->config;
	struct ledger_wait wait = ledger_wait_for(wait_is_over, weights);
	uint64_t bytes = grains(c, wanted);
	int r = book(weights, bytes, &weights->content.bytes, &wait);

	if (r == -ENOBUFS && ledger_ask_kv(c->ledger, bytes, &wait) == 0)
		r = book(weights, bytes, &weights->content.bytes, &wait);
	if (r < 0 && wait_is_over(weights))
		return weights_say_cancelled(weights);
	if (r < 0)
		return refuse(weights, "These weights take", bytes, r, weights->why);
	r = c->ops->program->weights_new(c->backend, bytes, &weights->content.memory);
	if (r < 0)
		snprintf(weights->why, sizeof(weights->why),
			 "There is no memory for %s of weights.", size_text(bytes, 0).text);
	return r;
}

int weights_take_scratch(struct weights *weights, uint64_t bytes, uint64_t *until_ns,
			 char why[WEIGHTS_WHY_BYTES])
{
	/* the scheduler asks, which is who gives */
	int r = book(weights, bytes, &weights->scratch_bytes, NULL);

	if (r == -EAGAIN && *until_ns == 0)
		*until_ns = ledger_wait_for(NULL, NULL).until_ns;
	/* others may bring and drop weights for ever */
	if (r == -EAGAIN && clock_now_ns() >= *until_ns)
		r = -ENOBUFS;
	if (r == -EAGAIN || r == 0)
		return r;
	return refuse(weights, "The program's scratch takes", bytes, r, why);
}

void weights_give_scratch(struct weights *weights, uint64_t bytes)
{
	pthread_mutex_lock(&weights->home->lock);
	weights->scratch_bytes -= bytes;
	pthread_mutex_unlock(&weights->home->lock);
	ledger_give(weights->home->config.ledger, LEDGER_WEIGHTS, bytes);
}

static uint64_t booked_now(struct weights_table *table, enum weights_kind kind)
{
	uint64_t bytes;

	pthread_mutex_lock(&table->lock);
	bytes = share_booked(table, kind, NULL);
	pthread_mutex_unlock(&table->lock);
	return bytes;
}

uint64_t weights_bytes(struct weights_table *table)
{
	return booked_now(table, WEIGHTS_MEMORY);
}

uint64_t weights_names_bytes(struct weights_table *table)
{
	return booked_now(table, WEIGHTS_NAMES);
}
