/*
 * daemon_attention.c - how an app takes attention from coppiced: the part to copy from.
 *
 * Once: connect, open the model, make an arena. For each pass: announce the new tokens
 * (daemon_seq_extend), then for each layer write Q, K and V into the arena, step, wait, read O.
 */
#include "daemon_attention.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#define MAX_PARTS 256
#define ARENA_SLACK_BYTES 4096 /* pieces begin at multiples of 256 */

/* Room for the rows of one pass. */
static int make_rows(struct daemon_attention *self, uint64_t row_bytes, void **ret,
		     struct fault *fault)
{
	int r = coppice_arena_alloc(self->daemon.arena, self->options.max_rows * row_bytes, 0, ret);
	return r < 0 ? daemon_fail(&self->daemon, r, "no room for a pass", fault) : 0;
}

static int make_arena(struct daemon_attention *self, struct fault *fault)
{
	const uint64_t q = self->layout.q_row_bytes, kv = self->layout.kv_row_bytes;
	const uint64_t bytes = 2 * (q + kv) * self->options.max_rows + ARENA_SLACK_BYTES;
	int r = coppice_arena_new(self->daemon.coppice, COPPICE_HOST, bytes, &self->daemon.arena);
	if (r < 0)
		return daemon_fail(&self->daemon, r, "no memory shared with the daemon", fault);
	r = make_rows(self, q, &self->base.q, fault);
	if (r == 0)
		r = make_rows(self, kv, &self->base.k, fault);
	if (r == 0)
		r = make_rows(self, kv, &self->base.v, fault);
	if (r == 0)
		r = make_rows(self, q, &self->base.o, fault);
	return r;
}

static void fill_step(const struct daemon_attention *self, const struct attention_part *parts,
		      uint32_t n_parts, struct coppice_step_seq *seqs)
{
	const size_t q = self->layout.q_row_bytes, kv = self->layout.kv_row_bytes;
	size_t row = 0;
	for (uint32_t i = 0; i < n_parts; i++) {
		seqs[i] = (struct coppice_step_seq){
			.seq = ((const struct daemon_seq *)parts[i].seq)->handle,
			.n_new = parts[i].n_rows,
			.q = (char *)self->base.q + row * q,
			.k = (char *)self->base.k + row * kv,
			.v = (char *)self->base.v + row * kv,
			.o = (char *)self->base.o + row * q,
		};
		row += parts[i].n_rows;
	}
}

/* A step that found the lane full is not in it yet when the first slice is over. */
static int step_wait(struct daemon_attention *self, const struct coppice_step *step,
		     struct fault *fault)
{
	uint64_t ticket = 0;
	int r;
	do {
		if (daemon_stopped(&self->daemon))
			return daemon_interrupted(fault);
		r = ticket ? coppice_wait(self->daemon.lane, ticket, DAEMON_SLICE_NS)
			   : coppice_step_wait(self->daemon.lane, step, DAEMON_SLICE_NS, &ticket);
	} while (r == -ETIMEDOUT);
	return r < 0 ? daemon_fail(&self->daemon, r, "a step failed", fault) : 0;
}

static int run_layer(struct attention *base, uint32_t layer, const struct attention_part *parts,
		     uint32_t n_parts, struct fault *fault)
{
	struct daemon_attention *self = (struct daemon_attention *)base;
	struct coppice_step_seq seqs[MAX_PARTS];
	const struct coppice_step step = {
		.size = sizeof(step),
		.layer = layer,
		.seqs = seqs,
		.n_seqs = n_parts,
	};
	assert(n_parts <= MAX_PARTS);
	fill_step(self, parts, n_parts, seqs);
	if (self->options.layer_sleep_us)
		usleep(self->options.layer_sleep_us);
	return step_wait(self, &step, fault);
}

static int open_model(struct daemon_attention *self, struct fault *fault)
{
	struct daemon *d = &self->daemon;
	int r = coppice_model_open(d->coppice, &self->options.model, &d->model);
	if (r == 0)
		r = coppice_model_query(d->coppice, d->model, &self->layout);
	return r < 0 ? daemon_fail(d, r, "the daemon does not take the model", fault) : 0;
}

int daemon_attention_open(struct daemon_attention *ret, const struct daemon_options *options,
			  struct fault *fault)
{
	*ret = (struct daemon_attention){
		.base = {.dtype = options->model.dtype,
			 .max_rows = options->max_rows,
			 .run = run_layer},
		.options = *options,
		.layout.size = sizeof(ret->layout),
	};
	int r = daemon_open(&ret->daemon, &options->address, fault);
	if (r == 0)
		r = open_model(ret, fault);
	if (r == 0)
		r = make_arena(ret, fault);
	if (r < 0)
		daemon_attention_close(ret);
	return r;
}

void daemon_attention_close(struct daemon_attention *self)
{
	daemon_close(&self->daemon);
	*self = (struct daemon_attention){0};
}
