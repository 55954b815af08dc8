/*
 * card.c - which GPU computes; see card.h. Nothing here allocates on a device, and what is refused
 * is refused before anything was: the sentence says what to do instead.
 */
#include "card.h"

#include "kernels/say.h"
#include "proto/size_text.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SPARE_BYTES (UINT64_C(512) << 20) /* for context, tables and partials */
/* Of what is free at start. Device arenas, summaries and what clients compute with come later, and
 * are of the same memory: a pool that has grown gives back extents only as they become empty. */
#define USUAL_PERCENT 80

/* Compute capability from which on there is code of its own to be missed. */
#define FIRST_WITH_CODE 9

struct card_room {
	size_t free_bytes, all_bytes;
};

static int count(char *error, size_t error_bytes, int *ret)
{
	cudaError_t r = cudaGetDeviceCount(ret);

	if (r == cudaSuccess && *ret > 0)
		return 0;
	if (r == cudaErrorInsufficientDriver)
		say(error, error_bytes,
		    "no NVIDIA driver, or one too old for CUDA %d: install a newer driver, or use "
		    "backend = cpu",
		    CUDART_VERSION / 1000);
	else if (r == cudaErrorNoDevice || r == cudaSuccess)
		say(error, error_bytes,
		    "the NVIDIA driver sees no GPU here (is it passed to this container?); "
		    "backend = cpu works without");
	else
		say(error, error_bytes,
		    "the NVIDIA driver does not start: %s; backend = cpu works without",
		    cudaGetErrorString(r));
	return -EINVAL;
}

static void format_uuid(const struct cudaDeviceProp *prop, char ret[48])
{
	const unsigned char *u = (const unsigned char *)prop->uuid.bytes;

	snprintf(ret, 48,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
		 u[14], u[15]);
}

/* By index, by UUID or by the first part of one; NULL: the first. */
static int find(const char *name, int n_devices, struct cudaDeviceProp *prop)
{
	char *end, uuid[48];
	long index = name ? strtol(name, &end, 10) : 0;

	if (!name || (*name && *end == '\0')) {
		if (index < 0 || index >= n_devices ||
		    cudaGetDeviceProperties(prop, (int)index) != cudaSuccess)
			return -1;
		return (int)index;
	}
	for (int i = 0; i < n_devices; i++) {
		if (cudaGetDeviceProperties(prop, i) != cudaSuccess)
			continue;
		format_uuid(prop, uuid);
		if (strlen(name) > 4 && strncasecmp(uuid, name, strlen(name)) == 0)
			return i;
	}
	return -1;
}

/* Finds a GPU and makes it the calling thread's: its index, or -EINVAL. */
static int take(const char *name, struct cudaDeviceProp *prop, char *error, size_t error_bytes)
{
	int n_devices = 0, device, r = count(error, error_bytes, &n_devices);

	if (r)
		return r;
	device = find(name, n_devices, prop);
	if (device >= 0 && cudaSetDevice(device) == cudaSuccess)
		return device;
	say(error, error_bytes, "no GPU \"%s\" among %d: nvidia-smi -L lists indices and UUIDs",
	    name ? name : "0", n_devices);
	return -EINVAL;
}

static int measure(const struct cudaDeviceProp *prop, struct card_room *ret, char *error,
		   size_t error_bytes)
{
	if (cudaMemGetInfo(&ret->free_bytes, &ret->all_bytes) == cudaSuccess)
		return 0;
	say(error, error_bytes, "%s does not answer: %s", prop->name,
	    cudaGetErrorString(cudaGetLastError()));
	return -EINVAL;
}

static int check(const struct backend_config *config, const struct cudaDeviceProp *prop,
		 char *error, size_t error_bytes)
{
	struct card_room room;

	if (prop->major < 8) {
		say(error, error_bytes,
		    "%s is of compute capability %d.%d; 8.0 (Ampere) is the oldest that this "
		    "backend "
		    "takes: name another with device =, or use backend = cpu",
		    prop->name, prop->major, prop->minor);
		return -EINVAL;
	}
	if (measure(prop, &room, error, error_bytes) != 0)
		return -EINVAL;
	if (config->pool_bytes + SPARE_BYTES <= room.free_bytes)
		return 0;
	say(error, error_bytes,
	    "%s has %s free, a pool of %s and %s beside it do not fit: make the pool smaller, or "
	    "free the device",
	    prop->name, size_text_measured(room.free_bytes).text,
	    size_text_measured(config->pool_bytes).text, size_text(SPARE_BYTES, 0).text);
	return -ENOMEM;
}

int card_memory(const char *device, struct backend_memory *ret, char *error, size_t error_bytes)
{
	struct cudaDeviceProp prop;
	struct card_room room;
	int r = take(device, &prop, error, error_bytes);

	if (r >= 0)
		r = measure(&prop, &room, error, error_bytes);
	if (r < 0)
		return r;
	*ret = (struct backend_memory){.bytes = room.all_bytes};
	if (room.free_bytes > SPARE_BYTES)
		ret->usual_bytes = (room.free_bytes - SPARE_BYTES) / 100 * USUAL_PERCENT;
	return 0;
}

int card_kind(const char *device, struct backend_kind *ret, char *error, size_t error_bytes)
{
	struct cudaDeviceProp prop;
	int r = take(device, &prop, error, error_bytes);

	if (r < 0)
		return r;
	*ret = (struct backend_kind){.capability = (uint32_t)(10 * prop.major + prop.minor),
				     .n_multiprocessors = (uint32_t)prop.multiProcessorCount};
	return 0;
}

int card_find(const struct backend_config *config, struct card *ret, char *error,
	      size_t error_bytes)
{
	struct cudaDeviceProp prop;
	int device = take(config->device, &prop, error, error_bytes);
	int r = device < 0 ? device : check(config, &prop, error, error_bytes);

	if (r)
		return r;
	*ret = (struct card){.device = device,
			     .major = prop.major,
			     .minor = prop.minor,
			     .n_blocks = (uint32_t)prop.multiProcessorCount};
	snprintf(ret->name, sizeof(ret->name), "%.63s", prop.name);
	return 0;
}

bool card_runs_other_code(const struct card *card, enum code code, char *ret, size_t bytes)
{
	if (card->major < FIRST_WITH_CODE || code != CODE_MMA)
		return false;
	say(ret, bytes,
	    "%s (compute capability %d.%d) runs the portable code, made for %s, and is planned for "
	    "by its figures: "
	    "slower than it could be",
	    card->name, card->major, card->minor, code_name(code));
	return true;
}
