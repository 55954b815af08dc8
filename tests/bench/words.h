/*
 * words.h - options whose value is one of a few words. What is none of them is refused while the
 * command line is read: nothing has run by then.
 *
 * Words stand in one string, with blanks, commas or both between them.
 */
#ifndef COPPICE_BENCH_WORDS_H
#define COPPICE_BENCH_WORDS_H

#include "proto/cli/args.h"
#include "proto/must_check.h"

/* What three of the subcommands' daemons compute by. */
#define WORDS_BACKENDS "auto cpu cuda"

/* The value at hand: itself, or its place among the words. 0, or -EINVAL and a sentence in
 * args->why, which asks what was meant or says what there is. */
MUST_CHECK int words_take(struct args *args, const char *words, const char **ret);
MUST_CHECK int words_take_place(struct args *args, const char *words, uint32_t *ret);

#endif
