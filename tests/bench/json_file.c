/* json_file.c - what a file has, or why it has nothing. See json_file.h. */
#include "json_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

json_t *json_file_read(const char *path)
{
	json_error_t error;
	json_t *root = json_load_file(path, 0, &error);

	if (root)
		return root;
	if (json_error_code(&error) == json_error_cannot_open_file)
		fprintf(stderr, "coppice-bench: cannot open %s: %s\n", path, strerror(errno));
	else
		fprintf(stderr, "coppice-bench: %s: line %d: %s\n", path, error.line, error.text);
	return NULL;
}

json_t *json_file_read_array(const char *path, const char *what)
{
	json_t *root = json_file_read(path);

	if (!root || json_is_array(root))
		return root;
	fprintf(stderr, "coppice-bench: %s: no array of %s\n", path, what);
	json_decref(root);
	return NULL;
}
