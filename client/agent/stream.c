/*
 * stream.c - a sequence's prompt is read and checked whole before the daemon hears of it.
 */
#include "stream.h"

#include "client/model/file.h"
#include "ids.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_bytes(const struct options_prompt *prompt, char **ret, size_t *ret_bytes,
		      struct fault *fault)
{
	if (prompt->kind == OPTIONS_FILE)
		return file_read(prompt->arg, ret, ret_bytes, fault);
	*ret = strdup(prompt->arg);
	*ret_bytes = strlen(prompt->arg);
	return *ret ? 0 : fault_set(fault, -ENOMEM, "out of memory");
}

static void add_bytes(struct stream *stream, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		stream->prompt[stream->n_prompt++] = (unsigned char)bytes[i];
}

static int read_text(struct stream *stream, const struct options *options,
		     const struct options_prompt *prompt, struct fault *fault)
{
	char *document = NULL, *text = NULL; /* owned */
	size_t n_document = 0, n_text = 0;
	int r = 0;
	stream->is_bytes = true;
	if (options->document)
		r = file_read(options->document, &document, &n_document, fault);
	if (r == 0)
		r = read_bytes(prompt, &text, &n_text, fault);
	if (r == 0) {
		stream->prompt = calloc(n_document + n_text + 1, sizeof(*stream->prompt));
		if (!stream->prompt)
			r = fault_set(fault, -ENOMEM, "out of memory");
	}
	if (r == 0) {
		add_bytes(stream, document, n_document);
		add_bytes(stream, text, n_text);
	}
	free(document);
	free(text);
	return r;
}

static int check_prompt(const struct stream *stream, uint32_t index, uint32_t n_vocab,
			struct fault *fault)
{
	if (!stream->n_prompt)
		return fault_set(fault, -EINVAL, "prompt %u is empty", index);
	for (uint32_t i = 0; i < stream->n_prompt; i++)
		if (stream->prompt[i] >= n_vocab)
			return fault_set(fault, -EINVAL,
					 "prompt %u: token %u is %u, the model's ids end at %u",
					 index, i, stream->prompt[i], n_vocab - 1);
	return 0;
}

int stream_init(struct stream *stream, const struct options *options, uint32_t index,
		uint32_t n_vocab, struct fault *fault)
{
	const uint32_t at = index / options->n_seqs;
	const struct options_prompt *prompt = &options->prompts[at];
	struct sampler_config sampling = options->sampling;
	sampling.seed += index % options->n_seqs;
	*stream = (struct stream){.max_choices = options->n_tokens};
	int r;
	if (prompt->kind == OPTIONS_IDS)
		r = ids_read(prompt->arg, &stream->prompt, &stream->n_prompt, fault);
	else
		r = read_text(stream, options, prompt, fault);
	if (r == 0)
		r = check_prompt(stream, at, n_vocab, fault);
	if (r < 0)
		return r;
	stream->choices = calloc(options->n_tokens, sizeof(*stream->choices));
	if (!stream->choices || sampler_init(&stream->sampler, &sampling, n_vocab))
		return fault_set(fault, -ENOMEM, "out of memory");
	return 0;
}

void stream_done(struct stream *stream)
{
	daemon_seq_close(&stream->seq);
	sampler_done(&stream->sampler);
	free(stream->choices);
	free(stream->prompt);
	*stream = (struct stream){0};
}

const struct sampler_choice *stream_continue(struct stream *stream,
					     const struct sampler_scores *scores)
{
	assert(stream->n_choices < stream->max_choices);
	struct sampler_choice *choice = &stream->choices[stream->n_choices++];
	*choice = sampler_pick(&stream->sampler, scores);
	return choice;
}

double stream_logprob_sum(const struct stream *stream)
{
	double sum = 0;
	for (uint32_t i = 0; i < stream->n_choices; i++)
		sum += stream->choices[i].logprob;
	return sum;
}
