/*
 * schedule_cost.c - modelled time of strips, whole and cut into parts. See schedule_impl.h, and
 * costs.h for what it is made of. What a strip costs rests on its runs alone, so that it is known
 * before its KV blocks are read.
 */
#include "schedule_load.h"

#define LEAST_CUT 1.15 /* of the limit, that a strip takes before it is cut */
#define REST_STEPS 5u

double strip_fixed_cost(const struct make *m, const struct strip *strip)
{
	return m->want->costs->work_tile_ns + (strip->row_end - strip->row_begin) * m->row_ns;
}

/* Do KV blocks that come to n complete a granule that before of them did not? */
static bool completes(const struct load *load, uint32_t before, uint32_t n)
{
	return (before ^ n) >= load_granule(load, n);
}

/* False: none of the strip's rows sees something of the run. */
static inline bool sees_run(const struct make *m, const struct strip *strip, const struct run *run,
			    struct seen_run *ret)
{
	uint32_t begin = max_u32(run->row_begin, strip->row_begin);
	uint32_t end = min_u32(run->row_end, strip->row_end);

	*ret = (struct seen_run){run, begin - strip->row_begin, end - strip->row_begin};
	return begin < end && m->list->rows[end - 1].pos >= run->pos;
}

/* Of parts of the strip, each as long as goes with limit_ns (of KV blocks alone): how many, and the
 * sum of what they take. */
static uint32_t cut_runs(const struct make *m, const struct strip *strip, double limit_ns,
			 double *ret_sum_ns)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t n = 1, n_kv_blocks = 0, before = 0, last = runs_end(m, strip);
	struct seen_run seen;
	double sum = 0, now;
	struct load load;

	load_init(m, strip, &load);
	for (uint32_t i = runs_begin(m, strip); (i = runs_next(m, strip, i, last)) < last; i++) {
		if (!sees_run(m, strip, &runs[i], &seen))
			continue;
		if (completes(&load, before, n_kv_blocks) &&
		    (now = load_ns(m, &load)) >= limit_ns) {
			sum += now;
			n++;
			before = n_kv_blocks = 0;
			load_init(m, strip, &load);
		}
		load_add(m, &load, &seen);
		before = n_kv_blocks;
		n_kv_blocks += runs[i].n_kv_blocks;
	}
	*ret_sum_ns = sum + load_ns(m, &load);
	return n;
}

/* What all rows of the strip see from the item's first run on is summed up before. */
void strip_weigh(const struct make *m, struct strip *strip)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t last = runs_end(m, strip), n_kv_blocks;
	struct seen_run seen;
	struct load load;
	double read_ns;
	uint32_t i = runs_seen_by_all(m, strip, &n_kv_blocks, &read_ns), n = n_kv_blocks;

	load_init(m, strip, &load);
	if (n_kv_blocks)
		load_add_all(&load, n_kv_blocks, read_ns);
	for (; (i = runs_next(m, strip, i, last)) < last; i++) {
		if (!sees_run(m, strip, &runs[i], &seen))
			continue;
		load_add(m, &load, &seen);
		n += runs[i].n_kv_blocks;
	}
	strip->cost = strip_fixed_cost(m, strip) + load_ns(m, &load);
	strip->n_wide = load.n_wide;
	strip->n_others = n - load.n_wide;
}

/* As many parts, all alike, where the last would be a rest for which the others are as long as with
 * one part less: all wait for these. */
static void spread_rest(const struct make *m, const struct strip *strip, struct parts *inout)
{
	double least = inout->all_ns / inout->n, most = inout->each_ns;

	for (uint32_t i = 0; i < REST_STEPS; i++) {
		struct parts parts = {.each_ns = i == 0 ? least : (least + most) / 2};

		parts.n = cut_runs(m, strip, parts.each_ns, &parts.all_ns);
		if (parts.n > inout->n) {
			least = parts.each_ns;
			continue;
		}
		*inout = parts;
		most = parts.each_ns;
	}
}

struct parts strip_parts(const struct make *m, struct strip *strip, double limit_ns)
{
	double fixed = strip_fixed_cost(m, strip), n = strip->cost / limit_ns;
	uint32_t asked = n > LEAST_CUT ? (uint32_t)(n + 2 - LEAST_CUT) : 1;
	struct parts parts = {1, strip->cost - fixed, strip->cost - fixed};

	if (asked == 1)
		return parts;
	if (mix_pays(strip->n_wide, strip->n_others, asked))
		return (struct parts){asked, parts.all_ns / asked, parts.all_ns};
	if (asked != strip->asked) {
		parts.each_ns /= asked;
		parts.n = cut_runs(m, strip, parts.each_ns, &parts.all_ns);
		if (m->no_rests && parts.n > asked)
			spread_rest(m, strip, &parts);
		strip->parts = parts;
		strip->asked = asked;
	}
	return strip->parts;
}
