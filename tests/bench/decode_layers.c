/*
 * decode_layers.c - see decode_layers.h. Their heads and layers are the model's; of Q, K and V they
 * compute nothing: a step is there as soon as the one before has been waited for.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_layers.h"

#include "bench.h"
#include "crew.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX 4096u
#define MOST_TIMES 100000u /* of a process: what its pipe has room for */

static struct client_options options_of(const struct decode_options *o)
{
	const struct decode_model *m = o->model;
	const uint32_t most = MOST_TIMES / m->n_layers;

	return (struct client_options){.seqs = 1,
				       .rows = 1,
				       .prefix = PREFIX,
				       .layers = m->n_layers,
				       .tokens = o->n_tokens < most ? o->n_tokens : most,
				       .q_heads = m->n_q_heads,
				       .kv_heads = m->n_kv_heads,
				       .dim = m->head_dim,
				       .memory = COPPICE_HOST};
}

/* us: sorted. */
static double late_part(const double *us, uint32_t n)
{
	uint32_t n_late = 0;

	while (n_late < n && us[n - 1 - n_late] > DECODE_LAYER_US)
		n_late++;
	return (double)n_late / n;
}

void decode_layers_run(const struct decode_options *o, struct decode_layers *ret)
{
	const struct client_options each = options_of(o);
	const uint32_t n = client_times(&each) * o->n_layered;
	double *us = calloc(n, sizeof(*us));
	struct crew crew;

	if (!us)
		errx(1, "out of memory");
	crew_start(&crew, &each, o->n_layered, o->socket);
	crew_measure(&crew, us);
	crew_end(&crew);
	bench_sort(us, n);
	*ret = (struct decode_layers){.n = n,
				      .p50_us = us[n / 2],
				      .p99_us = us[(uint32_t)(n * 0.99)],
				      .p999_us = us[(uint32_t)(n * 0.999)],
				      .most_us = us[n - 1],
				      .late_part = late_part(us, n)};
	free(us);
}

static void put(const char *name, const char *which, const char *metric, double us)
{
	char full[48];

	snprintf(full, sizeof(full), "%s_%s", which, metric);
	bench_print("decode", name, full, us / 1e3, "ms");
}

void decode_layers_print(const struct decode_layers *l, const char *name, const char *which)
{
	char full[48];

	put(name, which, "p50", l->p50_us);
	put(name, which, "p99", l->p99_us);
	put(name, which, "p999", l->p999_us);
	put(name, which, "most", l->most_us);
	snprintf(full, sizeof(full), "%s_over_2.5_ms", which);
	bench_print("decode", name, full, 100 * l->late_part, "%");
}
#endif
