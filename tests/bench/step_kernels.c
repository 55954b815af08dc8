/*
 * step_kernels.c - a process of its own loads the module, plans as a daemon does and times the
 * step, so that none of the device's memory stays here.
 */
#include "step_kernels.h"

#include "bench.h"

#ifdef BENCH_HAVE_KERNELS
#include "card.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODULE BENCH_BUILD_DIR "/kernels/cuda/" CUDA_MODULE_NAME
#define PAGE_TOKENS 32u /* the daemon's */
#define REPS 41u

/* The plan that a daemon makes. */
static int make_list(struct card_run *run, const struct workload_spec *spec)
{
	struct plan_config config;
	struct cuda_card known;

	run->card->describe(run->backend, &known);
	plan_config_init(&config, PLAN_AUTO, &spec->shape,
			 known.n_blocks / spec->shape.n_kv_heads + 1);
	config.tile_rows = run->card->ops->tile_rows(run->backend, &spec->shape);
	return plan_make(&config, &run->workload.tree, &run->list);
}

static int time_spec(const struct workload_spec *spec, double *ret_us)
{
	struct card card = {.plan_id = 1};
	struct card_run run = {0};
	char error[256] = "";
	int r = card_load(&card, MODULE);

	if (r)
		return r;
	r = card_run_init(&run, &card, spec, error, sizeof(error));
	if (!r)
		r = make_list(&run, spec);
	if (!r)
		r = card_run_time_step(&run, REPS, ret_us);
	if (r)
		warnx("the step's kernels: %s %s", strerror(-r), error);
	return r;
}

static void time_and_tell(const struct step_kernels *of, int to)
{
	uint32_t nodes[] = {1, of->n_seqs}, tokens[] = {of->prefix, of->tail};
	struct workload_spec spec = {.name = "step",
				     .shape = {1, of->q_heads, of->kv_heads, of->dim, PAGE_TOKENS,
					       WORK_BF16, 1 / sqrtf((float)of->dim)}};
	double us = 0;
	int r = workload_spec_levels(&spec, nodes, tokens, 2);

	if (!r)
		r = time_spec(&spec, &us);
	if (r || write(to, &us, sizeof(us)) != sizeof(us))
		_exit(1);
	_exit(0);
}

double step_kernels_us(const struct step_kernels *of)
{
	double us = 0;
	int ends[2];
	pid_t pid;

	if (pipe(ends) < 0)
		err(1, "pipe");
	pid = fork();
	if (pid == 0)
		time_and_tell(of, ends[1]);
	close(ends[1]);
	if (read(ends[0], &us, sizeof(us)) != sizeof(us))
		us = 0;
	close(ends[0]);
	waitpid(pid, NULL, 0);
	return us;
}
#else
double step_kernels_us(const struct step_kernels *of)
{
	(void)of;
	return 0;
}
#endif
