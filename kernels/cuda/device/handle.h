/* handle.h - what another process opens a block of device memory by. */
#ifndef COPPICE_CUDA_HANDLE_H
#define COPPICE_CUDA_HANDLE_H

#include "kernels/must_check.h"
#include "kernels/backend.h"

/* Of a plain allocation of so many bytes. 0; -EIO: it has none, or the driver holds more than the
 * block behind the address, all of which a handle would open. */
MUST_CHECK int handle_make(const void *at, uint64_t bytes, uint8_t ret[BACKEND_HANDLE_BYTES]);
/* The driver's own, which is also a part's where the device is parted. */
void handle_device(int device, uint8_t ret[BACKEND_DEVICE_BYTES]);

#endif
