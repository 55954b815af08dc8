/*
 * costs.h - what things take on a GPU, for the planner (schedule.h) and for weighing waits
 * (backend.h): one table per architecture, which says where its figures come from. coppice-bench
 * fit fits one on a card and prints it as costs.c has it.
 *
 * Multiprocessors are taken to work side by side: a KB that one of them reads costs what it does
 * while all the others read.
 */
#ifndef COPPICE_CUDA_COSTS_H
#define COPPICE_CUDA_COSTS_H

#include "kernels/cuda/device/code.h"

#include <stdbool.h>

struct costs {
	const char *architecture;
	const char *fitted; /* how, and for which card */
	double launch_ns; /* of attention with next to nothing to do, between two events */
	double work_tile_ns; /* of a work tile, beyond its KV blocks and rows */
	double row_ns_per_kb; /* Q and O of a work tile's rows */
	double read_ns_per_kb; /* KV blocks, from the cache */
	/* more, of what lies apart: up to 4 KV blocks side by side come by one copy */
	double copy_ns;
	/* arithmetic of one row block on KV blocks in KV tiles: products, and weights of a KV
	 * block, as many whatever the head dim */
	double kv_tile_ns_per_kb, kv_tile_ns;
	double wide_tile_ns_per_kb, wide_tile_ns; /* the same in wide tiles */
	/* times as long, in wide tiles of four row blocks behind the first two: the two warp
	 * groups take them by turns, and none has a run of them */
	double turned_times;
	double part_ns_per_kb; /* partials, written and read */
	double merge_ns; /* of the launch that merges partials */
	double memory_ns_per_kb; /* what all read and write together, each KB once */
	/* more, of the first cache_kb that all read together, where a bench wrote other memory
	 * before */
	double flush_ns_per_kb;
	double cache_kb;
	double batch_ns; /* of next to nothing, from submit to completion */
	/* of a program's operation, beside the reading of its weights; of a million of a product's
	 * additions and multiplications, in the first rows, which reading hides in part, and in
	 * those behind them */
	double op_ns, hidden_product_ns_per_mflop, product_ns_per_mflop;
};

/* Of the code that a device computes with: a device newer than all that were measured runs the
 * portable one, and is planned for by that one's table. */
const struct costs *costs_find(enum code code);

/* Arithmetic of one row block on a KV block of so many KB, in wide tiles or in KV tiles. */
static inline double costs_fold_ns(const struct costs *costs, bool wide, double kv_block_kb)
{
	return wide ? costs->wide_tile_ns_per_kb * kv_block_kb + costs->wide_tile_ns
		    : costs->kv_tile_ns_per_kb * kv_block_kb + costs->kv_tile_ns;
}

#endif
