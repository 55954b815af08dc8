/*
 * costs_file.h - constants of the planner's model in a file of JSON, by their names: fit --save
 * writes them beside what it measured, attention --costs plans by them before they are compiled in.
 */
#ifndef COPPICE_BENCH_COSTS_FILE_H
#define COPPICE_BENCH_COSTS_FILE_H

#include "kernels/cuda/schedule/costs.h"

#include <jansson.h>
#include <stdbool.h>

/* What the file does not name stays as it is; inout->fitted is the file. False: it cannot be read,
 * which is said. */
bool costs_file_read(const char *file, struct costs *inout);
/* Into what is to become the file. 0 or -1. */
int costs_file_put(json_t *root, struct costs *costs);

#endif
