/* program_results.h - what comes of rows, held against what it is to be. */
#ifndef COPPICE_TESTS_PROGRAM_RESULTS_H
#define COPPICE_TESTS_PROGRAM_RESULTS_H

#include "kernels/program/program.h"

/* Asserts that a row's likeliest, log of the sum and score are those of its logits. */
void results_check(const struct program_row *row, const float *logits, uint32_t n_vocab,
		   uint32_t next);
/* The largest norm of a row's difference to the truth over the norm of the truth. */
double rows_error(const float *rows, const double *truth, uint32_t n, uint32_t width);
/* The same of all rows taken as one. */
double rows_error_of_all(const float *rows, const double *truth, uint32_t n, uint32_t width);

#endif
