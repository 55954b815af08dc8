/* fake.h - what the fake driver and the fake module agree on: device memory is a memfd of the
 * daemon. */
#ifndef COPPICE_FAKE_H
#define COPPICE_FAKE_H

#include <stddef.h>
#include <stdint.h>

/* 16 bytes: of device 0; another one's last letter is as many on as its index says. */
#define FAKE_UUID "coppice fake gpu"
#define FAKE_ARENA_BYTES (UINT64_C(2) << 20) /* arenas of the tests */

#endif
