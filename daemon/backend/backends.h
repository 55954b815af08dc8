/*
 * backends.h - which backend computes: the CPU, which is linked in, or one that lies in a module
 * beside the daemon.
 *
 * coppice-NAME.so is looked for in $COPPICE_MODULE_DIR, where it was installed, and in the build
 * tree. It is loaded with dlopen, so that the daemon runs where the device's driver and libraries
 * are absent.
 */
#ifndef COPPICED_BACKENDS_H
#define COPPICED_BACKENDS_H

#include "proto/must_check.h"
#include "daemon/config/config.h"
#include "kernels/backend.h"

struct opened_backend {
	const struct backend_ops *ops; /* stay where they are while this does */
	struct backend_ops group; /* of several devices: ops */
	char name[32]; /* its name: "cpu x 4" */
	struct backend *backend; /* owned */
	void *module; /* owned; NULL: linked in */
};

/* config->backend: "cpu", "cuda", or "auto": the GPU if there is one, else the CPU. A pool that is
 * a share becomes bytes: config->pool_bytes. Says in the log what was wrong. 0 or -errno.
 * Blocks. */
MUST_CHECK int backends_open(struct config *config, struct opened_backend *ret);
/* Finds the same backend and pool, and opens nothing: of *ret the name alone is filled. -ENOMEM:
 * the pool does not fit; another -errno: what computes is not on this machine. Blocks. */
MUST_CHECK int backends_look(struct config *config, struct opened_backend *ret);
void backends_close(struct opened_backend *opened); /* one that is all zero is fine */

#endif
