/* program_gpu.h - programs on the GPU, or on one that is played, against float64 and the CPU. */
#ifndef COPPICE_TESTS_PROGRAM_GPU_H
#define COPPICE_TESTS_PROGRAM_GPU_H

#include "oracle.h"
#include "program_errors.h"
#include "program_machine.h"

extern const struct backend_ops *gpu_ops; /* once it is found */

/* By the backend's module; with PROGRAM_FAKE it is played, and there is none (fake_device.h). 0; or
 * what a test is to exit with. */
int gpu_find(const char *module);
/* A model by chance that it takes: its heads, rows of 16 bytes, matrices of the model's type. */
struct model_want gpu_want(struct oracle_random *random);
void gpu_start(struct machine *machine, struct program_model *m);
/* So many tokens, by as little at a time as can be. The model is freed. */
void gpu_check(struct program_model *m, const struct model_want *want, uint32_t n,
	       struct program_errors *errors);
/* The same of a new one. */
void gpu_check_new(const struct model_want *want, uint32_t n, struct oracle_random *random,
		   struct program_errors *errors);

#endif
