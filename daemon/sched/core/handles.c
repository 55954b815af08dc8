/*
 * handles.c - which sequence a handle means.
 *
 * Slots are used again, each time with another generation: a handle that a client keeps after its
 * sequence was closed finds nothing, whoever has the slot by then. Free slots are a list.
 */
#include "handles.h"

#include <errno.h>
#include <stdlib.h>

#define NO_SLOT UINT32_MAX

static int table_grow(struct handle_table *table)
{
	uint32_t n = table->n_slots ? table->n_slots * 2 : 64;
	struct handle_slot *slots = realloc(table->slots, n * sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (uint32_t i = table->n_slots; i < n; i++)
		slots[i] = (struct handle_slot){.generation = 1,
						.next_free = i + 1 < n ? i + 1 : NO_SLOT};
	table->free = table->n_slots;
	table->slots = slots;
	table->n_slots = n;
	return 0;
}

void handle_table_init(struct handle_table *table)
{
	*table = (struct handle_table){.free = NO_SLOT};
}

int handle_add(struct handle_table *table, struct sched_seq *seq)
{
	bool full = !table->n_slots || table->free == NO_SLOT;
	int r = full ? table_grow(table) : 0;

	if (r < 0)
		return r;
	uint32_t index = table->free;
	struct handle_slot *slot = &table->slots[index];

	table->free = slot->next_free;
	slot->seq = seq;
	seq->handle = (uint64_t)slot->generation << 32 | index;
	return 0;
}

void handle_remove(struct handle_table *table, uint64_t handle)
{
	uint32_t index = (uint32_t)handle;
	struct handle_slot *slot = &table->slots[index];

	slot->seq = NULL;
	slot->generation++;
	slot->next_free = table->free;
	table->free = index;
}

void handle_table_done(struct handle_table *table)
{
	free(table->slots);
	handle_table_init(table);
}
