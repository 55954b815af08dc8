/*
 * results.h - what coppice-bench attention --backend cuda found, workload by workload, and the
 * tables at its end: times against limits and other systems, geometric means by kind, the worst,
 * and auto against the other policies.
 */
#ifndef COPPICE_BENCH_RESULTS_H
#define COPPICE_BENCH_RESULTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct result {
	char name[64];
	char kind[40]; /* what is averaged together */
	char policy[24];
	double us, limit_us;
	double expect_us; /* by the planner */
	double peer_us; /* of the fastest other system; 0: none is known */
	double plan_us, submit_us; /* of a tree not seen before: list; program, upload and launch */
	double again_us; /* the submit of a plan seen before */
	double next_us; /* list and submit of the tree a token later */
	double tflops;
	double error;
	bool right;
};

struct results {
	struct result *list; /* owned */
	uint32_t n, room;
};

/* Ends the program where there is no memory. */
void results_add(struct results *r, const struct result *result);
void results_done(struct results *r);

/* The tables, for people. */
void results_print(const struct results *r, FILE *to);
/* One figure a line: means by kind and policy, and by how much auto is slower than the best other
 * policy at most. */
void results_print_means(const struct results *r);

#endif
