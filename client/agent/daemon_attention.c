/*
 * daemon_attention.c - how an app takes attention from coppiced: the part to copy from.
 *
 * Once: connect, open the model, make a lane and an arena. For each sequence: open it on its
 * prompt, wait for what others compute of it. For each pass: announce the new tokens, then for each
 * layer write Q, K and V into the arena, step, wait, read O. A lane is a queue of its own, so that
 * an entry that finds it full waits for what is in it.
 */
#include "daemon_attention.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_NS 200000000u /* how long a signal may go unseen */
#define MAX_PARTS 256
#define ARENA_SLACK_BYTES 4096 /* pieces begin at multiples of 256 */

static bool stopped(const struct daemon_attention *self)
{
	return self->options.stop && *self->options.stop;
}

static int fail(const struct daemon_attention *self, int error, const char *what,
		struct fault *fault)
{
	return fault_set(fault, error, "%s: %s", what, coppice_explain(self->coppice));
}

static int interrupted(struct fault *fault)
{
	return fault_set(fault, -EINTR, "interrupted");
}

static int wait_ticket(struct daemon_attention *self, uint64_t ticket, const char *what,
		       struct fault *fault)
{
	for (;;) {
		int r = coppice_wait(self->lane, ticket, SLICE_NS);
		if (r == 0)
			return 0;
		if (r != -ETIMEDOUT)
			return fail(self, r, what, fault);
		if (stopped(self))
			return interrupted(fault);
	}
}

/* Room for the rows of one pass. */
static int make_rows(struct daemon_attention *self, uint64_t row_bytes, void **ret,
		     struct fault *fault)
{
	int r = coppice_arena_alloc(self->arena, self->options.max_rows * row_bytes, 0, ret);
	return r < 0 ? fail(self, r, "no room for a pass", fault) : 0;
}

static int make_arena(struct daemon_attention *self, struct fault *fault)
{
	const uint64_t q = self->layout.q_row_bytes, kv = self->layout.kv_row_bytes;
	const uint64_t bytes = 2 * (q + kv) * self->options.max_rows + ARENA_SLACK_BYTES;
	int r = coppice_arena_new(self->coppice, COPPICE_HOST, bytes, &self->arena);
	if (r < 0)
		return fail(self, r, "no memory shared with the daemon", fault);
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

/* Makes room in a full lane: waits for all that is in it. */
static int drain(struct daemon_attention *self, struct fault *fault)
{
	int r = wait_ticket(self, self->last_ticket, "an earlier entry failed", fault);
	return r == -ECANCELED ? 0 : r;
}

/* A step that found the lane full is not in it yet when the first slice is over. */
static int step_wait(struct daemon_attention *self, const struct coppice_step *step,
		     struct fault *fault)
{
	uint64_t ticket = 0;
	int r;
	do {
		if (stopped(self))
			return interrupted(fault);
		r = ticket ? coppice_wait(self->lane, ticket, SLICE_NS)
			   : coppice_step_wait(self->lane, step, SLICE_NS, &ticket);
	} while (r == -ETIMEDOUT);
	return r < 0 ? fail(self, r, "a step failed", fault) : 0;
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
	int r = coppice_model_open(self->coppice, &self->options.model, &self->model);
	if (r == 0)
		r = coppice_model_query(self->coppice, self->model, &self->layout);
	return r < 0 ? fail(self, r, "the daemon does not take the model", fault) : 0;
}

static int open_all(struct daemon_attention *self, struct fault *fault)
{
	int r = coppice_connect(&self->coppice, self->options.socket_path);
	if (r < 0)
		return fail(self, r, "no daemon", fault);
	r = open_model(self, fault);
	if (r < 0)
		return r;
	r = coppice_lane_new(self->coppice, &self->lane);
	if (r < 0)
		return fail(self, r, "no lane", fault);
	return make_arena(self, fault);
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
	int r = open_all(ret, fault);
	if (r < 0)
		daemon_attention_close(ret);
	return r;
}

void daemon_attention_close(struct daemon_attention *self)
{
	coppice_arena_free(self->arena);
	coppice_lane_free(self->lane);
	coppice_close(self->coppice);
	*self = (struct daemon_attention){0};
}

int daemon_seq_open(struct daemon_attention *self, const uint32_t *ids, uint32_t n,
		    struct daemon_seq *ret, struct fault *fault)
{
	struct daemon_seq seq = {0};
	int r = coppice_seq_open(self->lane, self->model, ids, n, self->options.salt, &seq.handle,
				 &seq.match);
	if (r < 0)
		return fail(self, r, "the prompt was not opened", fault);
	*ret = seq;
	return 0;
}

int daemon_seq_wait(struct daemon_attention *self, struct daemon_seq *seq, struct fault *fault)
{
	while (seq->match.pending && !seq->match.claimed) {
		int r = coppice_seq_wait(seq->handle, SLICE_NS, &seq->match);
		if (r < 0 && r != -ETIMEDOUT)
			return fail(self, r, "waiting for the prompt failed", fault);
		if (stopped(self))
			return interrupted(fault);
	}
	return 0;
}

int daemon_seq_extend(struct daemon_attention *self, struct daemon_seq *seq, const uint32_t *ids,
		      uint32_t n, struct fault *fault)
{
	int r;
	while ((r = coppice_seq_extend(seq->handle, ids, n, &self->last_ticket)) == -EAGAIN) {
		r = drain(self, fault);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return fail(self, r, "no room for the next tokens", fault);
	return 0;
}

void daemon_seq_close(struct daemon_seq *seq)
{
	coppice_seq_close(seq->handle);
	*seq = (struct daemon_seq){0};
}
