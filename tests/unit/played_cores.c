/*
 * played_cores.c - what the process may run on, as the kernel would say it.
 */
#include "played_cores.h"

#include <sched.h>
#include <string.h>

uint32_t played_cores;

int __real_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *ret);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *ret);

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *ret)
{
	if (played_cores == 0)
		return __real_sched_getaffinity(pid, bytes, ret);
	memset(ret, 0, bytes);
	for (uint32_t i = 0; i < played_cores; i++)
		CPU_SET_S(i, bytes, ret);
	return 0;
}
