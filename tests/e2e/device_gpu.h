/*
 * device_gpu.h - what the test's clients do with a GPU, by the driver's entry points, looked up at
 * run time: the real driver's, or fake_driver.c's.
 */
#ifndef COPPICE_DEVICE_GPU_H
#define COPPICE_DEVICE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu {
	int (*init)(unsigned flags);
	int (*count)(int *ret);
	int (*get)(int *ret, int index);
	int (*retain)(void **ret_context, int device);
	int (*enter)(void *context);
	int (*host_alloc)(void **ret, size_t bytes, unsigned flags);
	int (*host_free)(void *host);
	int (*copy_now)(uint64_t to, uint64_t from, size_t bytes);
	int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
	int (*call)(void *stream, void (*function)(void *), void *arg);
	int (*stream_new)(void **ret, unsigned flags);
	int (*stream_free)(void *stream);
	int (*stream_await)(void *stream);
	int (*capture_begin)(void *stream, int mode);
	int (*capture_end)(void *stream, void **ret_graph);
	int (*graph_make)(void **ret, void *graph, unsigned long long flags);
	int (*graph_launch)(void *replay, void *stream);
	int (*replay_free)(void *replay);
	int (*graph_free)(void *graph);
};

/* Runs a kernel that writes where nothing is: the end of the process's context. */
void gpu_fault(const struct gpu *gpu);

/* The driver and a context on its first device. NULL, or why there is none. */
const char *gpu_open(struct gpu *ret);

#endif
