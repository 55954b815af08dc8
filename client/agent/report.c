/*
 * report.c - text for people as it comes, and one JSON object for programs at the end.
 *
 * A token of a byte model is written as that byte, so that text stands as the model wrote it; in
 * the JSON object, which must be UTF-8, ids are the exact record.
 */
#include "report.h"

#include "proto/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_token(FILE *to, const struct stream *s, uint32_t id)
{
	if (s->is_bytes && id < 256)
		fputc((int)id, to);
	else
		fprintf(to, "%" PRIu32 " ", id);
}

void report_choice(const struct agent *agent, uint32_t stream, const struct sampler_choice *choice)
{
	if (agent->options->logprobs)
		fprintf(stderr,
			"sequence %u token %u: id %u logprob %.6f, runner-up %u logprob %.6f\n",
			stream, agent->streams[stream].n_choices - 1, choice->id, choice->logprob,
			choice->other_id, choice->other_logprob);
	if (agent->n_streams > 1 || agent->options->json)
		return;
	print_token(stdout, &agent->streams[stream], choice->id);
	fflush(stdout);
}

static void print_texts(const struct agent *agent)
{
	for (uint32_t i = 0; agent->n_streams > 1 && i < agent->n_streams; i++) {
		const struct stream *s = &agent->streams[i];
		printf("---- sequence %u\n", i);
		for (uint32_t t = 0; t < s->n_choices; t++)
			print_token(stdout, s, s->choices[t].id);
		putchar('\n');
	}
	if (agent->n_streams == 1)
		putchar('\n');
}

/* ---- files ---------------------------------------------------------------------------------- */

static int close_file(FILE *file, const char *path, struct fault *fault)
{
	const bool bad = ferror(file);
	if (fclose(file) || bad)
		return fault_set(fault, -EIO, "%s: cannot be written", path);
	return 0;
}

