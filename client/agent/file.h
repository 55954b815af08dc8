/*
 * file.h - files read whole: documents, prompts, token ids, config.json.
 */
#ifndef AGENT_FILE_H
#define AGENT_FILE_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>

/* *ret: the file's bytes and a NUL behind them, the caller's to free. 0, or -errno and a
 * sentence. */
MUST_CHECK int file_read(const char *path, char **ret, size_t *ret_bytes, struct fault *fault);
/* Token ids: decimal numbers with blanks between, or (any other byte in it) 32-bit little-endian
 * words. *ret is the caller's to free. */
MUST_CHECK int file_read_ids(const char *path, uint32_t **ret, uint32_t *ret_n,
			     struct fault *fault);

#endif
