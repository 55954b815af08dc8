/* bench.c - coppice-bench: picks the subcommand and prints what it finds. */
#include "bench.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct bench_command commands[] = {
	{"ring", "Round trip of an empty entry: both sides spinning; daemon asleep.", ring_main},
#ifdef BENCH_HAVE_KVSTORE
	{"store", "Match, insert, split and evict as trees grow.", store_main},
#endif
	{"agents", "Eight agents over one document: lockstep, and a slow ninth.", agents_main},
	{"clients", "Processes that decode through a daemon: latency, throughput.", clients_main},
#ifdef BENCH_HAVE_KERNELS
	{"attention", "Attention over a workload's trees, or over the built-in cases.",
	 attention_main},
	{"fit", "Constants of the GPU planner's model, from what the card takes.", fit_main},
#ifdef BENCH_HAVE_KVSTORE
	{"tiers", "KV on its way to host memory, to a file, and back.", tiers_main},
#endif
#ifdef BENCH_HAVE_AGENT
	{"sparse", "Prefill that attends to part of its path: estimates, time, loss.", sparse_main},
#endif
	{"multi", "A layer of sequences whose KV is shared out to several devices.", multi_main},
#endif
	{NULL, NULL, NULL},
};

static struct {
	bool json;
	uint32_t reps;
} common;

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "Print one JSON object a line", 0},
	{"reps", 'r', "N", 0, "Repetitions of which the median is taken", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key == 'j') {
		common.json = true;
		return 0;
	}
	if (key == 'r') {
		common.reps = (uint32_t)strtoul(arg, NULL, 10);
		if (common.reps == 0)
			argp_error(state, "--reps wants a number above 0, not \"%s\"", arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp bench_common_argp = {.options = options, .parser = parse};

uint32_t bench_reps(uint32_t fallback)
{
	return common.reps ? common.reps : fallback;
}

static void print_json(const char *bench, const char *name, const char *metric, double value,
		       const char *unit)
{
	json_t *line = json_pack("{s:s, s:s, s:s, s:f, s:s}", "bench", bench, "case", name,
				 "metric", metric, "value", value, "unit", unit);

	if (!line)
		return;
	json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(line);
}

void bench_print(const char *bench, const char *name, const char *metric, double value,
		 const char *unit)
{
	if (common.json)
		print_json(bench, name, metric, value, unit);
	else
		printf("%-10s %-28s %-16s %14.6g %s\n", bench, name, metric, value, unit);
	fflush(stdout);
}

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double bench_median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static int usage(FILE *to, int status)
{
	fprintf(to, "Usage: coppice-bench COMMAND [OPTION...]\n\n");
	for (const struct bench_command *c = commands; c->name; c++)
		fprintf(to, "  %-12s %s\n", c->name, c->doc);
	fprintf(to, "\ncoppice-bench COMMAND --help says more.\n");
	return status;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr, 64);
	if (strcmp(argv[1], "--help") == 0)
		return usage(stdout, 0);
	for (const struct bench_command *c = commands; c->name; c++) {
		char name[64];

		if (strcmp(c->name, argv[1]) != 0)
			continue;
		snprintf(name, sizeof(name), "coppice-bench %s", c->name);
		argv[1] = name;
		return c->run(argc - 1, argv + 1);
	}
	fprintf(stderr, "coppice-bench: no command \"%s\"\n", argv[1]);
	return usage(stderr, 64);
}
