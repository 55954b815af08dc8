/*
 * lend.h - weights become what their user's processes map.
 *
 *      HOME -> MOVING, by a thread -> LENT
 *        ^        |
 *        +--------+ it failed: who asks is told once
 */
#ifndef COPPICED_WEIGHTS_LEND_H
#define COPPICED_WEIGHTS_LEND_H

#include "weights.h"

/* Of weights that are READY and stand for themselves, with a reference of the caller's. 0;
 * -EAGAIN: a thread makes them so, ask again; -EOPNOTSUPP: the backend cannot; -ENOMEM, -EIO. Does
 * not block. *ret is valid for as long as the reference. */
MUST_CHECK int weights_lend(struct weights *weights, struct backend_lent *ret);

#endif
