/* program.h - the CPU's part of whole tokens: weights in its memory, and runs of programs. */
#ifndef COPPICE_CPU_PROGRAM_H
#define COPPICE_CPU_PROGRAM_H

#include "kernels/program/backend_program.h"

extern const struct backend_program_ops cpu_program;

#endif
