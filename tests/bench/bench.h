/*
 * bench.h - what the parts of coppice-bench share: the table of subcommands and how results are
 * printed.
 *
 * A subcommand is one file with one entry in the table of bench.c; parts whose library may be
 * missing from a build are guarded by BENCH_HAVE_...
 */
#ifndef COPPICE_BENCH_H
#define COPPICE_BENCH_H

#include <stdbool.h>
#include <stdint.h>

struct bench_command {
	const char *name;
	const char *doc; /* one line */
	/* argv[0] is "coppice-bench NAME", options are the subcommand's own. Returns the exit
	 * status. */
	int (*run)(int argc, char **argv);
};

/* --json and --reps are every subcommand's: a child parser of its own (struct argp_child). */
extern const struct argp bench_common_argp;

/* Repetitions asked for, or fallback. */
uint32_t bench_reps(uint32_t fallback);

/* One figure: a line for people, or {"bench","case","metric","value","unit"} on a line. */
void bench_print(const char *bench, const char *name, const char *metric, double value,
		 const char *unit);

uint64_t bench_now_ns(void);
double bench_median(double *values, uint32_t n); /* sorts values; n > 0 */

int ring_main(int argc, char **argv);
int agents_main(int argc, char **argv);
int clients_main(int argc, char **argv);
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
