/*
 * read.h - fills a config: built-in defaults, then the file, then flags, each over the last.
 */
#ifndef COPPICED_READ_H
#define COPPICED_READ_H

#include "config.h"
#include "proto/must_check.h"

/* Reads flags and the file they name (or the default one). 0; -EINVAL after saying on stderr what
 * was wrong, all of it; 1: the flags asked for help or version and that was printed. */
MUST_CHECK int config_read(struct config *config, int argc, char **argv);

#endif
