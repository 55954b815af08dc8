/*
 * fault.h - what went wrong, in one sentence, on its way from where it was noticed to main.
 */
#ifndef MODEL_FAULT_H
#define MODEL_FAULT_H

#include "proto/must_check.h"

struct fault {
	char text[640];
};

/* Writes the sentence and returns error (a -errno), so that a failing function ends with `return
 * fault_set(...)`. */
int fault_set(struct fault *fault, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
