/*
 * hung_file.h - a file of which nobody who reads it has an answer: of a file system of the test's
 * own.
 */
#ifndef HUNG_FILE_H
#define HUNG_FILE_H

#include <stdbool.h>
#include <sys/types.h>

struct hung_file {
	pid_t server;
	int fd; /* open for reading */
};

/* Whoever reads it hangs from then on, and a signal does not help. False: this machine has no FUSE
 * for us. */
bool hung_file_open(struct hung_file *ret);
/* All who hang go on, with an error. */
void hung_file_end(struct hung_file *file);

#endif
