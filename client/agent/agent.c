/* agent.c - see agent.h. */
#include "agent.h"

#include "report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void tell(struct agent *agent, const char *what, uint32_t stream, uint32_t done, uint32_t of)
{
	const uint64_t now = now_ns();
	if (!agent->options->progress || (now - agent->told_ns < 1000000000u && done < of))
		return;
	agent->told_ns = now;
	fprintf(stderr, "%s %u: %u of %u tokens\n", what, stream, done, of);
}

/* ---- set-up --------------------------------------------------------------------------------- */

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

static void tear_down(struct agent *agent)
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

/* ---- prefill -------------------------------------------------------------------------------- */

/* Tokens [begin, begin + n) of the prompt; logits of the last one once the prompt is complete. */
static int prefill_chunk(struct agent *agent, struct stream *s, uint32_t begin, uint32_t n,
			 struct fault *fault)
{
	int r = daemon_seq_extend(&agent->daemon, &s->seq, s->prompt + begin, n, fault);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		agent->positions[i] = begin + i;
	agent->parts[0] = (struct attention_part){.seq = &s->seq, .n_rows = n};
	agent->wanted[0] = n - 1;
	const struct llama_batch batch = {
		.n_rows = n,
		.ids = s->prompt + begin,
		.positions = agent->positions,
		.parts = agent->parts,
		.n_parts = 1,
		.wanted = agent->wanted,
		.n_wanted = begin + n == s->n_prompt,
	};
	return llama_forward(&agent->pass, &batch, agent->logits, fault);
}

static int open_stream(struct agent *agent, struct stream *s, struct fault *fault)
{
	struct coppice_match match;
	const uint64_t began_ns = now_ns();
	int r = daemon_seq_open(&agent->daemon, s->prompt, s->n_prompt, &s->seq, &match, fault);
	if (r < 0)
		return r;
	s->n_cached = match.cached;
	r = daemon_seq_settle(&agent->daemon, &s->seq, &match, fault);
	s->n_waited = match.cached - s->n_cached;
	agent->wait_ns += now_ns() - began_ns;
	return r;
}

static int prefill(struct agent *agent, uint32_t index, struct fault *fault)
{
	struct stream *s = &agent->streams[index];
	int r = open_stream(agent, s, fault);
	const uint64_t began_ns = now_ns();
	uint32_t at = s->n_cached + s->n_waited;
	while (r == 0 && at < s->n_prompt) {
		const uint32_t left = s->n_prompt - at, chunk = agent->options->chunk;
		const uint32_t n = left < chunk ? left : chunk;
		r = prefill_chunk(agent, s, at, n, fault);
		at += n;
		s->n_computed += n;
		tell(agent, "prefill", index, at, s->n_prompt);
	}
	if (r == 0)
		report_choice(agent, index, stream_continue(s, agent->logits));
	agent->prefill_ns += now_ns() - began_ns;
	return r;
}

/* ---- decode --------------------------------------------------------------------------------- */

/* One more token for every stream, in one pass. */
static int decode_step(struct agent *agent, struct fault *fault)
{
	for (uint32_t i = 0; i < agent->n_streams; i++) {
		struct stream *s = &agent->streams[i];
		agent->ids[i] = s->choices[s->n_choices - 1].id;
		agent->positions[i] = s->n_prompt + s->n_choices - 1;
		agent->parts[i] = (struct attention_part){.seq = &s->seq, .n_rows = 1};
		agent->wanted[i] = i;
		int r = daemon_seq_extend(&agent->daemon, &s->seq, &agent->ids[i], 1, fault);
		if (r < 0)
			return r;
	}
	const struct llama_batch batch = {
		.n_rows = agent->n_streams,
		.ids = agent->ids,
		.positions = agent->positions,
		.parts = agent->parts,
		.n_parts = agent->n_streams,
		.wanted = agent->wanted,
		.n_wanted = agent->n_streams,
	};
	return llama_forward(&agent->pass, &batch, agent->logits, fault);
}

static int decode(struct agent *agent, struct fault *fault)
{
	const uint64_t began_ns = now_ns();
	const uint32_t n_vocab = agent->model.config.n_vocab, n_tokens = agent->options->n_tokens;
	int r = 0;
	for (uint32_t n = 1; n < n_tokens && r == 0; n++) {
		r = decode_step(agent, fault);
		for (uint32_t i = 0; r == 0 && i < agent->n_streams; i++)
			report_choice(agent, i,
				      stream_continue(&agent->streams[i],
						      agent->logits + (size_t)i * n_vocab));
		tell(agent, "decode", 0, n + 1, n_tokens);
	}
	agent->decode_ns = now_ns() - began_ns;
	return r;
}

/* ---- the run -------------------------------------------------------------------------------- */

/* Prompts one after the other: what the first computes, the next find. */
static int work(struct agent *agent, struct fault *fault)
{
	const struct timespec delay = {
		.tv_sec = agent->options->start_delay_ms / 1000,
		.tv_nsec = agent->options->start_delay_ms % 1000 * 1000000l,
	};
	int r = 0;
	if (nanosleep(&delay, NULL) < 0)
		return fault_set(fault, -EINTR, "interrupted");
	for (uint32_t i = 0; i < agent->n_streams && r == 0; i++)
		r = prefill(agent, i, fault);
	if (r == 0)
		r = decode(agent, fault);
	return r;
}

int agent_run(const struct options *options, const volatile sig_atomic_t *stop, struct fault *fault)
{
	char folder[PATH_MAX];
	struct agent agent = {.options = options, .stop = stop, .name = options->model_name};
	if (!agent.name) {
		if (!realpath(options->model_dir, folder))
			return fault_set(fault, -errno, "%s: %s", options->model_dir,
					 strerror(errno));
		agent.name = basename(folder);
	}
	int r = set_up(&agent, fault);
	if (r == 0)
		r = work(&agent, fault);
	if (r == 0)
		r = report_end(&agent, fault);
	tear_down(&agent);
	return r;
}
