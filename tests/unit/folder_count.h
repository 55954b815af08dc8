/* folder_count.h - how many entries a folder has, as /proc tells of descriptors and threads. */
#ifndef FOLDER_COUNT_H
#define FOLDER_COUNT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

/* "." and ".." are two of them. */
static inline unsigned folder_count(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#endif
