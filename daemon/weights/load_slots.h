/*
 * load_slots.h - who may load at a time, and which load gives way. All under the table's lock.
 */
#ifndef COPPICED_WEIGHTS_LOAD_SLOTS_H
#define COPPICED_WEIGHTS_LOAD_SLOTS_H

#include "held.h"

/* A loader that was killed and is still there keeps its slot. */
struct hanging {
	SLIST_ENTRY(hanging) link;
	pid_t pid;
	uid_t domain;
};

/* May the domain load now? Where it may not for want of a slot, and loads nothing, the slowest
 * load may have to end for it, and nobody who loads already takes what comes free next. */
MUST_CHECK bool load_slots_ask(struct weights_table *table, uid_t domain);
/* Loads under way, of all who have slots, and loaders that were killed and are still there. Takes
 * the table's lock. */
uint32_t load_slots_count(struct weights_table *table);
/* The load ends at its next packet, or while it waits. */
void load_slots_cancel(struct weights *weights);

#endif
