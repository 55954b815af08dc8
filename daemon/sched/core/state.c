/* state.c - sequence handles. */
#include "state.h"

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

struct sched_seq *handle_seq(const struct handle_table *table, uint64_t handle)
{
	uint32_t index = (uint32_t)handle;

	if (index >= table->n_slots)
		return NULL;
	struct sched_seq *seq = table->slots[index].seq;

	return seq && seq->handle == handle ? seq : NULL;
}

struct sched_seq *handle_find(const struct handle_table *table, const struct sched_session *session,
			      uint64_t handle)
{
	struct sched_seq *seq = handle_seq(table, handle);

	return seq && seq->session == session ? seq : NULL;
}

void handle_table_done(struct handle_table *table)
{
	free(table->slots);
	*table = (struct handle_table){0};
}
