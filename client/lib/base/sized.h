/*
 * sized.h - public structs that begin with their size, so that they may grow.
 *
 * An app that was compiled with another header hands over a struct of another size. All that this
 * library reads of a struct it fills is in the first version of it, so a size of 0, or a larger one
 * whose tail is 0, changes nothing.
 */
#ifndef COPPICE_CLIENT_SIZED_H
#define COPPICE_CLIENT_SIZED_H

#include "proto/must_check.h"

#include <stddef.h>
#include <stdint.h>

/* For explanations: whose, and of which public function. */
struct sized_caller {
	uint64_t key;
	const char *what;
};

/* A struct of the app's that the library reads, of which this library knows so many bytes. 0,
 * -EINVAL (it was never that small), -E2BIG (it says what is not known here); explains. */
MUST_CHECK int sized_check(struct sized_caller caller, const void *given, size_t known_bytes);
/* Fills a struct of the app's, as far as it goes, from one of this library's, and the rest with 0;
 * its size stays. 0, -EINVAL (it says no size); explains. */
MUST_CHECK int sized_fill(struct sized_caller caller, void *to, const void *from,
			  size_t known_bytes);

#endif
