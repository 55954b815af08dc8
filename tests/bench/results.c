/* results.c - sums what was found by kind and policy, and prints the tables. */
#include "results.h"

#include "bench.h"

#include <err.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORST 5u
#define SLOWER_AT_MOST 1.03 /* auto, than any other policy */

void results_add(struct results *r, const struct result *result)
{
	if (r->n == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->list = realloc(r->list, r->room * sizeof(*r->list));
		if (!r->list)
			errx(1, "out of memory");
	}
	r->list[r->n++] = *result;
}

void results_done(struct results *r)
{
	free(r->list);
	*r = (struct results){0};
}

static bool is_auto(const struct result *x)
{
	return strcmp(x->policy, "auto") == 0;
}

static void print_row(const struct result *x, FILE *to)
{
	char peer[16] = "-";

	if (x->peer_us > 0)
		snprintf(peer, sizeof(peer), "%.2f", x->peer_us / x->us);
	fprintf(to,
		"%-30s %-12s %9.1f %9.1f %6.3f %6s %6.2f %7.1f %7.0f %7.0f %6.1f %7.0f %8.1e%s\n",
		x->name, x->policy, x->us, x->limit_us, x->limit_us / x->us, peer,
		x->expect_us / x->us, x->tflops, x->plan_us, x->submit_us, x->again_us, x->next_us,
		x->error, x->right ? "" : " WRONG");
}

static void print_head(FILE *to)
{
	fprintf(to, "%-30s %-12s %9s %9s %6s %6s %6s %7s %7s %7s %6s %7s %8s\n", "workload",
		"policy", "time us", "limit us", "ratio", "peer x", "exp x", "TFLOP/s", "plan us",
		"first", "again", "next", "error");
}

static bool same_mean(const struct result *a, const struct result *b)
{
	return strcmp(a->kind, b->kind) == 0 && strcmp(a->policy, b->policy) == 0;
}

struct mean {
	double ratio; /* limit / time, geometric */
	double peer; /* best other's time / time, where one is known */
	uint32_t n, n_peers;
	uint32_t n_slower; /* than the best other */
};

static struct mean mean_of(const struct results *r, const struct result *like)
{
	struct mean m = {0};

	for (uint32_t i = 0; i < r->n; i++) {
		const struct result *x = &r->list[i];

		if (!same_mean(x, like))
			continue;
		m.ratio += log(x->limit_us / x->us);
		m.n++;
		if (x->peer_us <= 0)
			continue;
		m.peer += log(x->peer_us / x->us);
		m.n_peers++;
		m.n_slower += x->peer_us < x->us;
	}
	m.ratio = exp(m.ratio / m.n);
	m.peer = m.n_peers ? exp(m.peer / m.n_peers) : 0;
	return m;
}

static bool first_of_mean(const struct results *r, uint32_t i)
{
	for (uint32_t j = 0; j < i; j++) {
		if (same_mean(&r->list[j], &r->list[i]))
			return false;
	}
	return true;
}

static void print_means(const struct results *r, FILE *to)
{
	fprintf(to, "\ngeometric means\n%-30s %-12s %5s %6s %6s %s\n", "kind", "policy", "n",
		"ratio", "peer x", "slower than the best peer");
	for (uint32_t i = 0; i < r->n; i++) {
		if (!first_of_mean(r, i))
			continue;
		struct mean m = mean_of(r, &r->list[i]);

		fprintf(to, "%-30s %-12s %5u %6.3f %6.2f %u of %u\n", r->list[i].kind,
			r->list[i].policy, m.n, m.ratio, m.peer, m.n_slower, m.n_peers);
	}
}

static int compare_ratio(const void *a, const void *b)
{
	const struct result *x = *(const struct result *const *)a,
			    *y = *(const struct result *const *)b;
	double left = x->limit_us / x->us, right = y->limit_us / y->us;

	return left < right ? -1 : left > right;
}

