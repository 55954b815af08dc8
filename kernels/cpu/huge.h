/* huge.h - much memory at once, in huge pages where the machine has them. */
#ifndef COPPICE_CPU_HUGE_H
#define COPPICE_CPU_HUGE_H

#include "proto/must_check.h"

#include <stdint.h>

#define HUGE_BYTES (UINT64_C(2) << 20)

/* Address space aligned to 2 MiB, that no core file has; NULL: there is none. */
void *huge_map(uint64_t bytes);
/* All of it, with its memory. Blocks. */
void huge_unmap(void *map, uint64_t bytes);
/* Memory for a part of it. 0, or -ENOMEM and there is none. Blocks. */
MUST_CHECK int huge_populate(void *at, uint64_t bytes);

#endif
