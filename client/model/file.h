/*
 * file.h - files read whole: config.json, and what an app reads beside it.
 */
#ifndef MODEL_FILE_H
#define MODEL_FILE_H

#include "fault.h"

#include <stddef.h>

/* *ret: the file's bytes and a NUL behind them, the caller's to free. 0, or -errno and a
 * sentence. */
MUST_CHECK int file_read(const char *path, char **ret, size_t *ret_bytes, struct fault *fault);

#endif
