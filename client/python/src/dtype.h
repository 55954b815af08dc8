/* dtype.h - types of elements, by the names that torch and numpy have for them. */
#ifndef COPPICE_PYTHON_DTYPE_H
#define COPPICE_PYTHON_DTYPE_H

#include "base.h"

#define DTYPE_UINT8 100 /* of tensors in an arena; no model's */

struct dtype {
	const char *name;
	int code; /* enum coppice_dtype, or DTYPE_UINT8 */
	uint32_t bytes;
	uint8_t dlpack_code, dlpack_bits;
	const char *typestr; /* of array interfaces; NULL: they have none */
};

/* NULL and an exception: there is none of that name. */
const struct dtype *dtype_by_name(const char *name);
/* Of DLPack's; NULL where it is none of these. No exception. */
const struct dtype *dtype_by_dlpack(uint8_t code, uint8_t bits);
const struct dtype *dtype_by_code(int code);
const char *dtype_name(int code);

#endif
