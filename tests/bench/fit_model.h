/*
 * fit_model.h - constants of the planner's model (costs.h) from measured times: what is to be
 * measured, and least squares.
 *
 * An *experiment* is a workload under a choice of the planner's that is told, not its own; in each
 * of a few families one thing alone grows, so that the times tell the constants apart. The model is
 * bent (maxima, waves), so that its slopes are taken anew in every round (Gauss-Newton, damped);
 * residuals are relative, as times go from microseconds to hundreds of them.
 */
#ifndef COPPICE_BENCH_FIT_MODEL_H
#define COPPICE_BENCH_FIT_MODEL_H

#include "kernels/cuda/schedule/costs.h"
#include "kernels/cuda/schedule/schedule.h"
#include "workload.h"

#include <stdbool.h>

/* What the times are of. */
struct fit_card {
	uint32_t n_blocks;
	enum code code; /* that it computes with */
};

struct fit_experiment {
	struct workload_spec spec; /* owned */
	struct schedule_choice choice;
	struct workload workload; /* owned: the tree alone */
	struct work_list list; /* owned */
	double us; /* measured */
};

uint32_t fit_count(void);
/* The i-th experiment on such a card. 0 or -ENOMEM; fit_experiment_done frees after either. */
int fit_experiment_init(struct fit_experiment *e, uint32_t i, const struct fit_card *card);
/* One of a workload as the planner has it; takes over spec. As above. */
int fit_experiment_of(struct fit_experiment *e, struct workload_spec *spec);
void fit_experiment_done(struct fit_experiment *e);

/* What the model says of it, in us. 0 or -ENOMEM. */
int fit_expect(const struct fit_experiment *e, const struct fit_card *card,
	       const struct costs *costs, double *ret_us);

/* Fits what costs has in doubles, but for batch_ns, from where it stands. Returns 0 or -ENOMEM. */
int fit_solve(const struct fit_experiment *experiments, uint32_t n, const struct fit_card *card,
	      struct costs *costs);

/* Moves constants, one at a time, as long as that makes the sum less of the mean square of relative
 * residuals and the mean logarithm of what workloads whose choices are among the experiments, next
 * to each other, lose by the model's choice. Choices are among near equals: what fits best on the
 * whole can be wrong about which is less. 0 or -ENOMEM. */
int fit_choose(const struct fit_experiment *experiments, uint32_t n, const struct fit_card *card,
	       struct costs *costs);

#define FIT_CONSTANTS 15u

/* Names and places of the fitted. */
const char *fit_constant_name(uint32_t i);
double *fit_constant(struct costs *costs, uint32_t i);

#endif
