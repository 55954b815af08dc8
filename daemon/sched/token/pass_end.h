/* pass_end.h - how the pass that is p->now ends. One that was aside is there again then. */
#ifndef COPPICED_PASS_END_H
#define COPPICED_PASS_END_H

#include "passes.h"

/* All of it has run: its tokens are published. */
void pass_finish(struct passes *p);
/* As if it had never begun: who still has his path waits for the next one. */
void pass_give_back(struct passes *p);
/* Its entries fail. */
void pass_fail(struct passes *p, struct outcome outcome);

/* Entries that wait for a pass and were cancelled end. */
void pass_end_cancelled(struct passes *p);

#endif
