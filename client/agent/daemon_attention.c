/* daemon_attention.c - see daemon_attention.h. */
#include "daemon_attention.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_NS 200000000u /* how long a signal may go unseen */
#define MAX_PARTS 256

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

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + 4095) & ~(uint64_t)4095;
}

static int make_arena(struct daemon_attention *self, struct fault *fault)
{
	const struct coppice_model_info *m = &self->options.model;
	const uint64_t row = m->head_dim * (m->dtype == COPPICE_FP32 ? 4ull : 2ull);
	const uint64_t q = page_up(self->options.max_rows * row * m->n_q_heads);
	const uint64_t kv = page_up(self->options.max_rows * row * m->n_kv_heads);
	int r = coppice_arena_new(self->coppice, COPPICE_HOST, 2 * (q + kv), &self->arena);
	if (r < 0)
		return fail(self, r, "no memory shared with the daemon", fault);
	char *at = coppice_arena_base(self->arena);
	self->base.q = at;
	self->base.k = at + q;
	self->base.v = at + q + kv;
	self->base.o = at + q + 2 * kv;
	return 0;
}

/* A step whose extension failed says only that it has no tokens: the extension's own words are
 * better. */
static int explain_step(struct daemon_attention *self, int error,
			const struct attention_part *parts, uint32_t n_parts, struct fault *fault)
{
	struct fault of_extension;
	const bool gone = error == -ECONNRESET || error == -EINTR;
	for (uint32_t i = 0; !gone && i < n_parts; i++) {
		const struct daemon_seq *seq = parts[i].seq;
		int r = wait_ticket(self, seq->extend_ticket, "no room for the next tokens",
				    &of_extension);
		if (r < 0 && r != -ESTALE) {
			*fault = of_extension;
			return r;
		}
	}
	return error;
}

static void fill_step(const struct daemon_attention *self, const struct attention_part *parts,
		      uint32_t n_parts, struct coppice_step_seq *seqs)
{
	const struct coppice_model_info *m = &self->options.model;
	const size_t head = m->head_dim * (m->dtype == COPPICE_FP32 ? 4 : 2);
	const size_t q = head * m->n_q_heads, kv = head * m->n_kv_heads;
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

static int run_layer(struct attention *base, uint32_t layer, const struct attention_part *parts,
		     uint32_t n_parts, struct fault *fault)
{
	struct daemon_attention *self = (struct daemon_attention *)base;
	struct coppice_step_seq seqs[MAX_PARTS];
	assert(n_parts <= MAX_PARTS);
	fill_step(self, parts, n_parts, seqs);
	if (stopped(self))
		return interrupted(fault);
	if (self->options.layer_sleep_us)
		usleep(self->options.layer_sleep_us);
	const struct coppice_step step = {.layer = layer, .seqs = seqs, .n_seqs = n_parts};
	int r;
	while ((r = coppice_step(self->lane, &step, &self->last_ticket)) == -EAGAIN) {
		r = drain(self, fault);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return fail(self, r, "a step was not taken", fault);
	r = wait_ticket(self, self->last_ticket, "a step failed", fault);
	return r < 0 ? explain_step(self, r, parts, n_parts, fault) : 0;
}

static int open_all(struct daemon_attention *self, struct fault *fault)
{
	int r = coppice_connect(&self->coppice, self->options.socket_path);
	if (r < 0)
		return fail(self, r, "no daemon", fault);
	r = coppice_model_open(self->coppice, &self->options.model, &self->model);
	if (r < 0)
		return fail(self, r, "the daemon does not take the model", fault);
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
		    struct daemon_seq *ret, struct coppice_match *ret_match, struct fault *fault)
{
	struct daemon_seq seq = {0};
	int r = coppice_seq_open(self->lane, self->model, ids, n, self->options.salt, &seq.handle,
				 ret_match);
	if (r < 0)
		return fail(self, r, "the prompt was not opened", fault);
	*ret = seq;
	return 0;
}

int daemon_seq_settle(struct daemon_attention *self, struct daemon_seq *seq,
		      struct coppice_match *match, struct fault *fault)
{
	while (match->pending && !match->claimed) {
		int r = coppice_seq_wait(seq->handle, SLICE_NS, match);
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
	while ((r = coppice_seq_extend(seq->handle, ids, n, &seq->extend_ticket)) == -EAGAIN) {
		r = drain(self, fault);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return fail(self, r, "no room for the next tokens", fault);
	self->last_ticket = seq->extend_ticket;
	return 0;
}

void daemon_seq_close(struct daemon_seq *seq)
{
	coppice_seq_close(seq->handle);
	*seq = (struct daemon_seq){0};
}
