/*
 * tso.c - see the other's stores late: a search through all states of two threads.
 *
 * A state is what each thread's steps came to, the store buffers, the words, the flags and who
 * sleeps on a futex. What a thread does next is found by running its program with that history up
 * to the first step that is not in it, where it is left by longjmp. States that were met already,
 * told by their hash, are not gone through again.
 */
#include "tso.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 120 /* of a program */
#define BUFFER_MAX 8
#define SEEN (UINT32_C(1) << 22) /* a power of two */

enum step_kind {
	STEP_LOAD,
	STEP_STORE,
	STEP_ADD,
	STEP_EXCHANGE,
	STEP_FENCE,
	STEP_SET,
	STEP_AWAIT,
	STEP_CLEAR,
	STEP_WAIT,
	STEP_WAKE,
	STEP_END
};

struct step {
	enum step_kind kind;
	uint32_t where; /* word or flag */
	uint64_t value;
};

struct buffered {
	uint64_t where, value;
};

struct thread {
	uint64_t results[STEPS_MAX];
	uint64_t n_results;
	struct buffered buffer[BUFFER_MAX];
	uint64_t n_buffered;
	uint64_t asleep; /* on the word before this number; 0: on none */
};

struct state {
	struct thread threads[2];
	uint64_t words[TSO_WORDS];
	uint64_t flags[TSO_FLAGS];
};

/* The program that is being run. */
static struct {
	struct tso *tso;
	const struct thread *thread;
	uint64_t n_done;
	struct step next;
	jmp_buf left;
} now;

static uint64_t *seen;

/* ---- a program's side ---- */

static uint64_t take_step(struct step step)
{
	if (now.n_done < now.thread->n_results)
		return now.thread->results[now.n_done++];
	now.next = step;
	longjmp(now.left, 1);
}

/* Number of a word; TSO_WORDS: of no concern. */
static uint32_t word_number(const volatile void *word)
{
	uint32_t i = 0;

	while (i < TSO_WORDS && now.tso->words[i] != word)
		i++;
	return i;
}

uint64_t tso_load(const volatile void *word, size_t bytes)
{
	uint32_t where = word_number(word);
	uint64_t value = 0;

	if (where < TSO_WORDS)
		return take_step((struct step){STEP_LOAD, where, 0});
	memcpy(&value, (const void *)word, bytes);
	return value;
}

static uint64_t change(enum step_kind kind, volatile void *word, uint64_t value)
{
	uint32_t where = word_number(word);

	return where < TSO_WORDS ? take_step((struct step){kind, where, value}) : 0;
}

void tso_store(volatile void *word, uint64_t value)
{
	change(STEP_STORE, word, value);
}

uint64_t tso_add(volatile void *word, uint64_t value)
{
	return change(STEP_ADD, word, value);
}

uint64_t tso_exchange(volatile void *word, uint64_t value)
{
	return change(STEP_EXCHANGE, word, value);
}

void tso_fence(void)
{
	take_step((struct step){STEP_FENCE, 0, 0});
}

void tso_flag_set(unsigned flag)
{
	take_step((struct step){STEP_SET, flag, 0});
}

void tso_flag_await(unsigned flag)
{
	take_step((struct step){STEP_AWAIT, flag, 0});
}

void tso_flag_clear(unsigned flag)
{
	take_step((struct step){STEP_CLEAR, flag, 0});
}

void tso_futex_wait(const volatile void *word, uint32_t seen_value)
{
	take_step((struct step){STEP_WAIT, word_number(word), seen_value});
}

void tso_futex_wake(const volatile void *word)
{
	take_step((struct step){STEP_WAKE, word_number(word), 0});
}

/* ---- the search ---- */

static struct step next_step(struct tso *tso, const struct thread *thread, unsigned which)
{
	now.tso = tso;
	now.thread = thread;
	now.n_done = 0;
	now.next = (struct step){.kind = STEP_END};
	if (setjmp(now.left) == 0)
		tso->programs[which]();
	return now.next;
}

/* What it stored itself it sees. */
static uint64_t word_as_seen(const struct state *s, const struct thread *t, uint32_t where)
{
	for (uint64_t i = t->n_buffered; i > 0; i--) {
		if (t->buffer[i - 1].where == where)
			return t->buffer[i - 1].value;
	}
	return s->words[where];
}

static void buffer(struct thread *t, uint32_t where, uint64_t value)
{
	if (t->n_buffered == BUFFER_MAX)
		abort();
	t->buffer[t->n_buffered++] = (struct buffered){where, value};
}

