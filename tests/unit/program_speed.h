/* program_speed.h - how long runs take of a model of 8 billion weights, and its products alone. */
#ifndef COPPICE_TESTS_PROGRAM_SPEED_H
#define COPPICE_TESTS_PROGRAM_SPEED_H

#include "kernels/program/backend_program.h"

/* Prints figures of a GPU's module. rows: numbers of them, of one prompt where a p stands behind
 * one, NULL behind the last; none: those that RESULTS.md has. 0, or what to exit with. */
int program_speed(const struct backend_ops *ops, const char *module, char *const *rows);

#endif
