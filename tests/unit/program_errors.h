/* program_errors.h - how far rows of a GPU's tokens are off the truth, and how far they may be. */
#ifndef COPPICE_TESTS_PROGRAM_ERRORS_H
#define COPPICE_TESTS_PROGRAM_ERRORS_H

#include "program_model.h"

struct program_errors {
	double largest[3], sum[3]; /* of each type, as parts of the bound */
	uint32_t n[3];
};

/* n rows of so many elements. */
struct program_compared {
	const char *what;
	const float *rows;
	const double *truth;
	uint32_t n, width;
};

/* Fails the test where they are off by more than the bound. */
void program_errors_add(struct program_errors *errors, const struct model_want *want,
			const struct program_compared *rows);
void program_errors_print(const struct program_errors *errors);

#endif
