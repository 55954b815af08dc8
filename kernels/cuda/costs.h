/*
 * costs.h - what things take on a GPU, for the planner (program.h) and for weighing waits (backend.h): one table per
 * architecture, fitted on a card by coppice-bench fit, which prints it as costs.c has it.
 *
 * Multiprocessors are taken to work side by side: a KB that one of them reads costs what it does while all the others read.
 */
#ifndef COPPICE_CUDA_COSTS_H
#define COPPICE_CUDA_COSTS_H

struct costs {
	const char *architecture;
	const char *fitted; /* on which card, and when */
	double launch_ns; /* of attention, of next to nothing, between two events */
	double unit_ns; /* of a unit, beyond its groups and rows */
	double read_ns_per_kb; /* groups read by one multiprocessor */
	double slot_ns_per_kb; /* arithmetic of one row block on groups in slots */
	double stage_ns_per_kb; /* the same in stages */
	double part_ns_per_kb; /* partials, written and read */
	double merge_ns; /* of the launch that merges partials */
	double batch_ns; /* of next to nothing, from submit to completion */
};

/* Of the newest architecture that the device of this compute capability can run. */
const struct costs *costs_find(int major, int minor);

#endif
