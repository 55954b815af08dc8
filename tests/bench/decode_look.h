/*
 * decode_look.h - what the daemon of coppice-bench decode has done and holds, by its own word
 * (coppicectl status), and what the GPU's driver says is taken (nvidia-smi).
 */
#ifndef COPPICE_BENCH_DECODE_LOOK_H
#define COPPICE_BENCH_DECODE_LOOK_H

#include "daemon.h"

#include <stdbool.h>
#include <stdint.h>

struct decode_look {
	uint64_t n_passes, n_rows, pass_ns; /* so far */
	double weights_bytes; /* with programs' own memory */
	double pool_bytes, page_bytes; /* lent to models; of pages in use */
};

void decode_look(const struct bench_daemon *daemon, struct decode_look *ret);
/* Bytes of all GPUs that are taken, by whomever. < 0: nothing says. */
double decode_device_bytes(void);
/* Has the process a GPU open? Then it has memory of it. */
bool decode_uses_device(pid_t pid);

#endif
