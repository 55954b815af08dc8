/*
 * device_stem.h - the client processes of device_test.c: the test's own program with a role for its
 * third argument.
 *
 * A role says on stderr what was wrong and exits with 1. "go" on its stdout means that it is where
 * the test wants it; it goes on when its stdin has something to read or ends.
 */
#ifndef COPPICE_DEVICE_STEM_H
#define COPPICE_DEVICE_STEM_H

#define STEM_SKIPPED 77

/* role, then its arguments. Exit status. */
int stem_main(const char *socket, int argc, char **argv);

#endif
