/*
 * program_gpu.c - shapes that the device takes, a machine on the module or on the played device,
 * and its rows held against float64 and against the CPU's.
 */
#include "program_gpu.h"

#ifdef PROGRAM_FAKE
#include "fake_device.h"
#else
#include "device_ops.h"
#endif
#include "program_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

const struct backend_ops *gpu_ops;

#ifdef PROGRAM_FAKE
int gpu_find(const char *module)
{
	(void)module;
	gpu_ops = fake_device_ops();
	return 0;
}
#else
int gpu_find(const char *module)
{
	return module ? device_ops(module, &gpu_ops) : 1;
}
#endif

struct model_want gpu_want(struct oracle_random *random)
{
	static const uint32_t dims[] = {64, 64, 96, 128, 128, 192, 256};
	struct model_want want = model_want_random(random);

	want.head_dim = dims[oracle_below(random, 7)];
	want.n_kv_heads = 1 + oracle_below(random, 2);
	want.n_q_heads = want.n_kv_heads * (1 + oracle_below(random, 3));
	want.n_turned = oracle_below(random, 2) ? want.head_dim
						: 2 * oracle_below(random, want.head_dim / 2 + 1);
	want.hidden = 8 * (8 + oracle_below(random, 16));
	want.intermediate = want.side ? want.hidden : 8 * (2 + oracle_below(random, 30));
	want.dtype = want.weights = oracle_below(random, 2) ? WORK_FP16 : WORK_BF16;
	want.mixed = false;
	want.mixed_vectors = oracle_below(random, 2);
	if (oracle_below(random, 3) == 0) { /* as most models have it */
		want.head_dim = want.n_turned = 128;
		want.norms = 0;
	}
	return want;
}

void gpu_start(struct machine *machine, struct program_model *m)
{
	machine_init_on(machine, gpu_ops, m, 0);
}

/* ---- against the truth ----------------------------------------------------------------------- */

static double *widened(const float *x, size_t n)
{
	double *to = malloc((n + 1) * sizeof(*to));

	assert_non_null(to);
	for (size_t i = 0; i < n; i++)
		to[i] = (double)x[i];
	return to;
}

/* The same tokens on the CPU. */
static void check_cpu(struct program_model *m, const struct model_want *want,
		      const struct machine_part *part, const struct machine_result *gpu,
		      struct program_errors *errors)
{
	struct machine_result result;
	struct machine machine;
	double *logits;

	machine_init(&machine, m, 2);
	machine_run(&machine, part, 1, 0, &result);
	logits = widened(result.logits, (size_t)part->n * m->p.n_vocab);
	program_errors_add(errors, want,
			   &(struct program_compared){"the CPU's", gpu->logits, logits, part->n,
						      m->p.n_vocab});
	free(logits);
	machine_result_done(&result);
	machine_done(&machine);
}

void gpu_check(struct program_model *m, const struct model_want *want, uint32_t n,
	       struct program_errors *errors)
{
	struct machine_part part = {0, n, NULL};
	struct program_truth truth;
	struct machine_result result;
	struct machine machine;

	gpu_start(&machine, m);
	machine_run(&machine, &part, 1, 1, &result);
	truth = program_oracle(m, machine.seqs[0].ids, n);
	program_errors_add(errors, want,
			   &(struct program_compared){"hidden", result.hidden, truth.hidden, n,
						      m->p.hidden});
	program_errors_add(errors, want,
			   &(struct program_compared){"logits", result.logits, truth.logits, n,
						      m->p.n_vocab});
	check_cpu(m, want, &part, &result, errors);
	program_truth_done(&truth);
	machine_result_done(&result);
	machine_done(&machine);
	model_free(m);
}

void gpu_check_new(const struct model_want *want, uint32_t n, struct oracle_random *random,
		   struct program_errors *errors)
{
	gpu_check(model_new(want, random), want, n, errors);
}
