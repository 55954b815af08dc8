/*
 * program_errors.c - why rows may be off as far as the bounds say, and how far they were, in parts
 * of the bound.
 */
#include "program_errors.h"
#include "program_results.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MANY_ROWS 32u /* whose errors even out */

/* Inputs of products are rounded, to 2^-9 (bf16) or 2^-12 of a value at most: four times in each of
 * three layers, and for the head. A random matrix carries an error on as it does values, so that
 * what rows are off adds up to 13 of these at worst; and q, k, v and what attention gives come out
 * a unit in the last place apart by it, twice as much, in each layer: another 12. That is 25 x 2^-9
 * of a row, less than 2^-4; norms of heads and rotations keep lengths. Errors have either sign, so
 * that all rows together are off by half of it at most.
 *
 * A norm behind a product makes a row that came out short as long as the others, and what it is off
 * with it. Rows of 64 elements and more are never a third as long as usual; of 16 some are. */
static const double bounds[] = {[WORK_FP16] = 0x1p-7, [WORK_BF16] = 0x1p-4};

void program_errors_add(struct program_errors *errors, const struct model_want *want,
			const struct program_compared *rows)
{
	double bound = bounds[want->dtype];
	double part = rows_error(rows->rows, rows->truth, rows->n, rows->width) / bound;
	double all = rows_error_of_all(rows->rows, rows->truth, rows->n, rows->width) / bound;

	if (!(part <= 1) || (rows->n >= MANY_ROWS && !(all <= 0.5)))
		fail_msg("%s: type %d, dim %u, norms %u %s, activation %u, %u layers: %g and %g of "
			 "the bound",
			 rows->what, (int)want->dtype, want->head_dim, want->norms,
			 want->side	? "side by side"
			 : want->behind ? "behind"
					: "before",
			 want->act, want->n_layers, part, all);
	errors->largest[want->dtype] = fmax(errors->largest[want->dtype], part);
	errors->sum[want->dtype] += part;
	errors->n[want->dtype]++;
}

void program_errors_print(const struct program_errors *errors)
{
	for (uint32_t type = WORK_FP16; type <= WORK_BF16; type++)
		if (errors->n[type])
			print_message("%s: %.2f of the bound at most, %.2f in the mean of %u\n",
				      type == WORK_BF16 ? "bf16" : "fp16", errors->largest[type],
				      errors->sum[type] / errors->n[type], errors->n[type]);
}
