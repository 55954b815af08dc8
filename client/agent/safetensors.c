/*
 * safetensors.c - a file of others is mapped; what its header says holds before anybody reads on.
 */
#include "safetensors.h"

#include "proto/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_file(const char *path, struct safetensors *file, struct fault *fault)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map;

	if (fd < 0)
		return fault_set(fault, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return fault_set(fault, -EINVAL, "%s: is not a regular file", path);
	if (st.st_size < SAFETENSORS_LENGTH_BYTES)
		return fault_set(fault, -EINVAL,
				 "%s: %jd bytes are too few for a safetensors file (the header's "
				 "length takes 8)",
				 path, (intmax_t)st.st_size);
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return fault_set(fault, -errno, "%s: cannot be mapped: %s", path, strerror(errno));
	*file = (struct safetensors){.map = map, .map_bytes = st.st_size};
	return 0;
}

static int read_header(struct safetensors *file, char why[SAFETENSORS_WHY_BYTES])
{
	uint64_t n = 0;
	int r = safetensors_header_length(file->map, file->map_bytes, &n, why);
	if (r < 0)
		return r;
	const char *json = (const char *)file->map + SAFETENSORS_LENGTH_BYTES;
	file->data = json + n;
	return safetensors_header_parse(json, n, file->map_bytes - SAFETENSORS_LENGTH_BYTES - n,
					&file->header, why);
}

int safetensors_open(const char *path, struct safetensors *ret, struct fault *fault)
{
	struct safetensors file = {0};
	char why[SAFETENSORS_WHY_BYTES];
	int r = map_file(path, &file, fault);
	if (r < 0)
		return r;
	r = read_header(&file, why);
	if (r < 0) {
		safetensors_close(&file);
		return fault_set(fault, r, "%s: %s", path, why);
	}
	*ret = file;
	return 0;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	for (uint32_t i = 0; i < file->header.n_tensors; i++)
		if (!strcmp(file->header.tensors[i].name, name))
			return &file->header.tensors[i];
	return NULL;
}

void safetensors_close(struct safetensors *file)
{
	safetensors_header_done(&file->header);
	if (file->map)
		munmap(file->map, file->map_bytes);
	*file = (struct safetensors){0};
}
