/*
 * attack_before.c - see attack_before.h. The daemon is asked by root, and /proc.
 *
 * What victims have of their own moves while they live, and has a bound then: one who computes his
 * layers has a sequence of up to 300 tokens, one who has tokens computed one of 120. All else is
 * exactly as it was, and in the end that is, too.
 *
 * Three things stay, for whoever comes again, until others need their room: weights that nobody has
 * open, which have no user then; what is in a tier file, with its nodes, its models' extents and
 * their part of the journal; and memory that the C library keeps, of which status says nothing.
 */
#include "attack_before.h"

#include "element.h"
#include "honest.h"

#include "proto/arith.h"

#include <stdio.h>
#include <string.h>

#define SETTLE_TRIES 2000 /* of 5 ms */
#define LASTING_LOOKS 40 /* of 5 ms */
#define GROWN_TRIES 200 /* in which nobody else is there any more */
/* Of 32 tokens, and one that is not full in each of two nodes; tokens that are not published yet
 * have one, too. */
#define HONEST_PAGES (300 / 32 + 3)
#define TOKENS_PAGES (120 / 32 + 3) /* of who has the daemon compute tokens */
#define TOKENS_PROMPT_BYTES (80 * sizeof(uint32_t))

#define N_OF(array) (sizeof(array) / sizeof(*(array)))
#define FIGURE(name, ...) \
	{ \
#name, offsetof(Coppice__StatusReply, name), __VA_ARGS__ \
	}

/* What of it is as before at any time; once the victims are gone; the same where no file keeps
 * models. */
enum kept { ALWAYS, IN_THE_END, IN_THE_END_WITHOUT_FILE };

static const struct figure {
	const char *name;
	size_t at;
	enum kept kept;
} figures[] = {
	FIGURE(n_sessions, ALWAYS),
	FIGURE(n_lanes, ALWAYS),
	FIGURE(n_seqs, IN_THE_END),
	FIGURE(n_nodes, IN_THE_END_WITHOUT_FILE),
	FIGURE(n_tokens, IN_THE_END_WITHOUT_FILE),
	FIGURE(n_pages, IN_THE_END),
	FIGURE(page_bytes, IN_THE_END),
	FIGURE(pool_bytes_used, IN_THE_END_WITHOUT_FILE),
	FIGURE(n_claims, IN_THE_END),
	FIGURE(n_pins, ALWAYS),
	FIGURE(pinned_bytes, ALWAYS),
	FIGURE(prompt_bytes, IN_THE_END),
	FIGURE(arena_bytes, ALWAYS),
	FIGURE(device_arena_bytes, ALWAYS),
	FIGURE(kept_arena_bytes, ALWAYS),
	FIGURE(n_input_waits, ALWAYS),
	FIGURE(n_fds, ALWAYS),
	FIGURE(n_unread_fds, ALWAYS),
	FIGURE(n_loads, ALWAYS),
	FIGURE(passes_under_way, IN_THE_END),
	FIGURE(tier_wants, IN_THE_END),
};

static uint64_t figure_of(const Coppice__StatusReply *status, const struct figure *f)
{
	return *(const uint64_t *)(const void *)((const char *)status + f->at);
}

static void take_figures(struct client *root, uint64_t *ret)
{
	const Coppice__StatusReply *status = client_status(root);

	assert_true(N_OF(figures) <= BEFORE_FIGURES);
	for (size_t i = 0; i < N_OF(figures); i++)
		ret[i] = figure_of(status, &figures[i]);
}

static bool is_asked_of(const struct figure *f, const Coppice__StatusReply *now, bool in_the_end)
{
	return f->kept == ALWAYS || (in_the_end && (f->kept == IN_THE_END || now->n_tier == 0));
}

/* The first that is not as before; NULL: all are. */
static const struct figure *odd_figure(const Coppice__StatusReply *now, const uint64_t *before,
				       bool in_the_end)
{
	for (size_t i = 0; i < N_OF(figures); i++)
		if (is_asked_of(&figures[i], now, in_the_end) &&
		    figure_of(now, &figures[i]) != before[i])
			return &figures[i];
	return NULL;
}

static const Coppice__StatusReply *status_without_idle(const struct before *b)
{
	Coppice__Evict evict = COPPICE__EVICT__INIT;

	assert_int_equal(client_verb(b->root, evict, &evict)->code, 0);
	return client_status(b->root);
}

void before_anybody(struct before *b)
{
	take_figures(b->root, b->alone);
	b->n_fds_alone = process_descriptors(b->h->pid);
}

/* Those that it keeps: what victims began with may be on its way out. */
static unsigned lasting_descriptors(pid_t pid)
{
	unsigned least = process_descriptors(pid);

	for (int i = 0; i < LASTING_LOOKS; i++) {
		sleep_ms(5);
		least = min_u32(process_descriptors(pid), least);
	}
	return least;
}

