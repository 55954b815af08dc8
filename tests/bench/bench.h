/*
 * bench.h - what the parts of coppice-bench share: the table of subcommands, how options' numbers
 * are read, and how results are printed.
 *
 * A subcommand is one file with one entry in the table of bench.c; parts whose library may be
 * missing from a build are guarded by BENCH_HAVE_...
 */
#ifndef COPPICE_BENCH_H
#define COPPICE_BENCH_H

#include "proto/cli/args.h"
#include "proto/must_check.h"
#include "proto/cli/status.h"
#include "proto/clock.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_REPS_MAX 1000u /* where an array has a time of each */
#define BENCH_THREADS_MAX 1024u /* as coppiced has it */
#define BENCH_TOKENS_MAX (1u << 24) /* of a path; as coppice-agent has it */

struct bench_command {
	const char *name;
	const char *doc; /* one line */
	/* argv[0] is "coppice-bench NAME", options are the subcommand's own. Returns the exit
	 * status. */
	int (*run)(int argc, char **argv);
};

/* How the command line of a subcommand is read. --json and --reps are every one's. */
struct bench_options {
	const char *doc; /* what --help says first */
	const struct args_option *table; /* its own options; NULL: none */
	/* The value of one of them. 0, or -EINVAL by args_fail. */
	int (*take)(struct args *args, int key, void *to);
	int (*check)(struct args *args, void *to); /* of all of them, at the end; NULL: none */
	void *to; /* for take and check */
	uint32_t most_reps; /* that --reps takes; 0: as many as it wants */
};

/* Reads it. -1: go on; else the exit status: help was printed, or what is wrong. */
MUST_CHECK int bench_read(const struct bench_options *options, int argc, char **argv);

/* The value at hand. 0, or -EINVAL and a sentence in args->why. */
MUST_CHECK int bench_take_whole(struct args *args, uint32_t min, uint32_t max, uint32_t *ret);
MUST_CHECK int bench_take_head_dim(struct args *args, uint32_t *ret);
/* A number above 0: a rate, a time. */
MUST_CHECK int bench_take_rate(struct args *args, double *ret);
/* A number from 0 to 1. */
MUST_CHECK int bench_take_share(struct args *args, double *ret);
/* What coppiced takes as --pool. Borrowed from the command line. */
MUST_CHECK int bench_take_pool(struct args *args, const char **ret);
/* Whole numbers from 1 to max with commas between, as many as ret has room for. */
MUST_CHECK int bench_take_list(struct args *args, uint32_t max, uint32_t room, uint32_t *ret,
			       uint32_t *ret_n);

/* Repetitions asked for, or fallback. */
uint32_t bench_reps(uint32_t fallback);

/* One figure: a line for people, or {"bench","case","metric","value","unit"} on a line. */
void bench_print(const char *bench, const char *name, const char *metric, double value,
		 const char *unit);

void bench_sort(double *values, uint32_t n);
double bench_median(double *values, uint32_t n); /* sorts values; n > 0 */

int ring_main(int argc, char **argv);
int agents_main(int argc, char **argv);
int clients_main(int argc, char **argv);
int neighbours_main(int argc, char **argv);
#ifdef BENCH_HAVE_AGENT
int decode_main(int argc, char **argv);
#endif
#ifdef BENCH_HAVE_KVSTORE
int store_main(int argc, char **argv);
#endif
#ifdef BENCH_HAVE_KERNELS
int attention_main(int argc, char **argv);
int fit_main(int argc, char **argv);
int multi_main(int argc, char **argv);
#ifdef BENCH_HAVE_AGENT
int sparse_main(int argc, char **argv);
#endif
#ifdef BENCH_HAVE_KVSTORE
int tiers_main(int argc, char **argv);
#endif
#endif

#endif
