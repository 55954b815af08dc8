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

/* A part of a strip under way. */
struct part {
	struct load load;
	uint32_t before, n_kv_blocks; /* without the run added last, and with it */
};

/* Do runs [i, end), which all rows of the strip see, take less than limit_ns as a part? */
static bool are_below(const struct make *m, const struct strip *strip, const struct load *like,
		      uint32_t i, uint32_t end, double limit_ns)
{
	uint32_t n_kv_blocks;
	double read_ns = runs_sum(m, strip, i, end, &n_kv_blocks);

	return load_ns_all(m, like, n_kv_blocks, read_ns) < limit_ns;
}

/* The most of runs [i, end) that do; their end. */
static uint32_t end_below(const struct make *m, const struct strip *strip, const struct load *like,
			  uint32_t i, uint32_t end, double limit_ns)
{
	uint32_t low = i, high, step = 1;

	for (; low + step <= end && are_below(m, strip, like, i, low + step, limit_ns); step *= 2)
		low += step;
	high = min_u32(low + step, end + 1);
	while (low + 1 < high) {
		uint32_t middle = low + (high - low) / 2;

		if (are_below(m, strip, like, i, middle, limit_ns))
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* A part that begins with run i: with those from there on that all rows of the strip see, as many
 * as take less than limit_ns. Returns the next run. */
static uint32_t part_begin(const struct make *m, const struct strip *strip, double limit_ns,
			   uint32_t i, uint32_t seen_by_all, struct part *ret)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t end = i;
	double read_ns;

	load_init(m, strip, &ret->load);
	ret->before = ret->n_kv_blocks = 0;
	if (i < seen_by_all)
		end = end_below(m, strip, &ret->load, i, seen_by_all, limit_ns);
	if (end > i) {
		read_ns = runs_sum(m, strip, i, end, &ret->n_kv_blocks);
		load_add_all(&ret->load, ret->n_kv_blocks, read_ns);
		ret->before = ret->n_kv_blocks - runs[end - 1].n_kv_blocks;
	}
	return end;
}

/* Of parts of the strip, each as long as goes with limit_ns (of KV blocks alone): how many, and the
 * sum of what they take. */
static uint32_t cut_runs(const struct make *m, const struct strip *strip, double limit_ns,
			 double *ret_sum_ns)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t last = runs_end(m, strip), by_all = runs_seen_by_all(m, strip), n = 1;
	struct seen_run seen;
	struct part part;
	uint32_t i = part_begin(m, strip, limit_ns, runs_begin(m, strip), by_all, &part);
	double sum = 0, now;

	while ((i = runs_next(m, strip, i, last)) < last) {
		if (!sees_run(m, strip, &runs[i], &seen)) {
			i++;
			continue;
		}
		if (completes(&part.load, part.before, part.n_kv_blocks) &&
		    (now = load_ns(m, &part.load)) >= limit_ns) {
			uint32_t begin = i;

			sum += now;
			n++;
			i = part_begin(m, strip, limit_ns, i, by_all, &part);
			if (i > begin)
				continue;
		}
		load_add(m, &part.load, &seen);
		part.before = part.n_kv_blocks;
		part.n_kv_blocks += runs[i++].n_kv_blocks;
	}
	*ret_sum_ns = sum + load_ns(m, &part.load);
	return n;
}

/* What all rows of the strip see from the item's first run on is summed up before. */
void strip_weigh(const struct make *m, struct strip *strip)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t i = runs_seen_by_all(m, strip), last = runs_end(m, strip), n_kv_blocks, n;
	double read_ns = runs_sum(m, strip, runs_begin(m, strip), i, &n_kv_blocks);
	struct seen_run seen;
	struct load load;

	n = n_kv_blocks;
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
