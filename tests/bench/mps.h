/*
 * mps.h - an MPS control daemon of the bench's own, in a folder of its own: whoever is started
 * while it runs shares the GPU at once instead of by turns. It changes no setting of the card.
 */
#ifndef COPPICE_BENCH_MPS_H
#define COPPICE_BENCH_MPS_H

/* Starts it and sets the environment for this process's children. Ends the program with a sentence
 * where that fails. */
void mps_start(void);
/* Ends it and its folder; its clients must have gone. */
void mps_stop(void);

#endif
