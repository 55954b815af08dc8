/*
 * ids.h - token ids from a file.
 */
#ifndef AGENT_IDS_H
#define AGENT_IDS_H

#include "client/model/fault.h"

#include <stdint.h>

/* Token ids: decimal numbers with blanks between, or (any other byte in it) 32-bit little-endian
 * words. *ret is the caller's to free. */
MUST_CHECK int ids_read(const char *path, uint32_t **ret, uint32_t *ret_n, struct fault *fault);

#endif