static void print_worst(const struct results *r, FILE *to)
{
	const struct result **order = calloc(r->n, sizeof(*order));
	uint32_t n = 0;

	if (!order)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < r->n; i++) {
		if (is_auto(&r->list[i]))
			order[n++] = &r->list[i];
	}
	qsort(order, n, sizeof(*order), compare_ratio);
	if (n > WORST)
		fprintf(to, "\nworst of auto\n");
	for (uint32_t i = 0; i < WORST && n > WORST; i++)
		print_row(order[i], to);
	free(order);
}

/* The fastest of the other policies on auto's workload, or NULL. */
static const struct result *best_other(const struct results *r, const struct result *mine)
{
	const struct result *best = NULL;

	for (uint32_t i = 0; i < r->n; i++) {
		const struct result *x = &r->list[i];

		if (!is_auto(x) && strcmp(x->name, mine->name) == 0 && (!best || x->us < best->us))
			best = x;
	}
	return best;
}

/* The workload on which auto is slowest against the best of the other policies; NULL: no other was
 * timed. */
static const struct result *worst_against_others(const struct results *r)
{
	const struct result *worst = NULL;
	double most = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		const struct result *x = &r->list[i], *other = is_auto(x) ? best_other(r, x) : NULL;

		if (!other || x->us / other->us <= most)
			continue;
		worst = x;
		most = x->us / other->us;
	}
	return worst;
}

static void print_policies(const struct results *r, FILE *to)
{
	const struct result *worst = worst_against_others(r);
	uint32_t n = 0, n_slower = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		const struct result *x = &r->list[i], *other = is_auto(x) ? best_other(r, x) : NULL;

		if (!other)
			continue;
		n++;
		if (x->us <= other->us * SLOWER_AT_MOST)
			continue;
		fprintf(to, "%s%-30s auto %.1f us, %s %.1f us: slower by %.1f %%\n",
			n_slower++ ? "" : "\nauto slower than another policy\n", x->name, x->us,
			other->policy, other->us, (x->us / other->us - 1) * 100);
	}
	if (!worst)
		return;
	fprintf(to, "\nauto is slower than another policy by over 3 %% on %u of %u workloads\n",
		n_slower, n);
	fprintf(to, "auto against the best other policy at worst: %.3f (%s, %s)\n",
		worst->us / best_other(r, worst)->us, worst->name, best_other(r, worst)->policy);
}

/* How far the planner's expectation of auto is from what was measured. */
static void print_expected(const struct results *r, FILE *to)
{
	double sum = 0, least = INFINITY, most = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		double ratio = r->list[i].expect_us / r->list[i].us;

		if (!is_auto(&r->list[i]))
			continue;
		sum += log(ratio);
		least = fmin(least, ratio);
		most = fmax(most, ratio);
		n++;
	}
	if (n)
		fprintf(to, "\nexpected / measured, auto: geometric mean %.3f, from %.3f to %.3f\n",
			exp(sum / n), least, most);
}

void results_print(const struct results *r, FILE *to)
{
	if (!r->n)
		return;
	fprintf(to, "\n");
	print_head(to);
	for (uint32_t i = 0; i < r->n; i++)
		print_row(&r->list[i], to);
	print_means(r, to);
	print_worst(r, to);
	print_expected(r, to);
	print_policies(r, to);
}

void results_print_means(const struct results *r)
{
	const struct result *worst = worst_against_others(r);

	for (uint32_t i = 0; i < r->n; i++) {
		char name[80];

		if (!first_of_mean(r, i))
			continue;
		snprintf(name, sizeof(name), "%s %s", r->list[i].kind, r->list[i].policy);
		bench_print("attention", name, "mean_ratio_limit", mean_of(r, &r->list[i]).ratio,
			    "1");
	}
	if (worst)
		bench_print("attention", "auto", "slower_at_most",
			    worst->us / best_other(r, worst)->us, "x");
}
