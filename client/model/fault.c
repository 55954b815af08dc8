/*
 * fault.c - the sentence is cut off where it is longer than a fault: what matters stands at its
 * beginning.
 */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

int fault_set(struct fault *fault, int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(fault->text, sizeof(fault->text), format, args);
	va_end(args);
	return error;
}
