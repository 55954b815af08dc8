/*
 * handles.h - sequence handles: one table for all sessions.
 *
 * A handle is (generation << 32 | index), so that a stale or foreign one is told from a live one.
 */
#ifndef COPPICED_HANDLES_H
#define COPPICED_HANDLES_H

#include "state.h"

struct handle_table {
	struct handle_slot {
		struct sched_seq *seq; /* NULL: free */
		uint32_t generation;
		uint32_t next_free;
	} * slots; /* owned */
	uint32_t n_slots, free;
};

void handle_table_init(struct handle_table *table);
/* Fills seq->handle; 0 or -ENOMEM. */
MUST_CHECK int handle_add(struct handle_table *table, struct sched_seq *seq);
void handle_remove(struct handle_table *table, uint64_t handle);
void handle_table_done(struct handle_table *table);

/* The live sequence with this handle, or NULL. */
static inline struct sched_seq *handle_seq(const struct handle_table *table, uint64_t handle)
{
	uint32_t index = (uint32_t)handle;
	struct sched_seq *seq = index < table->n_slots ? table->slots[index].seq : NULL;

	return seq && seq->handle == handle ? seq : NULL;
}

/* The same, of this session. */
static inline struct sched_seq *handle_find(const struct handle_table *table,
					    const struct sched_session *session, uint64_t handle)
{
	struct sched_seq *seq = handle_seq(table, handle);

	return seq && seq->session == session ? seq : NULL;
}

#endif
