/*
 * safetensors_header.h - the header of a .safetensors file: which tensors it has, none of them
 * believed.
 *
 *      0        8                    8 + n                                  end
 *      | n: u64 | JSON of n bytes    | data: tensor after tensor, no gaps   |
 *                 {"name": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [begin, end]}, ...}
 *
 * Everything is checked: lengths, JSON, element types, that shape and offsets agree, and that the
 * tensors tile the data exactly (no overlap, no gap, nothing beyond the end). After that each
 * tensor's bytes [begin, end) of the data are there.
 */
#ifndef COPPICE_SAFETENSORS_HEADER_H
#define COPPICE_SAFETENSORS_HEADER_H

#include "proto/must_check.h"

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_LENGTH_BYTES 8u /* in front of the header */
#define SAFETENSORS_HEADER_BYTES_MAX (100u << 20) /* the format's own limit */
#define SAFETENSORS_ENTRY_BYTES_MAX 4096 /* about a tensor, beside its name */
#define SAFETENSORS_WHY_BYTES 512u

struct safetensors_tensor {
	const char *name; /* in the header's names */
	char dtype[12]; /* as the file names it: F32, F16, BF16, I64, ... */
	uint32_t n_dims;
	uint64_t dims[SAFETENSORS_MAX_DIMS];
	uint64_t begin, end; /* bytes from the start of the data */
};

struct safetensors_header {
	struct safetensors_tensor *tensors; /* owned, ascending by begin */
	uint32_t n_tensors;
	char *names; /* owned: of all of them */
};

/* How many bytes the header of a file has, from its first SAFETENSORS_LENGTH_BYTES. 0, or -EINVAL
 * and a sentence's end ("is ..."). */
MUST_CHECK int safetensors_header_length(const uint8_t *first, uint64_t file_bytes, uint64_t *ret,
					 char why[SAFETENSORS_WHY_BYTES]);
/* From n bytes of JSON, of a file with so many bytes of data behind it. 0; or -EINVAL, -ENOMEM and
 * what is wrong, naming the tensor. Takes no more than some 6 n bytes of heap meanwhile. */
MUST_CHECK int safetensors_header_parse(const char *json, size_t n, uint64_t data_bytes,
					struct safetensors_header *ret,
					char why[SAFETENSORS_WHY_BYTES]);
/* A zeroed struct is fine. */
void safetensors_header_done(struct safetensors_header *header);

#endif
