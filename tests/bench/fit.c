/*
 * fit.c - coppice-bench fit: measures on the card what the planner's model is made of (fit_model.h)
 * and attention's built-in cases and every second of a file's workloads under every choice that the
 * planner has, fits its constants, checks them on the file's other workloads, and prints the
 * architecture's table as kernels/cuda/schedule/costs.c has it.
 */
#include "bench.h"

#ifdef BENCH_HAVE_KERNELS
#include "card.h"
#include "cases.h"
#include "costs_file.h"
#include "fit_model.h"
#include "json_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE_TOKENS 32u
#define BATCHES 100u
#define BATCH "batch" /* the name of what batch_ns is measured by */

struct options {
	const char *module;
	const char *workload; /* file of others, or NULL */
	const char *times; /* file to read times from; NULL: the card */
	const char *save; /* file to write times to, or NULL */
	uint32_t n_blocks; /* with times */
};

enum { KEY_TIMES = 256, KEY_SAVE, KEY_BLOCKS };

static const struct args_option options[] = {
	{"module", 'm', "FILE", "The module (default: that of this build)"},
	{"workload", 'w', "FILE",
	 "JSON as attention's: every second of its workloads is fitted too, on the others the fit "
	 "is checked"},
	{"save", KEY_SAVE, "FILE", "Write what was measured, and the constants, to FILE"},
	{"times", KEY_TIMES, "FILE", "Measure nothing: take what an earlier run saved"},
	{"multiprocessors", KEY_BLOCKS, "N", "With --times: of that card (default 132)"},
	{0},
};

static int parse(struct args *args, int key, void *to)
{
	struct options *o = to;
	const char *arg = args->value;

	switch (key) {
	case 'm':
		o->module = arg;
		return 0;
	case 'w':
		o->workload = arg;
		return 0;
	case KEY_TIMES:
		o->times = arg;
		return 0;
	case KEY_SAVE:
		o->save = arg;
		return 0;
	case KEY_BLOCKS:
		return bench_take_whole(args, 1, UINT32_MAX, &o->n_blocks);
	}
	return 0;
}

struct fit {
	const struct options *o;
	struct card card;
	struct cuda_card known;
	struct fit_card model;
	struct costs costs;
	json_t *times; /* owned: name -> us */
	json_t *workloads; /* of the file; NULL: none */
	struct fit_experiment *experiments; /* owned, [n] */
	uint32_t n;
};

/* ---- measuring ------------------------------------------------------------------------------ */

/* Of a batch, submit to completion. */
static int time_batch(struct card_run *run, double *ret_us)
{
	double us[BATCHES], unused;
	int r = 0;

	for (uint32_t i = 0; i < BATCHES && !r; i++) {
		uint64_t start_ns = clock_now_ns();

		r = card_run_once(run, &unused);
		us[i] = (double)(clock_now_ns() - start_ns) / 1e3;
	}
	if (!r)
		*ret_us = bench_median(us, BATCHES);
	return r;
}

/* The experiment's workload on the card, where that is what times are from. 0 or -errno; end_run
 * frees after either. */
static int begin_run(struct fit *f, const struct fit_experiment *e, struct card_run *run)
{
	struct plan_config config;
	char error[256] = "";
	int r;

	*run = (struct card_run){0};
	if (f->o->times)
		return 0;
	r = card_run_init(run, &f->card, &e->spec, error, sizeof(error));
	if (!r) {
		plan_config_init(&config, PLAN_AUTO, &e->spec.shape, 1);
		config.tile_rows = f->card.ops->tile_rows(run->backend, &e->spec.shape);
		r = plan_make(&config, &run->workload.tree, &run->list);
	}
	if (r)
		fprintf(stderr, "coppice-bench: %s: %s %s\n", e->spec.name, strerror(-r), error);
	return r;
}

static void end_run(struct card_run *run)
{
	if (run->card)
		card_run_done(run);
}

/* Planned as the experiment says; whole: of its batch, else of the kernels alone. */
static int time_on_card(struct fit *f, const struct fit_experiment *e, struct card_run *run,
			bool whole, double *ret_us)
{
	double unused;
	int r;

	run->spec = &e->spec; /* experiments move as more come */
	f->card.plan_as(run->backend, &f->costs, &e->choice);
	f->card.plan_id++;
	r = card_run_once(run, &unused);
	if (!r)
		r = whole ? time_batch(run, ret_us) : card_run_time(run, bench_reps(21), ret_us);
	if (r)
		fprintf(stderr, "coppice-bench: %s: %s\n", e->spec.name, strerror(-r));
	return r;
}

