/* attack_before.c - see attack_before.h. The daemon is asked by root, and /proc. */
#include "attack_before.h"

#include "element.h"
#include "honest.h"

#include <stdio.h>

#define SETTLE_TRIES 2000 /* of 5 ms */
#define GROWN_TRIES 200 /* in which nobody else is there any more */
#define HONEST_PAGES 32
#define TOKENS_PAGES 128 /* of who has the daemon compute tokens */
#define TOKENS_PROMPT_BYTES 4096

static const Coppice__StatusReply *status_of(struct client *c)
{
	Coppice__Status status = COPPICE__STATUS__INIT;

	return client_verb(c, status, &status)->status;
}

void before_take(struct before *b)
{
	b->n_fds = process_descriptors(b->h->pid);
	b->n_bytes = process_bytes(b->h->pid);
}

double before_mib_beyond(const struct before *b)
{
	return ((double)process_bytes(b->h->pid) - (double)b->n_bytes) / (double)MIB;
}

/* The honest client's two sessions and this one, and that of who has tokens computed. */
static bool only_victims_are_left(const struct before *b)
{
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	const Coppice__StatusReply *now;
	unsigned n = b->n_tokens;

	assert_int_equal(client_verb(b->root, evict, &evict)->code, 0);
	now = status_of(b->root);
	return now->n_sessions == 3 + n && now->n_seqs <= 1 + n &&
	       now->n_pages <= HONEST_PAGES + n * TOKENS_PAGES &&
	       now->prompt_bytes <= sizeof(uint32_t) + n * TOKENS_PROMPT_BYTES &&
	       now->n_pins == 0 && now->device_arena_bytes == 0 &&
	       now->tier_journal_bytes <= now->tier_journal_max;
}

static bool process_is_as_before(const struct before *b)
{
	return process_descriptors(b->h->pid) == b->n_fds &&
	       (!MEMORY_IS_TOLD || process_bytes(b->h->pid) <= b->n_bytes + SLACK_BYTES);
}

static void say_what_is_left(const struct before *b)
{
	const Coppice__StatusReply *now = status_of(b->root);

	print_message(
		"%llu sessions, %llu sequences, %llu pages, %llu bytes of prompts, %llu pins, "
		"%llu bytes of device arenas, %u of %u descriptors, %llu of %llu MiB are left\n",
		(unsigned long long)now->n_sessions, (unsigned long long)now->n_seqs,
		(unsigned long long)now->n_pages, (unsigned long long)now->prompt_bytes,
		(unsigned long long)now->n_pins, (unsigned long long)now->device_arena_bytes,
		process_descriptors(b->h->pid), b->n_fds,
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
	say_what_is_left(b);
	assert_true(settled);
	before_take(b);
	return false;
}
