/* costs.c - see costs.h. */
#include "costs.h"

/* clang-format off */
static const struct costs tables[] = {
	{
		.architecture = "sm_80",
		.fitted = "by calculation: A100, 108 multiprocessors, 1.94 TB/s",
		.launch_ns = 8000,
		.unit_ns = 900,
		.row_ns_per_kb = 57,
		.read_ns_per_kb = 42,
		.copy_ns = 250,
		.slot_ns_per_kb = 8,
		.stage_ns_per_kb = 8,
		.part_ns_per_kb = 60,
		.merge_ns = 5000,
		.memory_ns_per_kb = 0.528,
		.flush_ns_per_kb = 0.4,
		.cache_kb = 40 << 10,
		.batch_ns = 30000,
	},
	{
		.architecture = "sm_90",
		.fitted = "NVIDIA H200, 2026-11-21",
		.launch_ns = 9226,
		.unit_ns = 2083,
		.row_ns_per_kb = 6.291,
		.read_ns_per_kb = 10.91,
		.copy_ns = 85.64,
		.slot_ns_per_kb = 8.949,
		.stage_ns_per_kb = 3.658,
		.part_ns_per_kb = 47.41,
		.merge_ns = 2907,
		.memory_ns_per_kb = 0.1983,
		.flush_ns_per_kb = 0.1836,
		.cache_kb = 1.508e+05,
		.batch_ns = 2.232e+04,
	},
};
/* clang-format on */

const struct costs *costs_find(int major, int minor)
{
	(void)minor;
	return &tables[major >= 9];
}