/* From the file, -ENOENT where it has none; or from the card. */
static int find_time(struct fit *f, const struct fit_experiment *e, struct card_run *run,
		     const char *name, double *ret_us)
{
	int r;

	if (f->o->times) {
		*ret_us = json_number_value(json_object_get(f->times, name));
		return *ret_us > 0 ? 0 : -ENOENT;
	}
	r = time_on_card(f, e, run, strcmp(name, BATCH) == 0, ret_us);
	if (!r)
		r = json_object_set_new(f->times, name, json_real(*ret_us)) ? -ENOMEM : 0;
	return r;
}

static struct fit_experiment *append(struct fit *f)
{
	struct fit_experiment *at = realloc(f->experiments, (f->n + 1) * sizeof(*f->experiments));

	if (!at)
		return NULL;
	f->experiments = at;
	at[f->n] = (struct fit_experiment){0};
	return &at[f->n++];
}

/* The i-th that is designed; of the first the batch's time too. */
static int add_designed(struct fit *f, uint32_t i)
{
	struct fit_experiment *e = append(f);
	struct card_run run = {0};
	double us = 0;
	int r = e ? fit_experiment_init(e, i, &f->model) : -ENOMEM;

	if (!r)
		r = begin_run(f, e, &run);
	if (!r)
		r = find_time(f, e, &run, e->spec.name, &e->us);
	if (!r && i == 0) {
		r = find_time(f, e, &run, BATCH, &us);
		f->costs.batch_ns = us * 1e3;
	}
	end_run(&run);
	if (r != -ENOENT)
		return r;
	fprintf(stderr, "coppice-bench: %s: no time of %s\n", f->o->times, e->spec.name);
	fit_experiment_done(e);
	f->n--;
	return 0;
}

#define N_CHOICES (4 * SCHEDULE_N_SHARES)

/* The i-th that the planner has for the shape; ret_name: of the workload so planned. False: it has
 * no more. */
static bool choice_of(const struct fit_experiment *e, uint32_t i, struct schedule_choice *ret,
		      char ret_name[96])
{
	uint32_t heads = e->spec.shape.n_q_heads / e->spec.shape.n_kv_heads;

	*ret = (struct schedule_choice){(DEVICE_WORK_TILE_ROWS >> i / SCHEDULE_N_SHARES) / heads,
					schedule_shares[i % SCHEDULE_N_SHARES]};
	snprintf(ret_name, 96, "%s@%u/%.2f", e->spec.name, ret->work_tile_tokens, ret->share);
	return i < N_CHOICES && ret->work_tile_tokens > 0;
}

/* Makes the index-th of f's workloads. 0 or -errno; workload_spec_done frees after either. */
typedef int (*maker)(struct fit *f, size_t index, struct workload_spec *ret);

static const struct case_options cases = {PAGE_TOKENS, WORK_FP16};

static int make_built_in(struct fit *f, size_t index, struct workload_spec *ret)
{
	(void)f;
	return case_built_in((uint32_t)index, &cases, ret);
}

static int make_of_file(struct fit *f, size_t index, struct workload_spec *ret)
{
	return case_read(json_array_get(f->workloads, index), &cases, ret);
}

/* A workload under every choice. */
static int add_choices(struct fit *f, maker make, size_t index)
{
	struct schedule_choice choice;
	struct card_run run = {0};
	char name[96];
	int r = 0;

	for (uint32_t i = 0; !r; i++) {
		struct workload_spec spec = {0};
		struct fit_experiment *e = append(f);

		r = e ? make(f, index, &spec) : -ENOMEM;
		if (r)
			workload_spec_done(&spec);
		else
			r = fit_experiment_of(e, &spec);
		if (r || !choice_of(e, i, &choice, name))
			break;
		e->choice = choice;
		if (i == 0)
			r = begin_run(f, e, &run);
		if (!r)
			r = find_time(f, e, &run, name, &e->us);
	}
	/* the last is no experiment */
	if (f->n)
		fit_experiment_done(&f->experiments[--f->n]);
	end_run(&run);
	return r == -ENOENT ? 0 : r;
}

static int make_experiments(struct fit *f)
{
	int r = 0;

	for (uint32_t i = 0; i < fit_count() && !r; i++)
		r = add_designed(f, i);
	for (uint32_t i = 0; i < case_count() && !r; i++)
		r = add_choices(f, make_built_in, i);
	for (size_t i = 1; i < json_array_size(f->workloads) && !r; i += 2)
		r = add_choices(f, make_of_file, i);
	return r;
}

/* ---- what came of it ------------------------------------------------------------------------ */

