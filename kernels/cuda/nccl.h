/* nccl.h - NCCL, looked up at run time: devices of one process gather what all have. */
#ifndef COPPICE_CUDA_NCCL_H
#define COPPICE_CUDA_NCCL_H

#include <stddef.h>
#include <stdint.h>

struct nccl;
struct CUstream_st;

/* A communicator for each device. Blocks. -ENOENT: there is no libnccl; -EIO: it refuses; and a sentence. */
int nccl_new(const int *devices, uint32_t n, struct nccl **ret, char *error, size_t bytes);
void nccl_free(struct nccl *n); /* NULL is fine */

/* to gets bytes of each device's from, one behind the other; on a stream of this rank's device. All ranks make the same
 * calls in the same order, each from its own thread. 0 or -EIO. */
int nccl_gather(struct nccl *n, uint32_t rank, const void *from, void *to, uint64_t bytes,
		struct CUstream_st *stream);

#endif
