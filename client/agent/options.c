/* options.c - see options.h. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum option_key {
	OPT_PROMPT_FILE = 256,
	OPT_IDS,
	OPT_N_SEQS,
	OPT_CHUNK,
	OPT_KV_DTYPE,
	OPT_TEMPERATURE,
	OPT_TOP_K,
	OPT_TOP_P,
	OPT_SEED,
	OPT_PRIVATE,
	OPT_JSON,
	OPT_REPORT,
	OPT_IDS_OUT,
	OPT_PROGRESS,
	OPT_LOGPROBS,
	OPT_LAYER_SLEEP,
	OPT_START_DELAY,
	OPT_NAME,
};

static const struct argp_option argp_options[] = {
	{.doc = "What runs"},
	{"model", 'm', "DIR", 0, "Folder with config.json and model.safetensors (required)"},
	{"name", OPT_NAME, "NAME", 0, "The model's name at the daemon (default: the folder's)"},
	{"socket", 's', "PATH", 0,
	 "The daemon's socket (default: $COPPICE_SOCKET, else the system's)"},
	{"kv-dtype", OPT_KV_DTYPE, "TYPE", 0,
	 "fp32, fp16 or bf16: of Q, K, V and O at the daemon (default: the weights')"},
	{"private", OPT_PRIVATE, NULL, 0, "Share KV with nobody (a random salt)"},
	{.doc = "What goes in"},
	{"document", 'd', "FILE", 0, "Bytes that go before every prompt"},
	{"prompt", 'p', "TEXT", 0, "A prompt; a token is a byte. Several: several sequences"},
	{"prompt-file", OPT_PROMPT_FILE, "FILE", 0, "The same from a file"},
	{"ids", OPT_IDS, "FILE", 0,
	 "A prompt as token ids: decimal numbers, or 32-bit little-endian words"},
	{"n-seqs", OPT_N_SEQS, "N", 0, "Sequences for each prompt, with seeds SEED, SEED + 1, ..."},
	{.doc = "How it goes on"},
	{"tokens", 'n', "N", 0, "Tokens to generate for each sequence (default 64)"},
	{"temperature", OPT_TEMPERATURE, "T", 0, "0 (the default): always the likeliest token"},
	{"top-k", OPT_TOP_K, "K", 0, "Draw from the K likeliest (default 0: from all)"},
	{"top-p", OPT_TOP_P, "P", 0, "Draw from the likeliest that together reach P (default 1)"},
	{"seed", OPT_SEED, "SEED", 0, "Of the draws (default 0)"},
	{"chunk", OPT_CHUNK, "N", 0, "Tokens of a prompt computed at a time (default 256)"},
	{.doc = "What comes out"},
	{"json", OPT_JSON, NULL, 0, "Print one JSON object at the end, and nothing else"},
	{"report", OPT_REPORT, "FILE", 0, "Write that object to FILE"},
	{"ids-out", OPT_IDS_OUT, "FILE", 0,
	 "Write the generated ids to FILE, a line for each sequence"},
	{"logprobs", OPT_LOGPROBS, NULL, 0,
	 "Print each token's log probability and the runner-up's on stderr"},
	{"progress", OPT_PROGRESS, NULL, 0, "Say on stderr now and then how far it is"},
	{.doc = "For tests"},
	{"layer-sleep-us", OPT_LAYER_SLEEP, "US", 0, "Sleep before each layer's step"},
	{"start-delay-ms", OPT_START_DELAY, "MS", 0, "Sleep before the prompt is opened"},
	{0},
};

/* argp_error ends the process, so that what follows sees good values only. */
static uint64_t whole(struct argp_state *state, const char *name, const char *arg, uint64_t min,
		      uint64_t max)
{
	char *end;
	errno = 0;
	const unsigned long long value = strtoull(arg, &end, 10);
	if (errno || end == arg || *end || arg[0] == '-' || value < min || value > max)
		argp_error(state, "--%s must be a whole number from %llu to %llu, not '%s'", name,
			   (unsigned long long)min, (unsigned long long)max, arg);
	return value;
}

static double real(struct argp_state *state, const char *name, const char *arg, double max)
{
	char *end;
	const double value = strtod(arg, &end);
	if (end == arg || *end || !(value >= 0 && value <= max))
		argp_error(state, "--%s must be a number from 0 to %g, not '%s'", name, max, arg);
	return value;
}

