/*
 * agent.c - what a run needs, made in the order in which it can fail most cheaply: the model's
 * files, the prompts, the daemon, memory.
 *
 * Where the daemon holds weights and runs programs, it computes the tokens. Where it does not, or
 * was not asked to, this process does: it is only then that weights are mapped.
 */
#include "agent.h"
#include "proto/arith.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int make_streams(struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	const uint32_t n = o->n_prompts * o->n_seqs;
	agent->streams = calloc(n, sizeof(*agent->streams));
	agent->parts = calloc(n, sizeof(*agent->parts));
	if (!agent->streams || !agent->parts)
		return fault_set(fault, -ENOMEM, "out of memory");
	agent->n_streams = n;
	agent->limits.n_parts = n;
	agent->limits.n_rows = max_u32(o->chunk, n);
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = &agent->streams[i];
		int r = stream_init(s, o, i, agent->n_vocab, fault);
		if (r < 0)
			return r;
		if (s->n_prompt + (uint64_t)o->n_tokens > agent->max_positions)
			return fault_set(
				fault, -E2BIG,
				"a prompt of %u tokens and %u more do not fit the model's %u "
				"positions",
				s->n_prompt, o->n_tokens, agent->max_positions);
	}
	return 0;
}

static int set_address(struct agent *agent, struct fault *fault)
{
	struct daemon_address *p = &agent->address;
	*p = (struct daemon_address){.socket_path = agent->options->socket_path,
				     .stop = agent->stop};
	while (agent->options->private_kv && !p->salt)
		if (getrandom(&p->salt, sizeof(p->salt), 0) != sizeof(p->salt))
			return fault_set(fault, -EIO, "no random salt: %s", strerror(errno));
	return 0;
}

/* ---- layers by the daemon ------------------------------------------------------------------- */

static int read_for_daemon(struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	int r = forward_daemon_read(&agent->daemon, o->model_dir,
				    o->has_kv_dtype ? &o->kv_dtype : NULL, fault);
	if (r < 0)
		return r;
	agent->n_vocab = agent->daemon.program->info.n_vocab;
	agent->max_positions = agent->daemon.program->info.max_positions;
	return 0;
}

static int open_by_daemon(struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	const struct forward_daemon_options options = {
		.address = agent->address,
		.n_parts = agent->n_streams,
		.n_top = sampler_n_top(&o->sampling, COPPICE_TOP_MAX),
		.sleep_us = o->layer_sleep_us,
		.progress = o->progress,
	};
	agent->forward = &agent->daemon.base;
	return forward_daemon_open(&agent->daemon, &options, fault);
}

/* ---- layers by this process ----------------------------------------------------------------- */

static int load_self(struct agent *agent, struct fault *fault)
{
	int r = forward_self_load(&agent->self, agent->options->model_dir, fault);
	if (r < 0)
		return r;
	agent->n_vocab = agent->self.model.config.n_vocab;
	agent->max_positions = agent->self.model.config.max_positions;
	return 0;
}

static int open_self(struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	const struct daemon_options options = {
		.address = agent->address,
		.model = {.size = sizeof(options.model),
			  .name = agent->name,
			  .dtype = o->has_kv_dtype ? o->kv_dtype
						   : agent->self.model.layers[0].k.dtype},
		.layer_sleep_us = o->layer_sleep_us,
	};
	agent->forward = &agent->self.base;
	return forward_self_open(&agent->self, &options, &agent->limits, fault);
}

/* The daemon said why it does not compute the layers. */
static int fall_back(struct agent *agent, struct fault *fault)
{
	fprintf(stderr, "coppice-agent: %s This process computes the layers itself.\n",
		fault->text);
	forward_daemon_done(&agent->daemon);
	int r = load_self(agent, fault);
	return r < 0 ? r : open_self(agent, fault);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int set_name(struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	if (o->model_name) {
		agent->name = o->model_name;
		return 0;
	}
	if (!realpath(o->model_dir, agent->folder))
		return fault_set(fault, -errno, "%s: %s", o->model_dir, strerror(errno));
	agent->name = basename(agent->folder);
	return 0;
}

static int set_up(struct agent *agent, struct fault *fault)
{
	const bool by_self = agent->options->layers == OPTIONS_LAYERS_SELF;
	int r = by_self ? load_self(agent, fault) : read_for_daemon(agent, fault);
	if (r == 0)
		r = make_streams(agent, fault);
	if (r == 0)
		r = set_address(agent, fault);
	if (r < 0)
		return r;

	r = by_self ? open_self(agent, fault) : open_by_daemon(agent, fault);
	if (r == -EOPNOTSUPP && agent->options->layers == OPTIONS_LAYERS_AUTO)
		r = fall_back(agent, fault);
	return r;
}

void agent_done(struct agent *agent)
{
	for (uint32_t i = 0; i < agent->n_streams; i++)
		stream_done(&agent->streams[i]);
	forward_self_done(&agent->self);
	forward_daemon_done(&agent->daemon);
	free(agent->streams);
	free(agent->parts);
}

int agent_init(struct agent *agent, const struct options *options,
	       const volatile sig_atomic_t *stop, struct fault *fault)
{
	*agent = (struct agent){.options = options, .stop = stop};
	int r = set_name(agent, fault);
	if (r == 0)
		r = set_up(agent, fault);
	if (r < 0)
		agent_done(agent);
	return r;
}
