/* segments.h - a segment of the pass that is p->now. */
#ifndef COPPICED_SEGMENTS_H
#define COPPICED_SEGMENTS_H

#include "passes.h"

/* The backend has the next segment, and those who are in the pass have had its time. False: the
 * pass has failed, and has ended. */
bool segment_begin(struct passes *p);

#endif
