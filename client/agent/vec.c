/*
 * vec.c - which of the instruction sets that were compiled this processor runs: the widest.
 */
#include "vec.h"
#include "vec_kernel.h"

#include <string.h>

static bool cpu_runs(const struct vec_ops *ops)
{
#if defined(__x86_64__)
	if (ops == &vec_ops_avx512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
		       cpu_runs(&vec_ops_avx2);
	if (ops == &vec_ops_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		       __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
#endif
	return ops == &vec_ops_baseline;
}

const struct vec_ops *vec_ops_select(const char *isa)
{
	static const struct vec_ops *const all[] = {
#if defined(__x86_64__)
		&vec_ops_avx512,
		&vec_ops_avx2,
#endif
		&vec_ops_baseline,
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if ((!isa || !strcmp(isa, all[i]->isa)) && cpu_runs(all[i]))
			return all[i];
	return NULL;
}
