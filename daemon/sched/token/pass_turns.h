/* pass_turns.h - which of several passes goes on, and whose may cut in. */
#ifndef COPPICED_PASS_TURNS_H
#define COPPICED_PASS_TURNS_H

#include "passes.h"

/* Between two segments: who has had less than all who are in a pass, and wants tokens of a program
 * that has none under way. NULL: nobody has, or there are as many passes as there may be. */
struct sched_lane *pass_who_cuts_in(const struct passes *p);
/* Is there room for a pass of the model beside those under way, none of which is its? */
bool pass_may_cut_in(const struct passes *p, const struct sched_model *model);
/* Another one is about to begin. */
void pass_put_aside(struct passes *p);
/* The one that is there has ended, or has not begun: one that is aside is there instead, if there
 * is one, and not of necessity the last put aside. Which goes on says pass_choose. */
void pass_take_back(struct passes *p);
/* Of those under way the one of whom had least is there from now on; where somebody would cut in if
 * there were fewer, the one of which least is left: that it ends. */
void pass_choose(struct passes *p);

#endif
