/* rows.h - the rows of the pass that is about to begin, or to go on. */
#ifndef COPPICED_ROWS_H
#define COPPICED_ROWS_H

#include "passes.h"

/* p->rows is what p->job has, as planned. 0 or -ENOMEM. */
MUST_CHECK int rows_collect(struct passes *p);

#endif
