/* memory_left.h - how much memory the machine could still give. */
#ifndef COPPICED_MEMORY_LEFT_H
#define COPPICED_MEMORY_LEFT_H

#include <stdbool.h>
#include <stdint.h>

/* In bytes, without swapping, caches included; 0: the kernel does not say. */
uint64_t memory_left(void);
/* A mapping of so many bytes could be had all the same, and would kill the daemon when it is
 * used. */
bool memory_is_short_of(uint64_t bytes);

#endif
