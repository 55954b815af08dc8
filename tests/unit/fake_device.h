/*
 * fake_device.h - the device of the CUDA backend's programs, played: its memory is the machine's,
 * what is launched is done at once, one element after the other, and attention is the CPU's.
 * In place of the CUDA runtime, the kernels, cuBLASLt, and a batch's layers.
 */
#ifndef COPPICE_TESTS_FAKE_DEVICE_H
#define COPPICE_TESTS_FAKE_DEVICE_H

#include "kernels/backend.h"

#include <stdbool.h>
#include <stdint.h>

extern bool fake_device_shares; /* memory with other processes; true at first */
extern uint64_t fake_device_bytes; /* of the driver's memory that are mapped */
#define FAKE_DEVICES 4
extern uint32_t fake_device_lets[FAKE_DEVICES]; /* times that a device was let to such memory */
extern uint32_t fake_device_refused; /* outputs for which there is no product; 0 at first */
extern int fake_n_pinned; /* pieces of pinned memory that are there */

/* The CPU's backend, whose programs are those of the GPU's host code. One backend at a time. */
const struct backend_ops *fake_device_ops(void);

#endif
