/*
 * channel_why.h - why a control socket could not be reached or made, as a sentence: the same one in
 * every program.
 *
 * A path that leads nowhere, to a file, to a directory, and to a socket on which nobody listens are
 * four faults with four remedies; the kernel has two error numbers for them, so the path is looked
 * at. Sentences have no full stop: callers go on or put one.
 */
#ifndef COPPICE_CHANNEL_WHY_H
#define COPPICE_CHANNEL_WHY_H

#include <stddef.h>

#define CHANNEL_WHY_BYTES 256

/* error: what channel_connect(path) returned, -errno. */
void channel_why_connect(const char *path, int error, char *text, size_t bytes);
/* error: what channel_listen(path) returned. */
void channel_why_listen(const char *path, int error, char *text, size_t bytes);

#endif
