/* json_file.h - a file of JSON that an option names. */
#ifndef COPPICE_BENCH_JSON_FILE_H
#define COPPICE_BENCH_JSON_FILE_H

#include <jansson.h>

/* The caller's; NULL after a sentence on stderr. An array that is none is no array of what. */
json_t *json_file_read(const char *path);
json_t *json_file_read_array(const char *path, const char *what);

#endif
