/*
 * schedule_arrays.c - a schedule's memory, and that which its making takes: arrays and scratch that
 * grow and are used again. Whoever appends or asks for more ends the pointers that were given out
 * before. See schedule_impl.h.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t schedule_entry_bytes(enum schedule_array array)
{
	static const size_t bytes[] = {
		[SCHEDULE_WORK_TILES] = sizeof(struct device_work_tile),
		[SCHEDULE_FIRSTS] = DEVICE_FIRST_KV_TILES * sizeof(struct device_source),
		[SCHEDULE_KV_TILES] = sizeof(struct device_kv_tile),
		[SCHEDULE_SOURCES] = sizeof(struct device_source),
		[SCHEDULE_DESTS] = sizeof(uint32_t),
		[SCHEDULE_MERGES] = sizeof(struct device_merge),
	};

	return bytes[array];
}

static void *room(struct schedule_memory *memory, size_t n, size_t size)
{
	size_t bytes = n * size;
	void *at;

	if (memory->at && bytes <= memory->bytes)
		return memory->at;
	bytes += bytes / 2 + 4096;
	at = realloc(memory->at, bytes);
	if (!at)
		return NULL;
	memory->at = at;
	memory->bytes = bytes;
	return at;
}

void *make_scratch(struct make *m, enum scratch which, size_t n, size_t size)
{
	return room(&m->p->scratch[which], n, size);
}

void *make_append(struct make *m, enum schedule_array array, uint32_t n)
{
	size_t size = schedule_entry_bytes(array);
	char *at = room(&m->p->arrays[array], (size_t)m->p->n[array] + n, size);

	if (!at)
		return NULL;
	at += m->p->n[array] * size;
	m->p->n[array] += n;
	return at;
}

int make_kv_tiles(struct make *m, uint32_t n, struct kv_tile *ret)
{
	struct kv_tile made = {make_append(m, SCHEDULE_KV_TILES, n),
			       make_append(m, SCHEDULE_SOURCES, n)};

	if (!made.meta || !made.source)
		return -ENOMEM;
	memset(made.meta, 0, n * sizeof(*made.meta));
	memset(made.source, 0xff, n * sizeof(*made.source));
	*ret = made;
	return 0;
}

bool make_wants(const struct make *m, uint32_t begin, uint32_t end)
{
	for (uint32_t row = begin; row < end; row++) {
		if (!m->want->wanted || m->want->wanted[m->list->rows[row].query])
			return true;
	}
	return false;
}

void schedule_done(struct schedule *schedule)
{
	for (uint32_t i = 0; i < SCHEDULE_N_ARRAYS; i++)
		free(schedule->arrays[i].at);
	for (uint32_t i = 0; i < SCHEDULE_N_SCRATCH; i++)
		free(schedule->scratch[i].at);
	*schedule = (struct schedule){0};
}
