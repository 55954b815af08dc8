/* program_layer.h - what a run's rows go through before the head: embedding and layers. */
#ifndef COPPICE_CPU_PROGRAM_LAYER_H
#define COPPICE_CPU_PROGRAM_LAYER_H

#include "kernels/program/backend_program.h"
#include "state.h"

/* There is room for the run's rows, and for its job's attention. */
void program_embed(struct backend *b, const struct backend_run *run);
void program_turns(struct backend *b, const struct backend_run *run);
void program_layer(struct backend *b, const struct backend_run *run, uint32_t layer);

#endif