struct errors {
	double log_sum, most;
	uint32_t n;
};

/* What a workload could take, planned as told; choice.work_tile_tokens == 0: planned as it is. */
struct best {
	double us;
	struct schedule_choice choice;
};

struct checks {
	struct errors errors;
	double regret; /* what the planner chose over the best that it could have, at most */
	double regret_sum; /* of logarithms */
	uint32_t n_compared;
};

static int print_case(struct fit *f, const struct fit_experiment *e, bool told,
		      struct errors *errors)
{
	char name[96];
	double us, off;
	int r = fit_expect(e, &f->model, &f->costs, &us);

	if (r)
		return r;
	off = log(us / e->us);
	errors->log_sum += fabs(off);
	errors->most = fmax(errors->most, fabs(off));
	errors->n++;
	snprintf(name, sizeof(name), "%s", e->spec.name);
	if (told)
		snprintf(name, sizeof(name), "%s@%u/%.2f", e->spec.name, e->choice.work_tile_tokens,
			 e->choice.share);
	printf("%-36s %9.1f %9.1f %+7.1f %%\n", name, e->us, us, (us / e->us - 1) * 100);
	fflush(stdout);
	return 0;
}

static void print_errors(const char *of, const struct errors *e)
{
	if (e->n == 0)
		return;
	bench_print("fit", of, "off_by", exp(e->log_sum / e->n), "x");
	bench_print("fit", of, "off_by_at_most", exp(e->most), "x");
	printf("\n");
}

static int print_experiments(struct fit *f)
{
	struct errors errors = {0};
	int r = 0;

	printf("%-36s %9s %9s\n", "experiment", "time us", "expected");
	for (uint32_t i = 0; i < f->n && !r; i++)
		r = print_case(f, &f->experiments[i], f->experiments[i].choice.work_tile_tokens > 0,
			       &errors);
	print_errors("experiments", &errors);
	return r;
}

/* Times what the planner could have chosen instead: the least of it. */
static int find_best(struct fit *f, const struct fit_experiment *e, struct card_run *run,
		     struct best *ret)
{
	struct fit_experiment told = *e;
	char name[96];

	*ret = (struct best){.us = e->us};
	for (uint32_t i = 0; choice_of(e, i, &told.choice, name); i++) {
		double us;
		int r = find_time(f, &told, run, name, &us);

		if (r && r != -ENOENT)
			return r;
		if (!r && us < ret->us)
			*ret = (struct best){us, told.choice};
	}
	return 0;
}

/* What the planner's own choice takes. From a file it is that of the choice which is expected to
 * take the least. */
static int find_chosen(struct fit *f, const struct fit_experiment *e, struct card_run *run,
		       double *ret_us)
{
	struct fit_experiment told = *e;
	double least = INFINITY, us;
	char name[96], chosen[96];

	if (!f->o->times)
		return find_time(f, e, run, e->spec.name, ret_us);
	snprintf(chosen, sizeof(chosen), "%s", e->spec.name);
	for (uint32_t i = 0; choice_of(e, i, &told.choice, name); i++) {
		int r = fit_expect(&told, &f->model, &f->costs, &us);

		if (r)
			return r;
		if (us >= least)
			continue;
		least = us;
		snprintf(chosen, sizeof(chosen), "%s", name);
	}
	return find_time(f, e, run, chosen, ret_us);
}

/* One that was not fitted. Takes over spec. */
static int check_one(struct fit *f, struct workload_spec *spec, struct checks *checks)
{
	struct fit_experiment e;
	struct card_run run = {0};
	struct best best = {0};
	int r = fit_experiment_of(&e, spec);

	if (!r)
		r = begin_run(f, &e, &run);
	if (!r)
		r = find_chosen(f, &e, &run, &e.us);
	if (!r)
		r = find_best(f, &e, &run, &best);
	if (!r)
		r = print_case(f, &e, false, &checks->errors);
	if (!r && best.us > 0) {
		checks->regret = fmax(checks->regret, e.us / best.us);
		checks->regret_sum += log(e.us / best.us);
		checks->n_compared++;
	}
	if (!r && best.choice.work_tile_tokens)
		printf("%-36s %9.1f with work tiles of %u tokens, cut at %.2f of a share\n", "",
		       best.us, best.choice.work_tile_tokens, best.choice.share);
	end_run(&run);
	fit_experiment_done(&e);
	return r == -ENOENT ? 0 : r;
}

