/*
 * entry.h - what a client published, one entry at a time: copied once, checked, then done at once
 * (nop, extend, accept, trim, fork) or, for a step, checked by step.h and parked for a batch.
 */
#ifndef COPPICED_ENTRY_H
#define COPPICED_ENTRY_H

#include "daemon/sched/sched_impl.h"

/* Serves what the lane has, a bounded number of entries, until a step parks it. Returns whether
 * there was any. */
bool entry_serve_lane(struct sched *s, struct sched_lane *lane);

/* The pair of words of an entry that has one and is a step of this ticket; else ABI_LANE_WORDS. */
uint32_t entry_word(const struct abi_entry *e, uint64_t ticket);

#endif
