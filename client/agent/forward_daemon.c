/*
 * forward_daemon.c - how an app lets coppiced run its model: the part to copy from.
 *
 * Once: read config.json, connect, hand over descriptors of the weights' files, wait until they are
 * loaded, find the program's tensors among them, make the program, and room for results. For each
 * pass: an entry with the new tokens of each sequence, its wait, and what is said of the last
 * token: the likeliest, or all logits.
 */
#include "forward_daemon.h"

#include "dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARENA_SLACK_BYTES 4096

static struct forward_daemon *daemon_of(struct forward *base)
{
	return (struct forward_daemon *)base;
}

/* ---- what the model is ---------------------------------------------------------------------- */

int forward_daemon_read(struct forward_daemon *ret, const char *model_dir,
			const enum coppice_dtype *kv_dtype, struct fault *fault)
{
	char path[PATH_MAX], why[COPPICE_HF_WHY_BYTES];
	*ret = (struct forward_daemon){0};
	snprintf(path, sizeof(path), "%s/config.json", model_dir);
	int r = coppice_hf_read(path, NULL, &ret->program, why);
	if (r < 0)
		return fault_set(fault, r, "%s", why);
	if (kv_dtype)
		ret->program->info.dtype = *kv_dtype;
	return weight_files_find(model_dir, &ret->files, fault);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* What is wrong with the weights, by where they are: the daemon knows no paths. */
static int fail_weights(const struct forward_daemon *self, int error, struct fault *fault)
{
	return daemon_fail(&self->daemon, error, self->files.paths[0], fault);
}

static void close_all(const int *fds, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		close(fds[i]);
}

static int open_files(const struct weight_files *files, int *fds, struct fault *fault)
{
	for (uint32_t i = 0; i < files->n; i++) {
		fds[i] = open(files->paths[i], O_RDONLY | O_CLOEXEC);
		if (fds[i] >= 0)
			continue;
		int r = -errno;
		close_all(fds, i);
		return fault_set(fault, r, "%s: cannot be opened: %s", files->paths[i],
				 strerror(-r));
	}
	return 0;
}

static int hand_over(struct forward_daemon *self, struct fault *fault)
{
	int fds[COPPICE_WEIGHT_FILES_MAX], r;
	if (self->files.n > COPPICE_WEIGHT_FILES_MAX)
		return fault_set(fault, -E2BIG, "%s and others: %u files, at most %u are taken",
				 self->files.paths[0], self->files.n, COPPICE_WEIGHT_FILES_MAX);
	r = open_files(&self->files, fds, fault);
	if (r < 0)
		return r;
	r = coppice_weights_open(self->daemon.coppice, fds, self->files.n, &self->weights);
	close_all(fds, self->files.n);
	return r < 0 ? fail_weights(self, r, fault) : 0;
}

static int await_weights(struct forward_daemon *self, bool progress, struct fault *fault)
{
	struct coppice_progress at = {.size = sizeof(at)};
	int r;
	while ((r = coppice_weights_wait(self->weights, DAEMON_SLICE_NS, &at)) == -ETIMEDOUT) {
		if (daemon_stopped(&self->daemon))
			return daemon_interrupted(fault);
		if (progress)
			fprintf(stderr, "weights: %ju of %ju MiB\n", (uintmax_t)at.bytes_done >> 20,
				(uintmax_t)at.bytes >> 20);
	}
	if (r < 0)
		return fail_weights(self, r, fault);
	self->base.weights_bytes = at.bytes;
	return 0;
}

/* ---- the program ---------------------------------------------------------------------------- */

static int make_program(struct forward_daemon *self, struct fault *fault)
{
	char why[COPPICE_HF_WHY_BYTES];
	int r = coppice_hf_bind(self->program, coppice_hf_find_weights, self->weights, why);
	if (r < 0)
		return fault_set(fault, r, "%s: %s", self->files.paths[0], why);
	r = coppice_program_new(self->daemon.coppice, self->weights, &self->program->info,
				&self->daemon.model);
	return r < 0 ? daemon_fail(&self->daemon, r, "the daemon does not take the program", fault)
		     : 0;
}

static int make_room(struct forward_daemon *self, uint32_t n_parts, struct fault *fault)
{
	struct daemon *d = &self->daemon;
	self->row_bytes = sizeof(struct coppice_row);
	if (!self->n_top)
		self->row_bytes += self->program->info.n_vocab * sizeof(float);
	const uint64_t bytes = n_parts * (uint64_t)self->row_bytes;
	int r = coppice_arena_new(d->coppice, COPPICE_HOST, bytes + ARENA_SLACK_BYTES, &d->arena);
	if (r < 0)
		return daemon_fail(d, r, "no memory shared with the daemon", fault);
	self->out = coppice_arena_base(d->arena);
	self->parts = calloc(n_parts, sizeof(*self->parts));
	self->top = calloc((size_t)n_parts * COPPICE_TOP_MAX, sizeof(*self->top));
	return self->parts && self->top ? 0 : fault_set(fault, -ENOMEM, "out of memory");
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void fill_parts(struct forward_daemon *self, const struct forward_part *parts,
		       uint32_t n_parts)
{
	for (uint32_t i = 0; i < n_parts; i++)
		self->parts[i] = (struct coppice_decode_seq){.seq = parts[i].seq->handle,
							     .ids = parts[i].ids,
							     .n_new = parts[i].n_rows,
							     .first_wanted = parts[i].n_rows - 1};
}

static int run(struct forward *base, const struct forward_part *parts, uint32_t n_parts,
	       bool wanted, struct fault *fault)
{
	struct forward_daemon *self = daemon_of(base);
	const enum coppice_want want = self->n_top ? COPPICE_WANT_TOP : COPPICE_WANT_LOGITS;
	const struct coppice_decode decode = {
		.size = sizeof(decode),
		.seqs = self->parts,
		.n_seqs = n_parts,
		.want = wanted ? want : 0,
		.n_top = wanted ? self->n_top : 0,
		.out = self->out,
	};
	uint64_t ticket;
	if (daemon_stopped(&self->daemon))
		return daemon_interrupted(fault);
	fill_parts(self, parts, n_parts);
	if (self->sleep_us)
		usleep(self->sleep_us);
	int r = coppice_decode(self->daemon.lane, &decode, &ticket);
	if (r < 0)
		return daemon_fail(&self->daemon, r, "tokens were not taken", fault);
	return daemon_wait(&self->daemon, ticket, "a pass failed", fault);
}

static struct sampler_scores scores(const struct forward *base, uint32_t part)
{
	const struct forward_daemon *self = (const struct forward_daemon *)base;
	const struct coppice_row *row = (const void *)(self->out + part * self->row_bytes);
	struct sampler_entry *top = self->top + (size_t)part * COPPICE_TOP_MAX;
	if (!self->n_top)
		return (struct sampler_scores){.logits = (const float *)(row + 1)};
	for (uint32_t i = 0; i < row->n_top; i++)
		top[i] = (struct sampler_entry){row->top[i].logit, row->top[i].id};
	return (struct sampler_scores){.top = top, .n_top = row->n_top, .log_sum = row->lse};
}

static int weights_read(struct forward *base, uint64_t *ret, struct fault *fault)
{
	struct forward_daemon *self = daemon_of(base);
	struct coppice_stats stats = {.size = sizeof(stats)};
	int r = coppice_stats(self->daemon.coppice, &stats);
	if (r < 0)
		return daemon_fail(&self->daemon, r, "no figures of the session", fault);
	*ret = stats.weights_bytes_read;
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void describe(struct forward_daemon *self)
{
	const struct coppice_program_info *info = &self->program->info;
	self->base = (struct forward){
		.layers = "daemon",
		.daemon = &self->daemon,
		.kv_dtype = info->dtype,
		.kv_bytes_per_token = 2ull * info->n_kv_heads * info->head_dim * info->n_layers *
				      dtype_bytes(info->dtype),
		.run = run,
		.scores = scores,
		.weights_read = weights_read,
	};
}

int forward_daemon_connect(struct forward_daemon *self,
			   const struct forward_daemon_options *options, struct fault *fault)
{
	describe(self);
	self->n_top = options->n_top;
	self->sleep_us = options->sleep_us;
	return daemon_open(&self->daemon, &options->address, fault);
}

int forward_daemon_load(struct forward_daemon *self, bool progress, struct fault *fault)
{
	const int r = hand_over(self, fault);
	return r < 0 ? r : await_weights(self, progress, fault);
}

int forward_daemon_make(struct forward_daemon *self, uint32_t n_parts, struct fault *fault)
{
	const int r = make_program(self, fault);
	return r < 0 ? r : make_room(self, n_parts, fault);
}

int forward_daemon_open(struct forward_daemon *self, const struct forward_daemon_options *options,
			struct fault *fault)
{
	int r = forward_daemon_connect(self, options, fault);
	if (r == 0)
		r = forward_daemon_load(self, options->progress, fault);
	if (r == 0)
		r = forward_daemon_make(self, options->n_parts, fault);
	return r;
}

void forward_daemon_done(struct forward_daemon *self)
{
	coppice_weights_close(self->weights);
	daemon_close(&self->daemon);
	coppice_hf_free(self->program);
	weight_files_done(&self->files);
	free(self->parts);
	free(self->top);
	*self = (struct forward_daemon){0};
}
