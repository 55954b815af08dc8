/*
 * bench.c - coppice-bench: picks the subcommand, reads what all of them take, numbers for each of
 * them, and prints what they find.
 */
#include "bench.h"

#include "proto/cli/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench_command commands[] = {
	{"ring", "Round trip of an empty entry: both sides spinning; daemon asleep.", ring_main},
#ifdef BENCH_HAVE_KVSTORE
	{"store", "Match, insert, split and evict as trees grow.", store_main},
#endif
	{"agents", "Eight agents over one document: their pace, and a slow ninth.", agents_main},
	{"clients", "Processes that decode through a daemon: latency, throughput.", clients_main},
#ifdef BENCH_HAVE_AGENT
	{"decode", "Whole tokens by the daemon, its weights read once for all.", decode_main},
#endif
	{"neighbours", "A user beside another who wants all there is.", neighbours_main},
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

/* ---- the command line ----------------------------------------------------------------------- */

enum { KEY_HELP = '?', KEY_JSON = 'j', KEY_REPS = 'r' };

static const struct args_option common_table[] = {
	{NULL, 0, NULL, "Of every subcommand:"},
	{"json", KEY_JSON, NULL, "Print one JSON object a line"},
	{"reps", KEY_REPS, "N", "Repetitions of which the median is taken"},
	{"help", KEY_HELP, NULL, "Print this"},
	{0},
};

/* The subcommand's own options, then those of all. */
static void merge_tables(const struct args_option *own, struct args_option *to)
{
	for (; own && (own->name || own->help); own++)
		*to++ = *own;
	memcpy(to, common_table, sizeof(common_table));
}

static int take_option(const struct bench_options *options, struct args *args, int key)
{
	if (key == ARGS_WORD)
		return args_fail(args, "it takes no \"%.40s\": see --help", args->value);
	if (key != KEY_JSON && key != KEY_REPS)
		return options->take(args, key, options->to);
	if (key == KEY_JSON) {
		common.json = true;
		return 0;
	}
	return bench_take_whole(args, 1, options->most_reps ? options->most_reps : UINT32_MAX,
				&common.reps);
}

static int print_help(const struct bench_options *options, const char *program,
		      const struct args_option *table)
{
	printf("Usage: %s [OPTION...]\n", program);
	args_print_text(stdout, options->doc);
	putchar('\n');
	args_print(stdout, table);
	return CLI_OK;
}

int bench_read(const struct bench_options *options, int argc, char **argv)
{
	struct args_option table[ARGS_MAX];
	struct args args;
	int key, r = 0;

	merge_tables(options->table, table);
	args = args_begin(table, argc, argv);
	while (r == 0 && (key = args_next(&args)) != 0) {
		if (key == KEY_HELP)
			return print_help(options, argv[0], table);
		r = key < 0 ? key : take_option(options, &args, key);
	}
	if (r == 0 && options->check)
		r = options->check(&args, options->to);
	if (r == 0)
		return -1;
	fprintf(stderr, "%s: %s\n", argv[0], args.why);
	return CLI_USAGE;
}

/* ---- numbers -------------------------------------------------------------------------------- */

int bench_take_whole(struct args *args, uint32_t min, uint32_t max, uint32_t *ret)
{
	uint64_t n;
	int r = args_whole(args, min, max, &n);

	if (r == 0)
		*ret = (uint32_t)n;
	return r;
}

int bench_take_head_dim(struct args *args, uint32_t *ret)
{
	uint32_t n = 0;

	if (bench_take_whole(args, 16, 256, &n) < 0 || n % 16)
		return args_fail(args, "--%s takes a multiple of 16 from 16 to 256, not \"%.40s\"",
				 args->name, args->value);
	*ret = n;
	return 0;
}

/* Not negative. */
static bool real_read(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return (isdigit((unsigned char)text[0]) || text[0] == '.') && end != text && !*end &&
	       isfinite(*ret);
}

int bench_take_rate(struct args *args, double *ret)
{
	double value;

	if (!real_read(args->value, &value) || value <= 0)
		return args_fail(args, "--%s takes a number above 0, not \"%.40s\"", args->name,
				 args->value);
	*ret = value;
	return 0;
}

int bench_take_share(struct args *args, double *ret)
{
	double value;

	if (!real_read(args->value, &value) || value > 1)
		return args_fail(args, "--%s takes a number from 0 to 1, not \"%.40s\"", args->name,
				 args->value);
	*ret = value;
	return 0;
}

static bool is_pool(const char *text)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || errno)
		return false;
	if (strcmp(end, "%") == 0)
		return n >= 1 && n <= 100;
	return !*end || (strchr("KMGTkmgt", *end) && !end[1]);
}

int bench_take_pool(struct args *args, const char **ret)
{
	if (!is_pool(args->value))
		return args_fail(args,
				 "--%s takes bytes, a number with K, M, G or T, or 1%% to 100%%, "
				 "not \"%.40s\"",
				 args->name, args->value);
	*ret = args->value;
	return 0;
}

/* The number that a list goes on with; ret_end: what stands behind it. */
static bool list_read(const char *text, uint32_t max, uint32_t *ret, const char **ret_end)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)text[0]) || n < 1 || n > max)
		return false;
	*ret = (uint32_t)n;
	*ret_end = end;
	return true;
}

int bench_take_list(struct args *args, uint32_t max, uint32_t room, uint32_t *ret, uint32_t *ret_n)
{
	const char *at = args->value;

	for (uint32_t i = 0; i < room && list_read(at, max, &ret[i], &at); i++) {
		if (!*at) {
			*ret_n = i + 1;
			return 0;
		}
		if (*at++ != ',')
			break;
	}
	return args_fail(args,
			 "--%s takes up to %u whole numbers from 1 to %u, with commas between, "
			 "not \"%.40s\"",
			 args->name, room, max, args->value);
}

/* ---- figures -------------------------------------------------------------------------------- */

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

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

void bench_sort(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), compare);
}

double bench_median(double *values, uint32_t n)
{
	bench_sort(values, n);
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

static int unknown_command(const char *name)
{
	struct nearest nearest;

	nearest_begin(&nearest, name, strlen(name));
	for (const struct bench_command *c = commands; c->name; c++)
		nearest_offer(&nearest, c->name);
	if (nearest.word)
		fprintf(stderr, "coppice-bench: there is no command \"%s\": did you mean %s?\n",
			name, nearest.word);
	else
		fprintf(stderr, "coppice-bench: there is no command \"%s\": see --help\n", name);
	return CLI_USAGE;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr, CLI_USAGE);
	if (strcmp(argv[1], "--help") == 0)
		return usage(stdout, CLI_OK);
	for (const struct bench_command *c = commands; c->name; c++) {
		char name[64];

		if (strcmp(c->name, argv[1]) != 0)
			continue;
		snprintf(name, sizeof(name), "coppice-bench %s", c->name);
		argv[1] = name;
		return c->run(argc - 1, argv + 1);
	}
	return unknown_command(argv[1]);
}
