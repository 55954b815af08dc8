/*
 * content.h - which tensors some files have, and where in memory each goes.
 */
#ifndef COPPICED_WEIGHTS_CONTENT_H
#define COPPICED_WEIGHTS_CONTENT_H

#include "held.h"

#include "proto/safetensors/safetensors_header.h"

/* A file, and how far it has come. */
struct part {
	struct loader_file about;
	uint8_t *bytes; /* owned: of the header, its length in front */
	uint64_t have, wanted; /* of these */
	struct safetensors_header header; /* owned */
	uint32_t *numbers; /* owned, [header.n_tensors]: in the content; PROGRAM_NONE: left out */
	uint64_t at; /* bytes of data that have come */
	uint32_t tensor; /* the one that they have come to */
};

/* Names, types and places of all tensors that are of use, from the headers of all parts, whose
 * numbers are set. *ret_bytes: of memory that they take. 0; -EINVAL, -ENOMEM and a sentence in why,
 * the content half made. */
MUST_CHECK int content_make(struct weights_content *content, struct part *parts, uint32_t n_parts,
			    uint64_t *ret_bytes, char why[WEIGHTS_WHY_BYTES]);
/* Heap that the names of a file's tensors take, and what is known of each. */
uint64_t content_names_bytes(const struct safetensors_header *header);
/* From those of all tensors. */
void content_digest(struct weights_content *content);
/* All but its memory. */
void content_done(struct weights_content *content);

#endif
