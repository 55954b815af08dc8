/*
 * packet.cuh - 16 bytes that are written and read as one, so that whoever sees a part of a packet
 * sees all of it: 128 bits in one register are the widest access that PTX promises not to tear. A
 * vector of two words is two accesses to its memory model, volatile or not.
 *
 * put and get order nothing but themselves; take also orders what is read after it behind what the
 * writer wrote before its release (the host's store of a tag, or a fence before put).
 */
#ifndef COPPICE_CUDA_PACKET_CUH
#define COPPICE_CUDA_PACKET_CUH

#include <stdint.h>

struct packet {
	uint64_t low, high;
};

#if __CUDA_ARCH__ >= 800
__device__ inline uint64_t join_words(uint32_t low, uint32_t high)
{
	return low | (uint64_t)high << 32;
}

__device__ inline void packet_put(void *to, packet p)
{
	asm volatile(
		"{ .reg .b128 q; mov.b128 q, {%1, %2}; st.relaxed.sys.global.b128 [%0], q; }" ::"l"(
			to),
		"l"(p.low), "l"(p.high)
		: "memory");
}

__device__ inline packet packet_get(const void *from)
{
	packet p;

	asm volatile("{ .reg .b128 q; ld.relaxed.sys.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
		     : "=l"(p.low), "=l"(p.high)
		     : "l"(from)
		     : "memory");
	return p;
}

__device__ inline packet packet_take(const void *from)
{
	packet p;

	asm volatile("{ .reg .b128 q; ld.acquire.sys.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
		     : "=l"(p.low), "=l"(p.high)
		     : "l"(from)
		     : "memory");
	return p;
}
#endif

#endif
