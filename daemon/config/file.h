/*
 * file.h - the config file: INI, one section [coppiced].
 */
#ifndef COPPICED_FILE_H
#define COPPICED_FILE_H

#include "value.h"

/* Reads it over what the target has. Unknown keys, bad values and lines that are not understood are
 * all said, with file, line, key and what is accepted. -EINVAL: something was. A file that need not
 * be there and is not is fine. */
MUST_CHECK int file_read(struct value_target *target, const char *path, bool must_exist);

#endif
