/*
 * dtype.c - types of elements, by the names that torch and numpy have for them.
 *
 * The fp8 ones have names, as weights may have them; models of them are refused by the daemon.
 */
#include "dtype.h"

#include "fault.h"

#include <errno.h>

#define DLPACK_UINT 1
#define DLPACK_FLOAT 2
#define DLPACK_BFLOAT 4
#define DLPACK_E4M3 10
#define DLPACK_E5M2 12

static const struct dtype dtypes[] = {
	{"float32", COPPICE_FP32, 4, DLPACK_FLOAT, 32, "<f4"},
	{"float16", COPPICE_FP16, 2, DLPACK_FLOAT, 16, "<f2"},
	{"bfloat16", COPPICE_BF16, 2, DLPACK_BFLOAT, 16, NULL},
	{"float8_e4m3fn", COPPICE_FP8_E4M3, 1, DLPACK_E4M3, 8, NULL},
	{"float8_e5m2", COPPICE_FP8_E5M2, 1, DLPACK_E5M2, 8, NULL},
	{"uint8", DTYPE_UINT8, 1, DLPACK_UINT, 8, "|u1"},
};

#define N_DTYPES (sizeof(dtypes) / sizeof(*dtypes))

const struct dtype *dtype_by_name(const char *name)
{
	for (size_t i = 0; i < N_DTYPES; i++) {
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	}
	return fault_format(-EINVAL, "there is no dtype %s: float32, float16, bfloat16 or uint8",
			    name);
}

const struct dtype *dtype_by_dlpack(uint8_t code, uint8_t bits)
{
	for (size_t i = 0; i < N_DTYPES; i++) {
		if (dtypes[i].dlpack_code == code && dtypes[i].dlpack_bits == bits)
			return &dtypes[i];
	}
	return NULL;
}

const struct dtype *dtype_by_code(int code)
{
	for (size_t i = 0; i < N_DTYPES; i++) {
		if (dtypes[i].code == code)
			return &dtypes[i];
	}
	return NULL;
}

const char *dtype_name(int code)
{
	const struct dtype *dtype = dtype_by_code(code);

	return dtype ? dtype->name : "unknown";
}
