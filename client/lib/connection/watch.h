/*
 * watch.h - the library's one thread: where streams wait for the daemon, it waits for the daemon's
 * end.
 */
#ifndef COPPICE_CLIENT_WATCH_H
#define COPPICE_CLIENT_WATCH_H

#include "connection.h"

/* Begins the connection's thread; once is enough. what: the public function, for the sentence. Any
 * thread. 0, -EMFILE, -EAGAIN...; explains. Does not block. */
MUST_CHECK int watch_begin(struct coppice *c, const char *what);
/* Ends it. Of one that was not begun, and in a forked child: nothing. Blocks for the thread's way
 * out. */
void watch_end(struct coppice *c);

#endif
