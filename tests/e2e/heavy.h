/*
 * heavy.h - a program of one layer that names the same large matrix as often as a layer may: all
 * that a pass of it takes is in that layer, and the weights are small.
 */
#ifndef HEAVY_H
#define HEAVY_H

#include "client/coppice_program.h"

/* Connects, and has such a program as its model. Asserts that all goes well. */
struct coppice *heavy_open(const char *socket, uint32_t *ret_model);

#endif