void before_take(struct before *b)
{
	(void)status_without_idle(b);
	take_figures(b->root, b->figures);
	b->n_fds = lasting_descriptors(b->h->pid);
	b->n_bytes = process_bytes(b->h->pid);
}

double before_mib_beyond(const struct before *b)
{
	return ((double)process_bytes(b->h->pid) - (double)b->n_bytes) / (double)MIB;
}

/* ---- while the victims live ---- */

static bool victims_have_no_more(const struct before *b, const Coppice__StatusReply *now)
{
	unsigned n = b->n_tokens;

	return now->n_seqs <= 1 + n && now->n_pages <= HONEST_PAGES + n * TOKENS_PAGES &&
	       now->prompt_bytes <= sizeof(uint32_t) + n * TOKENS_PROMPT_BYTES &&
	       now->tier_journal_bytes <= now->tier_journal_max;
}

static bool only_victims_are_left(const struct before *b)
{
	const Coppice__StatusReply *now = status_without_idle(b);

	return !odd_figure(now, b->figures, false) && victims_have_no_more(b, now);
}

static bool process_is_as_before(const struct before *b)
{
	return process_descriptors(b->h->pid) == b->n_fds &&
	       (!MEMORY_IS_TOLD || process_bytes(b->h->pid) <= b->n_bytes + SLACK_BYTES);
}

static void say_what_is_left(const struct before *b, const uint64_t *before, unsigned n_fds)
{
	const Coppice__StatusReply *now = client_status(b->root);

	for (size_t i = 0; i < N_OF(figures); i++)
		if (figure_of(now, &figures[i]) != before[i])
			print_message("%s was %llu and is %llu; ", figures[i].name,
				      (unsigned long long)before[i],
				      (unsigned long long)figure_of(now, &figures[i]));
	print_message("%u of %u descriptors, %llu of %llu MiB are left\n",
		      process_descriptors(b->h->pid), n_fds,
		      (unsigned long long)(process_bytes(b->h->pid) / MIB),
		      (unsigned long long)(b->n_bytes / MIB));
}

/* Has the process only grown, which no waiting changes? */
static bool has_settled(const struct before *b, bool *ret_again)
{
	int n_alone = 0;

	*ret_again = false;
	for (int i = 0; i < SETTLE_TRIES && n_alone < GROWN_TRIES; i++) {
		bool alone = only_victims_are_left(b);

		*ret_again = alone && process_is_as_before(b);
		if (*ret_again)
			return true;
		n_alone = alone && test_on_gpu() ? n_alone + 1 : 0;
		sleep_ms(5);
	}
	return n_alone == GROWN_TRIES;
}

bool before_is_again(struct before *b)
{
	bool again;
	bool settled = has_settled(b, &again);

	if (again)
		return true;
	say_what_is_left(b, b->figures, b->n_fds);
	assert_true(settled);
	before_take(b);
	return false;
}

/* ---- in the end ---- */

/* Of weights that are still there. Several devices hold none. */
static uint32_t users_of_weights(struct client *root)
{
	Coppice__WeightsList list = COPPICE__WEIGHTS_LIST__INIT;
	uint32_t n = 0;

	if (!client_status(root)->has_weights_bytes)
		return 0;
	list.has_cursor = true;
	do {
		const Coppice__Reply *reply = client_verb(root, weights_list, &list);

		assert_int_equal(reply->code, 0);
		for (size_t i = 0; i < reply->weights_list->n_weights; i++)
			n += reply->weights_list->weights[i]->n_users;
		list.cursor = reply->weights_list->cursor;
	} while (list.cursor);
	return n;
}

/* All memory of what computes that is no weights' is extents of the pool. */
static bool ledger_adds_up(const Coppice__StatusReply *now)
{
	return !now->has_memory_bytes ||
	       now->memory_bytes == now->weights_bytes + now->pool_bytes_used;
}

static bool nothing_is_left(const struct before *b)
{
	const Coppice__StatusReply *now = status_without_idle(b);

	return !odd_figure(now, b->alone, true) && ledger_adds_up(now) &&
	       users_of_weights(b->root) == 0 &&
	       (test_on_gpu() || process_descriptors(b->h->pid) == b->n_fds_alone);
}

bool before_nothing_is_left(struct before *b)
{
	const Coppice__StatusReply *now;

	for (int i = 0; i < SETTLE_TRIES; i++, sleep_ms(5))
		if (nothing_is_left(b))
			return true;
	print_message("the victims have gone: ");
	say_what_is_left(b, b->alone, b->n_fds_alone);
	now = client_status(b->root);
	print_message("%llu bytes of memory, %llu of weights, which %u have open\n",
		      (unsigned long long)now->memory_bytes, (unsigned long long)now->weights_bytes,
		      users_of_weights(b->root));
	return false;
}
