/* uuid.h - by what other processes know a device. */
#ifndef COPPICE_CUDA_UUID_H
#define COPPICE_CUDA_UUID_H

#include "kernels/backend.h"

/* The driver's own, which is also a part's where the device is parted. */
void uuid_of_device(int device, uint8_t ret[BACKEND_DEVICE_BYTES]);

#endif
