/*
 * promote.h - the way up: slices that are wanted come from the file to host memory, and from there
 * to the device, those nearest to the root first.
 */
#ifndef COPPICE_KVSTORE_PROMOTE_H
#define COPPICE_KVSTORE_PROMOTE_H

#include "state.h"

/* Begins reads and copies while there is room for moves. */
void promote_begin_moves(struct store *s);

#endif
