/*
 * run.c - prompts one after the other, then all sequences together, a token of each in every pass.
 *
 * What one prompt computes the next ones find, so prefill has no order of its own. Of a prompt the
 * tokens that the daemon lacks are computed in chunks, and the logits of the last one are those of
 * the first token that is generated.
 */
#include "run.h"

#include "agent.h"
#include "report.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static void tell(struct agent *agent, const char *what, uint32_t stream, uint32_t done, uint32_t of)
{
	const uint64_t now = clock_now_ns();
	if (!agent->options->progress || (now - agent->told_ns < 1000000000u && done < of))
		return;
	agent->told_ns = now;
	fprintf(stderr, "%s %u: %u of %u tokens\n", what, stream, done, of);
}

/* ---- prefill -------------------------------------------------------------------------------- */

/* What is known of part i of the newest pass, and the token that comes of it. */
static void go_on(struct agent *agent, uint32_t stream, uint32_t part)
{
	const struct sampler_scores scores = agent->forward->scores(agent->forward, part);
	report_choice(agent, stream, stream_continue(&agent->streams[stream], &scores));
}

static int open_stream(struct agent *agent, struct stream *s, struct fault *fault)
{
	const uint64_t began_ns = clock_now_ns();
	int r = daemon_seq_open(agent->forward->daemon, s->prompt, s->n_prompt, &s->seq, fault);
	if (r < 0)
		return r;
	s->n_cached = s->seq.match.cached;
	r = daemon_seq_wait(agent->forward->daemon, &s->seq, fault);
	s->n_waited = s->seq.match.cached - s->n_cached;
	agent->wait_ns += clock_now_ns() - began_ns;
	return r;
}

static int prefill(struct agent *agent, uint32_t index, struct fault *fault)
{
	struct stream *s = &agent->streams[index];
	int r = open_stream(agent, s, fault);
	const uint64_t began_ns = clock_now_ns();
	uint32_t at = s->n_cached + s->n_waited;
	while (r == 0 && at < s->n_prompt) {
		const uint32_t left = s->n_prompt - at, chunk = agent->options->chunk;
		const uint32_t n = min_u32(left, chunk);
		const struct forward_part part = {&s->seq, s->prompt + at, at, n};
		r = agent->forward->run(agent->forward, &part, 1, n == left, fault);
		at += n;
		s->n_computed += n;
		tell(agent, "prefill", index, at, s->n_prompt);
	}
	if (r == 0)
		go_on(agent, index, 0);
	agent->prefill_ns += clock_now_ns() - began_ns;
	return r;
}

/* ---- decode --------------------------------------------------------------------------------- */

/* One more token for every stream, in one pass. */
static int decode_step(struct agent *agent, struct fault *fault)
{
	for (uint32_t i = 0; i < agent->n_streams; i++) {
		struct stream *s = &agent->streams[i];
		agent->parts[i] = (struct forward_part){
			.seq = &s->seq,
			.ids = &s->choices[s->n_choices - 1].id,
			.position = s->n_prompt + s->n_choices - 1,
			.n_rows = 1,
		};
	}
	return agent->forward->run(agent->forward, agent->parts, agent->n_streams, true, fault);
}

static int decode_all(struct agent *agent, struct fault *fault)
{
	const uint64_t began_ns = clock_now_ns();
	const uint32_t n_tokens = agent->options->n_tokens;
	int r = 0;
	for (uint32_t n = 1; n < n_tokens && r == 0; n++) {
		r = decode_step(agent, fault);
		for (uint32_t i = 0; r == 0 && i < agent->n_streams; i++)
			go_on(agent, i, i);
		tell(agent, "decode", 0, n + 1, n_tokens);
	}
	agent->decode_ns = clock_now_ns() - began_ns;
	return r;
}

static int decode(struct agent *agent, struct fault *fault)
{
	struct forward *f = agent->forward;
	uint64_t before, after;
	int r = f->weights_read(f, &before, fault);
	if (r == 0)
		r = decode_all(agent, fault);
	if (r == 0)
		r = f->weights_read(f, &after, fault);
	if (r == 0)
		agent->weights_read_bytes = after - before;
	return r;
}

/* ---- the run -------------------------------------------------------------------------------- */

/* Prompts one after the other: what the first computes, the next find. */
static int work(struct agent *agent, struct fault *fault)
{
	const struct timespec delay = clock_timespec(agent->options->start_delay_ms * NS_PER_MS);
	int r = 0;

	if (nanosleep(&delay, NULL) < 0)
		return fault_set(fault, -EINTR, "interrupted");
	for (uint32_t i = 0; i < agent->n_streams && r == 0; i++)
		r = prefill(agent, i, fault);
	if (r == 0)
		r = decode(agent, fault);
	return r;
}

int run_agent(const struct options *options, const volatile sig_atomic_t *stop, struct fault *fault)
{
	struct agent agent;
	int r = agent_init(&agent, options, stop, fault);
	if (r < 0)
		return r;
	r = work(&agent, fault);
	if (r == 0)
		r = report_end(&agent, fault);
	agent_done(&agent);
	return r;
}
