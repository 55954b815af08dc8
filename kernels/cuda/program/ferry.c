/*
 * ferry.c - see ferry.h. What is put is copied to a pinned piece, whence the copy engine takes it
 * while the next one is filled: a piece is written again only once it has crossed. A put has the
 * ferry to itself and ends with both pieces empty. They are there from the first weights on, until
 * the backend is closed: who loads next need not have them pinned again.
 */
#include "ferry.h"

#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define PIECE_BYTES (UINT64_C(4) << 20)

void ferry_init(struct ferry *ferry, int device)
{
	*ferry = (struct ferry){.device = device};
	pthread_mutex_init(&ferry->lock, NULL);
}

static void pieces_free(struct ferry *f)
{
	for (uint32_t i = 0; i < FERRY_PIECES; i++) {
		if (f->crossed[i])
			cudaEventDestroy(f->crossed[i]);
		cudaFreeHost(f->pieces[i]);
		f->crossed[i] = NULL;
		f->pieces[i] = NULL;
	}
}

void ferry_done(struct ferry *ferry)
{
	pieces_free(ferry);
	if (ferry->stream)
		cudaStreamDestroy(ferry->stream);
	pthread_mutex_destroy(&ferry->lock);
	*ferry = (struct ferry){0};
}

static bool pieces_make(struct ferry *f)
{
	for (uint32_t i = 0; i < FERRY_PIECES; i++)
		if (cudaMallocHost((void **)&f->pieces[i], PIECE_BYTES) != cudaSuccess ||
		    cudaEventCreateWithFlags(&f->crossed[i], cudaEventDisableTiming) != cudaSuccess)
			return false;
	return true;
}

/* Under the lock. */
static int make(struct ferry *f)
{
	bool made = f->pieces[0] || pieces_make(f);

	if (made && !f->stream)
		made = cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking) == cudaSuccess;
	if (made)
		return 0;
	cudaGetLastError();
	pieces_free(f);
	return -ENOMEM;
}

/* Under the lock. */
static int clear(struct ferry *f, char *to, uint64_t bytes)
{
	int r = make(f);

	if (r == 0 && (cudaMemsetAsync(to, 0, bytes, f->stream) != cudaSuccess ||
		       cudaStreamSynchronize(f->stream) != cudaSuccess))
		r = -ENOMEM;
	return r;
}

int ferry_clear(struct ferry *ferry, char *to, uint64_t bytes)
{
	int r;

	cudaSetDevice(ferry->device);
	pthread_mutex_lock(&ferry->lock);
	r = clear(ferry, to, bytes);
	pthread_mutex_unlock(&ferry->lock);
	return r;
}

static cudaError_t send(struct ferry *f, uint32_t piece, char *to, const char *from, uint64_t bytes)
{
	cudaError_t r = cudaEventSynchronize(f->crossed[piece]);

	if (r != cudaSuccess)
		return r;
	memcpy(f->pieces[piece], from, bytes);
	r = cudaMemcpyAsync(to, f->pieces[piece], bytes, cudaMemcpyHostToDevice, f->stream);
	return r == cudaSuccess ? cudaEventRecord(f->crossed[piece], f->stream) : r;
}

/* Under the lock. */
static int put(struct ferry *f, char *to, const char *from, uint64_t bytes)
{
	cudaError_t r = cudaSuccess, end;
	uint32_t piece = 0;

	for (uint64_t at = 0; at < bytes && r == cudaSuccess; at += PIECE_BYTES) {
		r = send(f, piece, to + at, from + at, min_u64(bytes - at, PIECE_BYTES));
		piece = (piece + 1) % FERRY_PIECES;
	}
	end = cudaStreamSynchronize(f->stream);
	return r == cudaSuccess && end == cudaSuccess ? 0 : -EIO;
}

int ferry_put(struct ferry *ferry, char *to, const char *from, uint64_t bytes)
{
	int r;

	cudaSetDevice(ferry->device);
	pthread_mutex_lock(&ferry->lock);
	r = put(ferry, to, from, bytes);
	pthread_mutex_unlock(&ferry->lock);
	return r;
}