static void flush_one(struct state *s, struct thread *t)
{
	s->words[t->buffer[0].where] = t->buffer[0].value;
	t->n_buffered--;
	memmove(t->buffer, t->buffer + 1, t->n_buffered * sizeof(*t->buffer));
	t->buffer[t->n_buffered] = (struct buffered){0};
}

static bool can_go(const struct state *s, const struct thread *t, struct step step)
{
	if (t->asleep)
		return false;
	switch (step.kind) {
	case STEP_END:
		return false;
	case STEP_FENCE:
	case STEP_EXCHANGE:
		return t->n_buffered == 0;
	case STEP_AWAIT:
		return s->flags[step.where] != 0;
	default:
		return true;
	}
}

static void wake(struct state *s, uint32_t where)
{
	for (unsigned i = 0; i < 2; i++) {
		if (s->threads[i].asleep == where + 1)
			s->threads[i].asleep = 0;
	}
}

static uint64_t apply(struct state *s, struct thread *t, struct step step)
{
	uint64_t was = word_as_seen(s, t, step.where);

	switch (step.kind) {
	case STEP_STORE:
		buffer(t, step.where, step.value);
		break;
	case STEP_ADD:
		buffer(t, step.where, was + step.value);
		break;
	case STEP_EXCHANGE:
		s->words[step.where] = step.value;
		break;
	case STEP_SET:
		s->flags[step.where] = 1;
		break;
	case STEP_AWAIT:
	case STEP_CLEAR:
		s->flags[step.where] = 0;
		break;
	case STEP_WAIT:
		t->asleep = (uint32_t)s->words[step.where] == step.value ? step.where + 1 : 0;
		break;
	case STEP_WAKE:
		wake(s, step.where);
		break;
	default:
		break;
	}
	return step.kind == STEP_LOAD || step.kind == STEP_ADD || step.kind == STEP_EXCHANGE ? was
											     : 0;
}

static void go(struct state *s, unsigned which, struct step step)
{
	struct thread *t = &s->threads[which];
	uint64_t result = apply(s, t, step);

	if (t->n_results == STEPS_MAX)
		abort();
	t->results[t->n_results++] = result;
}

static uint64_t hash(const struct state *s)
{
	uint64_t h = UINT64_C(0x9e3779b97f4a7c15), word;

	for (size_t i = 0; i < sizeof(*s); i += sizeof(word)) {
		memcpy(&word, (const uint8_t *)s + i, sizeof(word));
		h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	return h ? h : 1;
}

static bool is_new(struct tso *tso, const struct state *s)
{
	uint64_t h = hash(s);
	uint32_t at = (uint32_t)h & (SEEN - 1);

	while (seen[at] && seen[at] != h)
		at = (at + 1) & (SEEN - 1);
	if (seen[at])
		return false;
	if (++tso->n_states > SEEN / 2)
		abort();
	seen[at] = h;
	return true;
}

static bool explore(struct tso *tso, const struct state *s);

/* With the thread's next step, and with what leaves its buffer next. */
static bool explore_thread(struct tso *tso, const struct state *s, unsigned which, bool *ret_moved)
{
	struct step step = next_step(tso, &s->threads[which], which);
	struct state next = *s;

	if (can_go(s, &s->threads[which], step)) {
		*ret_moved = true;
		go(&next, which, step);
		if (!explore(tso, &next))
			return false;
	}
	if (s->threads[which].n_buffered == 0)
		return true;
	*ret_moved = true;
	next = *s;
	flush_one(&next, &next.threads[which]);
	return explore(tso, &next);
}

static bool has_ended(struct tso *tso, const struct state *s, unsigned which)
{
	return !s->threads[which].asleep &&
	       next_step(tso, &s->threads[which], which).kind == STEP_END;
}

static bool explore(struct tso *tso, const struct state *s)
{
	bool moved = false;

	if (!is_new(tso, s))
		return true;
	for (unsigned i = 0; i < 2; i++) {
		if (!explore_thread(tso, s, i, &moved))
			return false;
	}
	return moved || (has_ended(tso, s, 0) && has_ended(tso, s, 1));
}

bool tso_explore(struct tso *tso)
{
	struct state begin = {0};
	bool all;

	tso->n_states = 0;
	seen = calloc(SEEN, sizeof(*seen));
	if (!seen)
		abort();
	all = explore(tso, &begin);
	free(seen);
	return all;
}