static enum coppice_dtype dtype(struct argp_state *state, const char *arg)
{
	if (!strcmp(arg, "fp32"))
		return COPPICE_FP32;
	if (!strcmp(arg, "fp16"))
		return COPPICE_FP16;
	if (strcmp(arg, "bf16"))
		argp_error(state, "--kv-dtype must be fp32, fp16 or bf16, not '%s'", arg);
	return COPPICE_BF16;
}

static void add_prompt(struct argp_state *state, enum options_kind kind, const char *arg)
{
	struct options *o = state->input;
	if (o->n_prompts == OPTIONS_MAX_SEQS)
		argp_error(state, "at most %d prompts", OPTIONS_MAX_SEQS);
	o->prompts[o->n_prompts++] = (struct options_prompt){kind, arg};
}

static void check(struct argp_state *state, const struct options *o)
{
	if (!o->model_dir)
		argp_error(state, "--model is missing");
	if (!o->n_prompts)
		argp_error(state, "a --prompt, --prompt-file or --ids is missing");
	if (o->n_prompts * o->n_seqs > OPTIONS_MAX_SEQS)
		argp_error(state, "%u prompts times --n-seqs %u: at most %d sequences",
			   o->n_prompts, o->n_seqs, OPTIONS_MAX_SEQS);
	if (o->sampling.top_p == 0)
		argp_error(state, "--top-p must be above 0");
	for (uint32_t i = 0; o->document && i < o->n_prompts; i++)
		if (o->prompts[i].kind == OPTIONS_IDS)
			argp_error(state, "--document holds bytes and does not go with --ids");
}

static error_t parse_input(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'm':
		o->model_dir = arg;
		return 0;
	case 's':
		o->socket_path = arg;
		return 0;
	case 'd':
		o->document = arg;
		return 0;
	case 'p':
		add_prompt(state, OPTIONS_TEXT, arg);
		return 0;
	case OPT_PROMPT_FILE:
		add_prompt(state, OPTIONS_FILE, arg);
		return 0;
	case OPT_IDS:
		add_prompt(state, OPTIONS_IDS, arg);
		return 0;
	case OPT_NAME:
		o->model_name = arg;
		return 0;
	case OPT_KV_DTYPE:
		o->kv_dtype = dtype(state, arg);
		o->has_kv_dtype = true;
		return 0;
	case OPT_REPORT:
		o->report_path = arg;
		return 0;
	case OPT_IDS_OUT:
		o->ids_path = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_number(int key, const char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'n':
		o->n_tokens = whole(state, "tokens", arg, 1, 1 << 24);
		return 0;
	case OPT_N_SEQS:
		o->n_seqs = whole(state, "n-seqs", arg, 1, OPTIONS_MAX_SEQS);
		return 0;
	case OPT_CHUNK:
		o->chunk = whole(state, "chunk", arg, 1, 32768);
		return 0;
	case OPT_TEMPERATURE:
		o->sampling.temperature = real(state, "temperature", arg, 100);
		return 0;
	case OPT_TOP_K:
		o->sampling.top_k = whole(state, "top-k", arg, 0, UINT32_MAX);
		return 0;
	case OPT_TOP_P:
		o->sampling.top_p = real(state, "top-p", arg, 1);
		return 0;
	case OPT_SEED:
		o->sampling.seed = whole(state, "seed", arg, 0, UINT64_MAX);
		return 0;
	case OPT_LAYER_SLEEP:
		o->layer_sleep_us = whole(state, "layer-sleep-us", arg, 0, 60000000);
		return 0;
	case OPT_START_DELAY:
		o->start_delay_ms = whole(state, "start-delay-ms", arg, 0, 3600000);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case OPT_PRIVATE:
		o->private_kv = true;
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_PROGRESS:
		o->progress = true;
		return 0;
	case OPT_LOGPROBS:
		o->logprobs = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': every argument is an option (a prompt is --prompt TEXT)",
			   arg);
		return 0;
	case ARGP_KEY_END:
		check(state, o);
		return 0;
	default:
		if (parse_input(key, arg, state) == 0)
			return 0;
		return parse_number(key, arg, state);
	}
}

void options_parse(struct options *ret, int argc, char **argv)
{
	static const struct argp argp = {
		.options = argp_options,
		.parser = parse,
		.doc = "Continues prompts with a Llama-architecture model: matrix products here, "
		       "attention by "
		       "coppiced, which computes what prompts have in common once for all its "
		       "clients.",
	};
	argp_program_version = "coppice-agent " COPPICE_VERSION;
	*ret = (struct options){.n_seqs = 1, .n_tokens = 64, .chunk = 256, .sampling.top_p = 1};
	argp_parse(&argp, argc, argv, 0, NULL, ret);
}
