/*
 * code.h - which of the codes that the module carries a device computes with. It is asked of the
 * driver, not of the device's architecture: what is newer than any code here runs the portable one,
 * and so does a device whose driver was told to make all code anew. What the code can is asked
 * here, and nowhere guessed from a compute capability.
 */
#ifndef COPPICE_CUDA_CODE_H
#define COPPICE_CUDA_CODE_H

#include "proto/must_check.h"
#include "kv_layout.h"

#include <stdbool.h>
#include <stdint.h>

enum code {
	CODE_MMA, /* for sm_80 and all that came later: mma.sync, copies of 16 bytes */
	CODE_WGMMA, /* for sm_90a: wgmma, bulk copies, launches that overlap */
};

/* Are there wide tiles with heads of so many values? */
static inline bool code_takes_wide(enum code code, uint32_t head_dim)
{
	return code == CODE_WGMMA && kv_wide_tiles_fit(head_dim);
}

/* May a launch begin before the one before it has ended, and so stand and wait for a call? */
static inline bool code_overlaps(enum code code)
{
	return code == CODE_WGMMA;
}

/* wgmma, clusters of blocks, tensor maps: what products of rows by a program's matrices use. */
static inline bool code_has_wgmma(enum code code)
{
	return code == CODE_WGMMA;
}

static inline bool code_copies_bulk(enum code code)
{
	return code == CODE_WGMMA;
}

static inline const char *code_name(enum code code)
{
	return code == CODE_WGMMA ? "sm_90a" : "sm_80";
}

#ifdef __cplusplus
extern "C" {
#endif

/* Of the process's devices, which all have the same: the driver is asked once. A cudaError_t: 0 is
 * success. */
MUST_CHECK int device_find_code(enum code *ret);

#ifdef __cplusplus
}
#endif

/* Where the driver does not answer, that which runs anywhere: it says no to whatever comes next,
 * too. */
static inline enum code device_code(void)
{
	enum code code = CODE_MMA;

	return device_find_code(&code) == 0 ? code : CODE_MMA;
}

#endif
