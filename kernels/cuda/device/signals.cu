/*
 * signals.cu - what host and device tell each other; see signals.h.
 *
 * listen   one warp: waits for the host's call, and hands it on to whoever waits on the device
 *          (hear in signals.cuh). While it waits it is in nobody's way.
 * finish   two warps: a thread of one tells the host that the batch is done, the other streams that
 *          wait on the device. Neither waits for the other's fence.
 */
#include "signals.h"
#include "launch.cuh"
#include "ptx.cuh"
#include "signals.cuh"

__global__ void __launch_bounds__(32) listen_kernel(const __grid_constant__ struct device_stand a)
{
#if __CUDA_ARCH__ >= 800
	packet call;

	launch_wait();
	call = hear(a.call, a.id, a.patience_ns);
	if (threadIdx.x < DEVICE_CALL_WORDS)
		packet_put(&a.heard->packets[threadIdx.x], call);
	__threadfence();
	launch_next();
	if (threadIdx.x == 0)
		*(volatile uint64_t *)a.answer = call.high;
#endif
}

#if __CUDA_ARCH__ >= 800
/* A lane's word, known before the batch is done; address 0: it has none. */
__device__ inline packet take_tell(const struct device_finish &a)
{
	uint32_t lane = threadIdx.x % DEVICE_TELLS;
	packet head;

	if (a.heard && packet_take(&a.heard->packets[0]).high != DEVICE_CALL_GO(a.id))
		return {0, 0};
	head = packet_take(a.tells);
	if (head.low != a.id || lane >= head.high)
		return {0, 0};
	return packet_get(&a.tells->words[lane]);
}

/* What the launches before wrote to host memory is there before the id is. */
__device__ inline void finish_clock(const struct device_finish &a)
{
	uint64_t end_ns = device_now_ns();

	if (a.exchanged)
		packet_put(&a.clock->exchanged,
			   {__ldcg(&a.exchanged->ns), __ldcg(&a.exchanged->given_bytes)});
	__threadfence_system();
	packet_put(&a.clock->end_ns, {end_ns, a.id});
}
#endif

__global__ void __launch_bounds__(2 * DEVICE_TELLS)
	finish_kernel(const __grid_constant__ struct device_finish a)
{
#if __CUDA_ARCH__ >= 800
	packet tell = {0, 0};

	if (threadIdx.x >= DEVICE_TELLS)
		tell = take_tell(a);
	__syncthreads(); /* from the id on the words may be another batch's */
	launch_wait();
	if (threadIdx.x == 0)
		finish_clock(a);
	if (tell.low) {
		__threadfence(); /* who looks is on this device, too, and so is what it will read */
		*(volatile uint64_t *)tell.low = tell.high;
	}
#endif
}

/* ---- host ----------------------------------------------------------------------------------- */

/* Finish is behind an exchange, which may be waiting for a process that never answers. */
extern "C" int device_signals_init(void)
{
	return load_kernels(finish_kernel);
}

extern "C" int device_listen(const struct device_stand *stand, struct launch_to to)
{
	return launch_early(listen_kernel, stand, {1, 32, 0}, to);
}

extern "C" int device_finish(const struct device_finish *finish, struct launch_to to)
{
	return launch_early(finish_kernel, finish, {1, 2 * DEVICE_TELLS, 0}, to);
}
