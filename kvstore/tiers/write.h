/*
 * write.h - the way into the file: paths to nodes that have left the device, from the root on.
 */
#ifndef COPPICE_KVSTORE_WRITE_H
#define COPPICE_KVSTORE_WRITE_H

#include "state.h"

/* Begins writes while there is room for moves. */
void write_begin_moves(struct store *s);

#endif
