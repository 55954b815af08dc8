/* device_ops.h - a backend's module in a test, where there is a device for it. */
#ifndef COPPICE_TESTS_DEVICE_OPS_H
#define COPPICE_TESTS_DEVICE_OPS_H

#include "kernels/backend.h"

/* Loads the module, for good. 0; or what a test is to exit with after this has said why: 77 where
 * there is no device. */
int device_ops(const char *module, const struct backend_ops **ret);

#endif
