/*
 * check.h - what one value alone does not tell.
 */
#ifndef COPPICED_CHECK_H
#define COPPICED_CHECK_H

#include "value.h"

/* Checks that the keys go together, and fills what follows from them: numbers of devices and ranks,
 * sizes in whole extents. -EINVAL after saying what does not fit. */
MUST_CHECK int check_whole(struct value_target *target);

#endif
