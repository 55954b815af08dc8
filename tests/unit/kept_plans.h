/*
 * kept_plans.h - the CPU's backend by the GPU's plans: they are kept, take in tokens and are made
 * ahead by a device's own host code, and a row attends to what its schedule has it read, wherever
 * that lies. For steps of one token a sequence; all else is the CPU's.
 */
#ifndef COPPICE_TESTS_KEPT_PLANS_H
#define COPPICE_TESTS_KEPT_PLANS_H

#include "kernels/backend.h"

/* Tokens that were taken in, and that could not be. */
extern uint64_t kept_plans_n_taken, kept_plans_n_stale;

/* One backend at a time. */
const struct backend_ops *kept_plans_ops(void);

#endif
