/*
 * flags.h - a command line is looked at before argp reads it: options are spelled in full.
 *
 * argp takes --po for --pool where no other option begins so. A typo then does something, and a
 * script breaks when an option comes along that begins the same way.
 */
#ifndef COPPICE_CLI_FLAGS_H
#define COPPICE_CLI_FLAGS_H

#include <argp.h>
#include <stddef.h>

#define FLAGS_WHY_BYTES 160

/* The first long option that is none of the table's, nor one of argp's own (help, usage, version):
 * -EINVAL and a sentence such as "--po is no option: did you mean --pool?". 0: there is none. */
int flags_check(const struct argp_option *options, int argc, char **argv, char *why, size_t bytes)
	__attribute__((warn_unused_result));

#endif
