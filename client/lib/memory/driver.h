/*
 * driver.h - the NVIDIA driver, looked up when something first needs it: an app with host arenas
 * needs none.
 *
 * Entry points of libcuda.so.1 under names of our own, with the types that their ABI has; results
 * are CUDA's, 0 is success. Streams and contexts are the app's.
 */
#ifndef COPPICE_CLIENT_DRIVER_H
#define COPPICE_CLIENT_DRIVER_H

#include "proto/must_check.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct coppice;

struct driver_uuid {
	uint8_t bytes[16];
};

enum { DRIVER_BY_DESCRIPTOR = 1, DRIVER_OF_DEVICE = 1, DRIVER_READ_WRITE = 3 };

struct driver_access {
	int where, device; /* DRIVER_OF_DEVICE, which */
	int how; /* DRIVER_READ_WRITE */
};
static_assert(sizeof(struct driver_access) == 12, "CUmemAccessDesc");

enum driver_op_kind { DRIVER_WAIT_VALUE_64 = 4, DRIVER_WRITE_VALUE_64 = 5 };

/* One operation of a batch. */
struct driver_op {
	uint32_t kind;
	uint32_t pad0;
	uint64_t address;
	uint64_t value;
	/* wait: 0, until (int64_t)(*address - value) >= 0; write: 0, after a system-wide fence */
	uint32_t flags;
	uint32_t pad1;
	uint64_t alias; /* the driver's */
	uint64_t pad2;
};
static_assert(sizeof(struct driver_op) == 48, "CUstreamBatchMemOpParams");

enum { DRIVER_LAUNCH_EARLY = 6 }; /* programmatic stream serialization */

struct driver_launch_attribute {
	uint32_t kind;
	uint32_t pad;
	uint64_t value[8];
};
static_assert(sizeof(struct driver_launch_attribute) == 72, "CUlaunchAttribute");

struct driver_launch {
	uint32_t grid[3], block[3];
	uint32_t shared_bytes;
	uint32_t pad0;
	void *stream;
	struct driver_launch_attribute *attributes;
	uint32_t n_attributes;
	uint32_t pad1;
};
static_assert(sizeof(struct driver_launch) == 56, "CUlaunchConfig");

struct driver {
	int (*init)(unsigned flags);
	int (*error_string)(int error, const char **ret);
	int (*device_count)(int *ret);
	int (*device_get)(int *ret, int index);
	int (*device_uuid)(struct driver_uuid *ret, int device);
	int (*device_attribute)(int *ret, int attribute, int device);
	int (*primary_retain)(void **ret_context, int device);
	int (*primary_release)(int device);
	int (*context_current)(void **ret);
	int (*context_device)(int *ret);
	int (*context_push)(void *context);
	int (*context_pop)(void **ret);
	int (*context_wait)(void);
	int (*memory_import)(uint64_t *ret, void *from, int kind); /* from: a descriptor, cast */
	int (*memory_release)(uint64_t memory); /* what is mapped stays until then */
	int (*address_reserve)(uint64_t *ret, size_t bytes, size_t align, uint64_t near,
			       unsigned long long flags);
	int (*address_free)(uint64_t address, size_t bytes);
	int (*memory_map)(uint64_t address, size_t bytes, size_t offset, uint64_t memory,
			  unsigned long long flags);
	int (*memory_unmap)(uint64_t address, size_t bytes);
	int (*memory_let)(uint64_t address, size_t bytes, const struct driver_access *access,
			  size_t n);
	int (*host_register)(void *host, size_t bytes, unsigned flags);
	int (*host_unregister)(void *host);
	int (*host_address)(uint64_t *ret_address, void *host, unsigned flags);
	int (*stream_context)(void *stream, void **ret);
	int (*stream_capturing)(void *stream, int *ret);
	int (*stream_write)(void *stream, uint64_t address, uint64_t value, unsigned flags);
	int (*stream_wait)(void *stream, uint64_t address, uint64_t value, unsigned flags);
	int (*stream_batch)(void *stream, unsigned n, struct driver_op *ops, unsigned flags);
	int (*module_load)(void **ret, const void *image);
	int (*module_unload)(void *module);
	int (*module_function)(void **ret, void *module, const char *name);
	int (*launch)(const struct driver_launch *launch, void *function, void **arguments,
		      void **extra);
};

/* The driver, initialised; found once for a connection. what: the public function, for the
 * sentence. 0, -ENODEV (none, too old, or it sees no GPU), -ENOMEM; explains. */
MUST_CHECK int driver_find(struct coppice *c, const char *what, const struct driver **ret);
/* The same where the calling thread has a context already, which is *ret_context; else NULL, and
 * nothing is begun. */
const struct driver *driver_find_current(struct coppice *c, void **ret_context);
/* Explains that CUDA has refused; returns -EIO. doing: what. */
int driver_explain(struct coppice *c, const char *what, const char *doing, int error);
/* CUDA's sentence for an error. */
const char *driver_error(const struct driver *driver, int error);

#endif
