/* program_head.h - what is wanted of rows behind the last layer. */
#ifndef COPPICE_CPU_PROGRAM_HEAD_H
#define COPPICE_CPU_PROGRAM_HEAD_H

#include "kernels/program/backend_program.h"
#include "state.h"

void program_head(struct backend *b, const struct backend_run *run);

#endif
