/* exchange.c - which way, and how many bytes. */
#include "exchange.h"

/* Two processes on a two-core machine, over a socket: 15 us for 16 KB, 7.6 ms for 16 MB, in round figures. Ranks are taken to have
 * cores of their own; where they share them, a tree is sooner the faster one. */
#define ROUND_NS 6000.0 /* until the other side is awake */
#define MESSAGE_NS 3000.0
#define BYTE_NS 0.4 /* sending, receiving and merging */

static uint32_t log2_up(uint32_t n)
{
	return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
}

enum exchange_way exchange_choose(uint32_t n_ranks, uint64_t bytes, bool all)
{
	double others = n_ranks - 1, byte_ns = BYTE_NS * (double)bytes;
	double direct = ROUND_NS + others * (MESSAGE_NS + byte_ns);
	double tree = 2 * log2_up(n_ranks) * (ROUND_NS + MESSAGE_NS + byte_ns);
	double ring = 2 * others * (ROUND_NS + MESSAGE_NS + byte_ns / n_ranks);

	if (!all || n_ranks == 1 || (direct <= tree && direct <= ring))
		return EXCHANGE_DIRECT;
	return tree <= ring ? EXCHANGE_TREE : EXCHANGE_RING;
}

const char *exchange_way_name(enum exchange_way way)
{
	static const char *const names[] = {"direct", "tree", "ring"};

	return names[way];
}

uint64_t exchange_bytes(enum exchange_way way, bool all, uint32_t n_ranks, uint64_t bytes)
{
	uint64_t others = n_ranks - 1;

	if (!all)
		return others * bytes;
	return way == EXCHANGE_DIRECT ? n_ranks * others * bytes : 2 * others * bytes;
}
