/*
 * rows.c - the tables of functions, and which of the instruction sets that were compiled this
 * processor runs: the widest.
 *
 * fma_ns is a round figure of one core of a two-core Zen 5 machine at 64 rows: it weighs a wait, it
 * promises nothing.
 */
#include "rows.h"
#include "isa.h"

#include <string.h>

#define TABLE(name, ns) \
	{ \
		.isa = #name, .fma_ns = ns, .matmul = rows_matmul_##name, \
		.rmsnorm = rows_rmsnorm_##name, .gate = rows_gate_##name, .add = rows_add_##name, \
		.scale = rows_scale_##name, .narrow = rows_narrow_##name, \
		.widen = rows_widen_##name, .log_sum = rows_log_sum_##name, \
		.likeliest = rows_likeliest_##name, \
	}

static const struct rows_ops tables[] = {
#if defined(__x86_64__)
	TABLE(avx512, 0.02),
	TABLE(avx2, 0.03),
#endif
	TABLE(generic, 0.14),
};

static bool cpu_runs(const char *isa)
{
#if defined(__x86_64__)
	if (!strcmp(isa, "avx512"))
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
		       cpu_runs("avx2");
	if (!strcmp(isa, "avx2"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		       __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
#endif
	return true;
}

const struct rows_ops *rows_ops_select(const char *isa)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		if ((!isa || !strcmp(isa, tables[i].isa)) && cpu_runs(tables[i].isa))
			return &tables[i];
	return NULL;
}
