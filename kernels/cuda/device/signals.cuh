/* signals.cuh - the device's ear, and its clock. */
#ifndef COPPICE_CUDA_SIGNALS_CUH
#define COPPICE_CUDA_SIGNALS_CUH

#include "packet.cuh"
#include "signals.h"

#if __CUDA_ARCH__ >= 800
/* The same for all devices of a host. */
__device__ inline uint64_t device_now_ns()
{
	uint64_t now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	return now;
}

/*
 * A warp, until the call is there whole or there is none; a lane has its packet. patience_ns 0: for
 * ever.
 *
 * The host wrote tables, Q, K and V before the packets' tags (release, stand.c): each lane's
 * acquire orders what it reads from here on behind them, and the barrier that lets a block's other
 * warps go on hands that on. Without it a line that this multiprocessor had cached before the call
 * could be read in their place.
 */
__device__ inline packet hear(const struct device_call *call, uint64_t id, uint64_t patience_ns)
{
	uint64_t begin_ns = device_now_ns();
	uint32_t lane = threadIdx.x % DEVICE_CALL_WORDS;

	for (;;) {
		packet p = packet_take(&call->packets[lane]);

		if (__all_sync(~0u, p.high == DEVICE_CALL_GO(id)))
			return p;
		if (__any_sync(~0u,
			       p.high == DEVICE_CALL_LEAVE(id) ||
				       (patience_ns && device_now_ns() - begin_ns > patience_ns)))
			return {0, DEVICE_CALL_LEAVE(id)};
	}
}
#endif

#endif
