/*
 * load.h - weights on their way from a client's files to the backend's memory.
 */
#ifndef COPPICED_WEIGHTS_LOAD_H
#define COPPICED_WEIGHTS_LOAD_H

#include "weights.h"

/* Starts a thread that ends with weights_load_over. client_fd: the loader's end, owned by the call.
 * 0 or -errno. */
MUST_CHECK int load_start(struct weights *weights, int client_fd);

#endif