static int write_ids(const struct agent *agent, const char *path, struct fault *fault)
{
	FILE *file = fopen(path, "we");
	if (!file)
		return fault_set(fault, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	for (uint32_t i = 0; i < agent->n_streams; i++) {
		const struct stream *s = &agent->streams[i];
		for (uint32_t t = 0; t < s->n_choices; t++)
			fprintf(file, "%s%" PRIu32, t ? " " : "", s->choices[t].id);
		fputc('\n', file);
	}
	return close_file(file, path, fault);
}

/* ---- the JSON object ------------------------------------------------------------------------ */

/* The length of the UTF-8 sequence at text (as jansson checks it), 0 where there is none. */
static size_t utf8_length(const char *text, size_t left)
{
	for (size_t n = 1; n <= 4 && n <= left; n++) {
		json_t *probe = json_stringn(text, n);
		if (probe) {
			json_decref(probe);
			return n;
		}
	}
	return 0;
}

/* Bytes that are no UTF-8 become U+FFFD: ids are the exact record. */
static json_t *text_json(const struct stream *s)
{
	CLEANUP_FREE char *bytes = calloc(s->n_choices + 1, 1);
	CLEANUP_FREE char *clean = calloc(s->n_choices + 1, 3);
	size_t n = 0;

	if (!bytes || !clean)
		return NULL;
	for (uint32_t i = 0; i < s->n_choices; i++)
		bytes[i] = (char)s->choices[i].id;
	for (size_t i = 0; i < s->n_choices;) {
		const size_t length = utf8_length(bytes + i, s->n_choices - i);
		memcpy(clean + n, length ? bytes + i : "\xef\xbf\xbd", length ? length : 3);
		n += length ? length : 3;
		i += length ? length : 1;
	}
	return json_stringn(clean, n);
}

static json_t *stream_json(const struct agent *agent, const struct stream *s)
{
	json_t *ids = json_array(), *logprobs = json_array();
	for (uint32_t i = 0; i < s->n_choices; i++) {
		const struct sampler_choice *c = &s->choices[i];
		json_array_append_new(ids, json_integer(c->id));
		json_array_append_new(logprobs, json_pack("[f,i,f]", c->logprob, (int)c->other_id,
							  c->other_logprob));
	}
	json_t *object =
		json_pack("{s:I,s:I,s:I,s:I,s:I,s:f,s:o}", "prompt_tokens", (json_int_t)s->n_prompt,
			  "cached", (json_int_t)s->n_cached, "waited", (json_int_t)s->n_waited,
			  "prefilled", (json_int_t)s->n_computed, "seed",
			  (json_int_t)s->sampler.config.seed, "logprob_sum", stream_logprob_sum(s),
			  "ids", ids);
	if (s->is_bytes && agent->n_vocab <= 256)
		json_object_set_new(object, "text", text_json(s));
	if (agent->options->logprobs)
		json_object_set(object, "logprobs", logprobs);
	json_decref(logprobs);
	return object;
}

static double per_second(double n, uint64_t ns)
{
	return ns ? n * 1e9 / ns : 0;
}

static void add_totals(json_t *object, const struct agent *agent)
{
	uint64_t cached = 0, waited = 0, computed = 0, generated = 0;
	double logprob_sum = 0;
	for (uint32_t i = 0; i < agent->n_streams; i++) {
		const struct stream *s = &agent->streams[i];
		cached += s->n_cached;
		waited += s->n_waited;
		computed += s->n_computed;
		generated += s->n_choices;
		logprob_sum += stream_logprob_sum(s);
	}
	json_t *totals =
		json_pack("{s:I,s:I,s:I,s:I,s:f,s:f,s:f}", "tokens_cached", (json_int_t)cached,
			  "tokens_waited", (json_int_t)waited, "tokens_prefilled",
			  (json_int_t)computed, "tokens_generated", (json_int_t)generated,
			  "logprob_sum", logprob_sum, "prefill_tokens_per_s",
			  per_second(computed, agent->prefill_ns), "decode_tokens_per_s",
			  per_second(generated - agent->n_streams, agent->decode_ns));
	json_object_update(object, totals);
	json_decref(totals);
}

/* What weights cost: all of it where this process reads them, a part where a pass has others'
 * tokens too. */
static void add_weights(json_t *object, const struct agent *agent)
{
	const struct forward *f = agent->forward;
	const double n_decoded = (double)agent->n_streams * (agent->options->n_tokens - 1);
	json_t *weights =
		json_pack("{s:s,s:I,s:b,s:I,s:f}", "layers", f->layers, "weights_bytes",
			  (json_int_t)f->weights_bytes, "weights_held_here", (int)f->holds_weights,
			  "weights_bytes_read", (json_int_t)agent->weights_read_bytes,
			  "weights_bytes_read_per_token",
			  n_decoded > 0 ? (double)agent->weights_read_bytes / n_decoded : 0);
	if (f->isa)
		json_object_set_new(object, "isa", json_string(f->isa));
	json_object_update(object, weights);
	json_decref(weights);
}

static json_t *report_json(const struct agent *agent)
{
	static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
	const struct forward *f = agent->forward;
	json_t *sequences = json_array();
	for (uint32_t i = 0; i < agent->n_streams; i++)
		json_array_append_new(sequences, stream_json(agent, &agent->streams[i]));
	json_t *object = json_pack("{s:s,s:s,s:I,s:f,s:f,s:f,s:o}", "model", agent->name,
				   "kv_dtype", dtypes[f->kv_dtype], "kv_bytes_per_token",
				   (json_int_t)f->kv_bytes_per_token, "wait_s",
				   agent->wait_ns * 1e-9, "prefill_s", agent->prefill_ns * 1e-9,
				   "decode_s", agent->decode_ns * 1e-9, "sequences", sequences);
	add_weights(object, agent);
	add_totals(object, agent);
	return object;
}

static int write_report(const struct agent *agent, struct fault *fault)
{
	const char *path = agent->options->report_path;
	json_t *object = report_json(agent);
	int r = 0;
	if (path && json_dump_file(object, path, JSON_REAL_PRECISION(9)))
		r = fault_set(fault, -EIO, "%s: cannot be written: %s", path, strerror(errno));
	if (agent->options->json) {
		json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
		putchar('\n');
	}
	json_decref(object);
	return r;
}

int report_end(const struct agent *agent, struct fault *fault)
{
	const struct options *o = agent->options;
	int r = 0;
	if (!o->json)
		print_texts(agent);
	if (o->ids_path)
		r = write_ids(agent, o->ids_path, fault);
	if (r == 0 && (o->json || o->report_path))
		r = write_report(agent, fault);
	if (fflush(stdout) || ferror(stdout))
		r = r < 0 ? r : fault_set(fault, -EIO, "stdout: cannot be written");
	return r;
}
