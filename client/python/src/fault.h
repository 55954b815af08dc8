/*
 * fault.h - codes and sentences of libcoppice become exceptions.
 *
 * coppice._errors has the classes, by errno.
 */
#ifndef COPPICE_PYTHON_FAULT_H
#define COPPICE_PYTHON_FAULT_H

#include "base.h"

/* When the module is made. -1 and an exception. */
MUST_CHECK int fault_init(void);
/* Raises: code is -errno. Returns NULL, for whoever returns an object. */
void *fault_raise(int code, const char *sentence);
/* Raises with a sentence as by PyUnicode_FromFormat. Returns NULL. */
void *fault_format(int code, const char *format, ...);
/* Raises with what the library says of the connection's last failure in this thread. */
void *fault_of(const struct coppice *c, int code);
/* The same of a connection that did not come to be. */
void *fault_of_connect(int code);
/* Raises that what is closed; Returns NULL. */
void *fault_closed(const char *what);

#endif
