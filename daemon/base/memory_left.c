/* memory_left.c - as /proc/meminfo has it. */
#include "memory_left.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t memory_left(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib << 10;
}

bool memory_is_short_of(uint64_t bytes)
{
	uint64_t left = memory_left();

	return left > 0 && bytes >= left;
}
