/*
 * app_stream.h - a CUDA stream as a client has one: the driver looked up at run time, the device's
 * primary context, and copies that stand for the client's own kernels, and are kernels where the
 * device is sm_90. Every call ends the program with a sentence where it fails.
 */
#ifndef COPPICE_BENCH_APP_STREAM_H
#define COPPICE_BENCH_APP_STREAM_H

#include <stddef.h>

struct app_stream; /* of the first device */

struct app_stream *app_stream_new(void);
void *app_stream_handle(struct app_stream *s); /* the CUstream */
void *app_stream_alloc(struct app_stream *s,
		       size_t bytes); /* device memory, for as long as the process lives */
/* From host memory; waits. */
void app_stream_upload(struct app_stream *s, void *to, const void *from, size_t bytes);
/* To host memory; waits. */
void app_stream_download(struct app_stream *s, void *to, const void *from, size_t bytes);
/* Within device memory; does not wait. */
void app_stream_copy(struct app_stream *s, void *to, const void *from, size_t bytes);
void app_stream_wait(struct app_stream *s);

#endif
