/*
 * shm_verbs.h - the verbs about arenas and lanes; each answers at once or posts a request, as
 * control.h says.
 */
#ifndef COPPICED_LEND_H
#define COPPICED_LEND_H

#include <stdint.h>

struct session;

/* message: the verb's protobuf-c struct. */
void lend_arena_new(struct session *s, uint64_t id, const void *message);
void lend_arena_free(struct session *s, uint64_t id, const void *message);
void lend_lane_new(struct session *s, uint64_t id, const void *message);
void lend_lane_free(struct session *s, uint64_t id, const void *message);

#endif
