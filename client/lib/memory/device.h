/* device.h - the daemon's device memory, mapped here by CUDA IPC: by its descriptor. */
#ifndef COPPICE_CLIENT_DEVICE_H
#define COPPICE_CLIENT_DEVICE_H

#include "client/lib/connection/call.h"

/* Memory that is mapped, and where. */
struct device_memory {
	uint64_t address; /* 0: none is */
	size_t bytes;
	void *context; /* the app's, or the device's primary one */
	int device;
	bool retained; /* the primary context, by us */
};

/* As an answer names it. */
struct device_name {
	const ProtobufCBinaryData *device; /* UUID; NULL: not there */
	int fd; /* borrowed */
	size_t bytes;
};

/* What an answer to what (the public function) says. 0, -ENODEV, -EIO; explains. */
MUST_CHECK int device_open(struct coppice *c, const char *what, const struct device_name *name,
			   struct device_memory *ret);
/* Of one that is not open: nothing. */
void device_close(struct coppice *c, struct device_memory *memory);

#endif
