/*
 * decode_slow.c - see decode_slow.h. Tokens and events are gone through by their beginnings; what
 * has ended before a token began is passed over for good where all before it has ended too.
 */
#include "decode_slow.h"

#include <err.h>
#include <stdbool.h>
#include <stdlib.h>

const char *slow_name(enum slow_kind kind)
{
	static const char *const names[SLOW_KINDS] = {"prompt",	 "anew",   "program", "weights",
						      "session", "leaves", "stays",   "nothing"};

	return names[kind];
}

void slow_note(struct slow_events *events, const struct slow_event *event)
{
	if (events->n < SLOW_EVENTS)
		events->of[events->n++] = *event;
}

static int by_begin(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double ms_of(const struct slow_token *t)
{
	return (double)(t->end_ns - t->begin_ns) / 1e6;
}

static double median_ms(const struct slow_token *tokens, uint32_t n)
{
	double *ms = calloc(n, sizeof(*ms)), median;

	if (!ms)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		ms[i] = ms_of(&tokens[i]);
	qsort(ms, n, sizeof(*ms), by_value);
	median = ms[n / 2];
	free(ms);
	return median;
}

/* ---- what else went on ---------------------------------------------------------------------- */

struct slow_list {
	const struct slow_event *of;
	uint32_t n, first; /* all before the first have ended */
};

static bool is_beside(const struct slow_event *e, const struct slow_token *t)
{
	const bool its_own = e->kind == SLOW_ANEW && e->process == t->process;

	return !its_own && e->begin_ns < t->end_ns && e->end_ns > t->begin_ns;
}

static enum slow_kind kind_of(struct slow_list *events, const struct slow_token *t)
{
	enum slow_kind kind = SLOW_NOTHING;

	while (events->first < events->n && events->of[events->first].end_ns <= t->begin_ns)
		events->first++;
	for (uint32_t i = events->first; i < events->n; i++) {
		const struct slow_event *e = &events->of[i];

		if (e->begin_ns >= t->end_ns)
			break;
		if (is_beside(e, t) && e->kind < kind)
			kind = e->kind;
	}
	return kind;
}

/* ---- whose tokens --------------------------------------------------------------------------- */

/* Slow ones are moved to the front, in their order. */
static uint32_t keep_slow(struct slow_token *tokens, uint32_t n, double slow_ms)
{
	uint32_t n_slow = 0;

	for (uint32_t i = 0; i < n; i++)
		if (ms_of(&tokens[i]) > slow_ms)
			tokens[n_slow++] = tokens[i];
	return n_slow;
}

static uint64_t longest_ns(const struct slow_token *tokens, uint32_t n)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < n; i++)
		if (tokens[i].end_ns - tokens[i].begin_ns > most)
			most = tokens[i].end_ns - tokens[i].begin_ns;
	return most;
}

/* Processes that have one of these tokens while number i lasts, itself among them. */
static uint32_t company_of(const struct slow_token *tokens, uint32_t n, uint32_t i,
			   uint64_t longest)
{
	const struct slow_token *t = &tokens[i];
	uint64_t processes = 0;

	while (i > 0 && tokens[i - 1].begin_ns + longest > t->begin_ns)
		i--;
	for (; i < n && tokens[i].begin_ns < t->end_ns; i++)
		if (tokens[i].end_ns > t->begin_ns)
			processes |= UINT64_C(1) << tokens[i].process;
	return (uint32_t)__builtin_popcountll(processes);
}

static uint32_t count_late_alone(const struct slow_token *slow, uint32_t n, uint32_t n_processes)
{
	const uint64_t longest = longest_ns(slow, n);
	uint32_t n_alone = 0;

	for (uint32_t i = 0; i < n; i++)
		n_alone += 2 * company_of(slow, n, i, longest) < n_processes;
	return n_alone;
}

/* ---- all ------------------------------------------------------------------------------------ */

static void count(const struct slow_token *t, enum slow_kind kind, struct slow_figures *f)
{
	const bool slow = ms_of(t) > SLOW_TIMES * f->p50_ms;

	f->n++;
	f->n_slow += slow;
	f->of[kind].n++;
	f->of[kind].n_slow += slow;
	if (ms_of(t) > f->of[kind].most_ms)
		f->of[kind].most_ms = ms_of(t);
}

void slow_count(struct slow_token *tokens, uint32_t n_tokens, struct slow_event *events,
		uint32_t n_events, uint32_t n_processes, struct slow_figures *ret)
{
	struct slow_list list = {events, n_events, 0};
	struct slow_figures f = {.p50_ms = median_ms(tokens, n_tokens)};

	qsort(tokens, n_tokens, sizeof(*tokens), by_begin);
	qsort(events, n_events, sizeof(*events), by_begin);
	for (uint32_t i = 0; i < n_tokens; i++)
		count(&tokens[i], kind_of(&list, &tokens[i]), &f);
	n_tokens = keep_slow(tokens, n_tokens, SLOW_TIMES * f.p50_ms);
	f.n_late_alone = count_late_alone(tokens, n_tokens, n_processes);
	*ret = f;
}
