/*
 * say.h - how backends say what was wrong: a sentence into the caller's buffer, which may be
 * missing.
 */
#ifndef COPPICE_SAY_H
#define COPPICE_SAY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

__attribute__((format(printf, 3, 4))) static inline void say(char *error, size_t error_bytes,
							     const char *format, ...)
{
	va_list args;

	if (!error || error_bytes == 0)
		return;
	va_start(args, format);
	vsnprintf(error, error_bytes, format, args);
	va_end(args);
}

#endif
