/*
 * agent.c - what a run needs, made in the order in which it can fail most cheaply: the model's
 * files, the prompts, the daemon, memory.
 */
#include "agent.h"

#include "llama_load.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int make_streams(struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	const uint32_t n = o->n_prompts * o->n_seqs;
	const struct llama_config *c = &agent->model.config;
	agent->streams = calloc(n, sizeof(*agent->streams));
	if (!agent->streams)
		return fault_set(fault, -ENOMEM, "out of memory");
	agent->n_streams = n;
	for (uint32_t i = 0; i < n; i++) {
		struct stream *s = &agent->streams[i];
		int r = stream_init(s, o, i, c->n_vocab, fault);
		if (r < 0)
			return r;
		if (s->n_prompt + (uint64_t)o->n_tokens > c->max_positions)
			return fault_set(
				fault, -E2BIG,
				"a prompt of %u tokens and %u more do not fit the model's %u "
				"positions",
				s->n_prompt, o->n_tokens, c->max_positions);
	}
	return 0;
}

static int connect_daemon(struct agent *agent, uint32_t max_rows, struct fault *fault)
{
	const struct options *o = agent->options;
	const struct llama_config *c = &agent->model.config;
	const struct coppice_model_info info = {
		.size = sizeof(info),
		.name = agent->name,
		.n_layers = c->n_layers,
		.n_q_heads = c->n_q_heads,
		.n_kv_heads = c->n_kv_heads,
		.head_dim = c->head_dim,
		.dtype = o->has_kv_dtype ? o->kv_dtype : agent->model.layers[0].k.dtype,
		.weights_hash = agent->model.hash,
	};
	struct daemon_options options = {
		.socket_path = o->socket_path,
		.model = info,
		.max_rows = max_rows,
		.layer_sleep_us = o->layer_sleep_us,
		.stop = agent->stop,
	};
	while (o->private_kv && !options.salt)
		if (getrandom(&options.salt, sizeof(options.salt), 0) != sizeof(options.salt))
			return fault_set(fault, -EIO, "no random salt: %s", strerror(errno));
	return daemon_attention_open(&agent->daemon, &options, fault);
}

static int make_buffers(struct agent *agent, uint32_t max_rows, struct fault *fault)
{
	agent->ids = calloc(max_rows, sizeof(*agent->ids));
	agent->positions = calloc(max_rows, sizeof(*agent->positions));
	agent->wanted = calloc(max_rows, sizeof(*agent->wanted));
	agent->parts = calloc(agent->n_streams, sizeof(*agent->parts));
	agent->logits = calloc((size_t)agent->n_streams * agent->model.config.n_vocab,
			       sizeof(*agent->logits));
	if (!agent->ids || !agent->positions || !agent->wanted || !agent->parts || !agent->logits)
		return fault_set(fault, -ENOMEM, "out of memory");
	return llama_pass_init(&agent->pass, &agent->model, &agent->daemon.base, fault);
}

static int set_up(struct agent *agent, struct fault *fault)
{
	const uint32_t chunk = agent->options->chunk;
	int r = llama_load(agent->options->model_dir, &agent->model, fault);
	if (r == 0)
		r = make_streams(agent, fault);
	if (r < 0)
		return r;
	const uint32_t max_rows = chunk > agent->n_streams ? chunk : agent->n_streams;
	r = connect_daemon(agent, max_rows, fault);
	if (r == 0)
		r = make_buffers(agent, max_rows, fault);
	return r;
}

void agent_done(struct agent *agent)
{
	for (uint32_t i = 0; i < agent->n_streams; i++)
		stream_done(&agent->streams[i]);
	llama_pass_done(&agent->pass);
	daemon_attention_close(&agent->daemon);
	llama_done(&agent->model);
	free(agent->streams);
	free(agent->ids);
	free(agent->positions);
	free(agent->wanted);
	free(agent->parts);
	free(agent->logits);
}

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