static int check(struct fit *f)
{
	struct checks checks = {0};
	int r = 0;

	printf("%-36s %9s %9s\n", "not fitted", "time us", "expected");
	for (size_t i = 0; i < json_array_size(f->workloads) && !r; i += 2) {
		struct workload_spec spec = {0};

		r = make_of_file(f, i, &spec);
		if (r)
			workload_spec_done(&spec);
		else
			r = check_one(f, &spec, &checks);
	}
	print_errors("not_fitted", &checks.errors);
	if (checks.n_compared) {
		bench_print("fit", "not_fitted", "slower_than_best_choice",
			    exp(checks.regret_sum / checks.n_compared), "x");
		bench_print("fit", "not_fitted", "slower_at_most", checks.regret, "x");
	}
	return r;
}

static void print_table(struct fit *f)
{
	time_t now = time(NULL);
	char date[16];

	strftime(date, sizeof(date), "%Y-%m-%d", gmtime(&now));
	printf("\t{\n\t\t.architecture = \"%s\",\n\t\t.fitted = \"%s, %s\",\n",
	       f->costs.architecture, f->o->times ? f->o->times : f->known.name, date);
	for (uint32_t i = 0; i < FIT_CONSTANTS; i++)
		printf("\t\t.%s = %.4g,\n", fit_constant_name(i), *fit_constant(&f->costs, i));
	printf("\t\t.batch_ns = %.4g,\n\t\t.op_ns = %.4g,\n", f->costs.batch_ns, f->costs.op_ns);
	printf("\t\t.hidden_product_ns_per_mflop = %.4g,\n\t\t.product_ns_per_mflop = "
	       "%.4g,\n\t},\n",
	       f->costs.hidden_product_ns_per_mflop, f->costs.product_ns_per_mflop);
}

/* With what was measured, so that attention --costs can try them before they are compiled in. */
static int save_times(struct fit *f)
{
	int r = costs_file_put(f->times, &f->costs);

	if (!r)
		r = json_dump_file(f->times, f->o->save, JSON_INDENT(1));
	if (r)
		fprintf(stderr, "coppice-bench: %s: cannot be written\n", f->o->save);
	return r;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int open_card(struct fit *f)
{
	struct backend *backend = NULL;
	int r = card_load(&f->card, f->o->module);

	if (!r)
		r = card_open(&f->card, &backend);
	if (r)
		return r;
	f->card.describe(backend, &f->known);
	f->card.ops->close(backend);
	f->model = (struct fit_card){f->known.n_blocks, f->known.code};
	f->costs = *f->known.costs;
	f->times = json_object();
	return 0;
}

static int open_times(struct fit *f)
{
	f->times = json_file_read(f->o->times);
	f->model = (struct fit_card){f->o->n_blocks, CODE_WGMMA};
	f->costs = *costs_find(CODE_WGMMA);
	if (f->times && !json_is_object(f->times))
		fprintf(stderr, "coppice-bench: %s: no object of times\n", f->o->times);
	return json_is_object(f->times) ? 0 : -EINVAL;
}

static int open_workloads(struct fit *f)
{
	if (!f->o->workload)
		return 0;
	f->workloads = json_file_read_array(f->o->workload, "workloads");
	return f->workloads ? 0 : -EINVAL;
}

static int fit(struct fit *f)
{
	int r = open_workloads(f);

	if (!r)
		r = f->o->times ? open_times(f) : open_card(f);
	if (!r)
		r = make_experiments(f);
	if (!r)
		r = fit_solve(f->experiments, f->n, &f->model, &f->costs);
	if (!r)
		r = fit_choose(f->experiments, f->n, &f->model, &f->costs);
	if (!r)
		r = print_experiments(f);
	if (!r && f->workloads)
		r = check(f);
	if (f->o->save && f->times && save_times(f) != 0)
		r = r ? r : -EIO;
	if (!r)
		print_table(f);
	return r;
}

int fit_main(int argc, char **argv)
{
	struct options o = {.module = BENCH_BUILD_DIR "/kernels/cuda/coppice-cuda.so",
			    .n_blocks = 132};
	struct fit f = {.o = &o};
	int r;
	const struct bench_options how = {
		.table = options,
		.take = parse,
		.to = &o,
		.most_reps = BENCH_REPS_MAX,
		.doc = "Fits the constants of the GPU planner's model on the card.",
	};

	r = bench_read(&how, argc, argv);
	if (r >= 0)
		return r;
	r = fit(&f);
	for (uint32_t i = 0; i < f.n; i++)
		fit_experiment_done(&f.experiments[i]);
	free(f.experiments);
	json_decref(f.times);
	json_decref(f.workloads);
	return r ? 1 : 0;
}
#endif
