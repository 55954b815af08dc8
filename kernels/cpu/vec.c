/* vec.c - which table of vector kernels runs here. */
#include "vec.h"

#include <string.h>

static bool vec_usable(const struct vec *vec)
{
#ifdef __x86_64__
	if (vec == &vec_avx512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("fma");
	if (vec == &vec_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		       __builtin_cpu_supports("f16c");
#endif
	return vec == &vec_generic;
}

const struct vec *vec_select(const char *forced)
{
	static const struct vec *const tables[] = {
#ifdef __x86_64__
		&vec_avx512, &vec_avx2,
#endif
		&vec_generic};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (forced && strcmp(forced, tables[i]->name) != 0)
			continue;
		if (vec_usable(tables[i]))
			return tables[i];
	}
	return NULL;
}
