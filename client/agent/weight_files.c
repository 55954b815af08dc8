/*
 * weight_files.c - an index says of each tensor which shard it is in; each shard is listed once.
 *
 * A shard's name is that of a file of the same folder, so that an index reaches nothing else.
 */
#include "weight_files.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int add(struct weight_files *files, const char *path, struct fault *fault)
{
	char **paths = realloc(files->paths, (files->n + 1) * sizeof(*paths));
	if (!paths)
		return fault_set(fault, -ENOMEM, "out of memory");
	files->paths = paths;
	paths[files->n] = strdup(path);
	if (!paths[files->n])
		return fault_set(fault, -ENOMEM, "out of memory");
	files->n++;
	return 0;
}

static int add_shards(struct weight_files *files, const char *dir, const char *index_path,
		      const json_t *index, struct fault *fault)
{
	json_t *map = json_object_get(index, "weight_map"), *seen = json_object(), *shard;
	const char *tensor;
	int r = 0;
	if (!json_is_object(map))
		r = fault_set(fault, -EINVAL, "%s: has no weight_map", index_path);
	json_object_foreach(map, tensor, shard)
	{
		const char *name = json_string_value(shard);
		if (r == 0 && (!name || strchr(name, '/')))
			r = fault_set(fault, -EINVAL, "%s: tensor %s: its shard is not a file name",
				      index_path, tensor);
		if (r < 0 || json_object_get(seen, name))
			continue;
		char path[PATH_MAX];
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		r = add(files, path, fault);
		json_object_set_new(seen, name, json_true());
	}
	json_decref(seen);
	return r;
}

static int add_index(struct weight_files *files, const char *dir, const char *index_path,
		     struct fault *fault)
{
	json_error_t error;
	json_t *index = json_load_file(index_path, JSON_REJECT_DUPLICATES, &error);
	if (!index)
		return fault_set(fault, -EINVAL, "%s: is not JSON: %s (line %d)", index_path,
				 error.text, error.line);
	int r = add_shards(files, dir, index_path, index, fault);
	json_decref(index);
	return r;
}

int weight_files_find(const char *dir, struct weight_files *ret, struct fault *fault)
{
	struct weight_files files = {0};
	char single[PATH_MAX], index[PATH_MAX];
	snprintf(single, sizeof(single), "%s/model.safetensors", dir);
	snprintf(index, sizeof(index), "%s/model.safetensors.index.json", dir);
	int r;
	if (access(single, F_OK) && access(index, F_OK) == 0)
		r = add_index(&files, dir, index, fault);
	else
		r = add(&files, single, fault);
	if (r < 0)
		weight_files_done(&files);
	else
		*ret = files;
	return r;
}

void weight_files_done(struct weight_files *files)
{
	for (uint32_t i = 0; i < files->n; i++)
		free(files->paths[i]);
	free(files->paths);
	*files = (struct weight_files){0};
}
