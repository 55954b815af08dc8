/*
 * submit_cost.c - what a submitted step costs in C: submit_cost.py has the same of Python.
 *
 * Prints nanoseconds a step: the least of many rounds, of 64 layers of a token each.
 */
#include <coppice.h>
#include <err.h>
#include <stdio.h>
#include <time.h>

#define N_LAYERS 64
#define N_ROUNDS 300
#define must(call) ((call) < 0 ? errx(1, "%s", coppice_explain(c)) : (void)0)

static struct coppice *c;

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double submit_layers(struct coppice_lane *lane, struct coppice_step_seq *part)
{
	struct coppice_step step = {.size = sizeof(step), .seqs = part, .n_seqs = 1};
	double begin = now_ns();
	uint64_t ticket = 0;

	for (step.layer = 0; step.layer < N_LAYERS; step.layer++)
		must(coppice_step(lane, &step, &ticket));
	begin = (now_ns() - begin) / N_LAYERS;
	must(coppice_wait(lane, ticket, COPPICE_FOREVER));
	return begin;
}

int main(void)
{
	struct coppice_model_info info = {.size = sizeof(info),
					  .name = "cost",
					  .n_layers = N_LAYERS,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = 16,
					  .dtype = COPPICE_FP32};
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	uint32_t model, id = 1;
	double least = 1e9;

	must(coppice_connect(&c, NULL));
	must(coppice_model_open(c, &info, &model));
	must(coppice_arena_new(c, COPPICE_HOST, 4096, &arena));
	must(coppice_lane_new(c, &lane));
	must(coppice_seq_open(lane, model, &id, 1, 1, &seq, NULL));
	float *rows = coppice_arena_base(arena);
	struct coppice_step_seq part = {.seq = seq,
					.n_new = 1,
					.q = rows,
					.k = rows + 64,
					.v = rows + 128,
					.o = rows + 192};
	for (int i = 0; i < N_ROUNDS; i++) {
		must(coppice_seq_extend(seq, &id, 1, NULL));
		double cost = submit_layers(lane, &part);
		least = cost < least ? cost : least;
	}
	printf("%.0f\n", least);
	coppice_close(c);
	return 0;
}
