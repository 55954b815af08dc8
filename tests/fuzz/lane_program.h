/*
 * lane_program.h - a model of the hostile session's that has a program, and a backend that runs it:
 * it computes nothing, reads what a pass brings and writes what is wanted of it.
 */
#ifndef COPPICE_FUZZ_LANE_PROGRAM_H
#define COPPICE_FUZZ_LANE_PROGRAM_H

#include "lane_hostile.h"

#define PROGRAM_VOCAB 8u
#define PROGRAM_HIDDEN 16u

/* The CPU's, with programs; before the harness starts. */
void lane_program_backend(struct harness *h);
/* The model's number. */
uint32_t lane_program_open(struct world *w);
/* Bytes of a row of which so much is wanted. */
uint32_t lane_program_row(uint32_t want);

#endif
