/* costs_file.c - one object of the file has them, by the names that fit_model.h gives them. See
 * costs_file.h. */
#include "costs_file.h"

#ifdef BENCH_HAVE_KERNELS
#include "fit_model.h"
#include "json_file.h"

#include <stdio.h>

#define COSTS "costs"

bool costs_file_read(const char *file, struct costs *inout)
{
	json_t *root = json_file_read(file);
	json_t *costs = json_object_get(root, COSTS);
	bool right = json_is_object(costs);

	for (uint32_t i = 0; i < FIT_CONSTANTS && right; i++) {
		double value = json_number_value(json_object_get(costs, fit_constant_name(i)));

		if (value > 0)
			*fit_constant(inout, i) = value;
	}
	inout->fitted = file;
	if (root && !right)
		fprintf(stderr, "coppice-bench: %s: no constants; fit --save writes them\n", file);
	json_decref(root);
	return right;
}

int costs_file_put(json_t *root, struct costs *costs)
{
	json_t *object = json_object();
	int r = json_object_set_new(root, COSTS, object);

	for (uint32_t i = 0; i < FIT_CONSTANTS && !r; i++)
		r = json_object_set_new(object, fit_constant_name(i),
					json_real(*fit_constant(costs, i)));
	return r;
}
#endif
