/*
 * options.c - coppice-agent's command line: one table, which is the help as well.
 *
 * Values are checked as they come; what only shows when all are there is checked at the end.
 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
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
	OPT_LAYERS,
};

const struct args_option options_table[] = {
	{NULL, 0, NULL, "What runs:"},
	{"model", 'm', "DIR", "folder with config.json and model.safetensors (required)"},
	{"name", OPT_NAME, "NAME",
	 "the model's name at the daemon if layers are computed here (default: the folder's)"},
	{"socket", 's', "PATH",
	 "the daemon's socket (default: $COPPICE_SOCKET, else the system's)"},
	{"layers", OPT_LAYERS, "WHO",
	 "who computes them: daemon, self, or auto (the default: the daemon if it can)"},
	{"kv-dtype", OPT_KV_DTYPE, "TYPE",
	 "fp32, fp16 or bf16: of Q, K, V and O at the daemon (default: the weights')"},
	{"private", OPT_PRIVATE, NULL, "share KV with nobody (a random salt)"},
	{NULL, 0, NULL, "What goes in:"},
	{"document", 'd', "FILE", "bytes that go before every prompt"},
	{"prompt", 'p', "TEXT", "a prompt; a token is a byte. Several: several sequences"},
	{"prompt-file", OPT_PROMPT_FILE, "FILE", "the same from a file"},
	{"ids", OPT_IDS, "FILE",
	 "a prompt as token ids: decimal numbers, or 32-bit little-endian words"},
	{"n-seqs", OPT_N_SEQS, "N", "sequences for each prompt, with seeds SEED, SEED + 1, ..."},
	{NULL, 0, NULL, "How it goes on:"},
	{"tokens", 'n', "N", "tokens to generate for each sequence (default: 64)"},
	{"temperature", OPT_TEMPERATURE, "T", "0 (the default): always the likeliest token"},
	{"top-k", OPT_TOP_K, "K", "draw from the K likeliest (default: 0, from all)"},
	{"top-p", OPT_TOP_P, "P", "draw from the likeliest that together reach P (default: 1)"},
	{"seed", OPT_SEED, "SEED", "of the draws (default: 0)"},
	{"chunk", OPT_CHUNK, "N", "tokens of a prompt computed at a time (default: 256)"},
	{NULL, 0, NULL, "What comes out:"},
	{"json", OPT_JSON, NULL, "print one JSON object at the end, and nothing else"},
	{"report", OPT_REPORT, "FILE", "write that object to FILE"},
	{"ids-out", OPT_IDS_OUT, "FILE",
	 "write the generated ids to FILE, a line for each sequence"},
	{"logprobs", OPT_LOGPROBS, NULL,
	 "print each token's log probability and the runner-up's on stderr"},
	{"progress", OPT_PROGRESS, NULL, "say on stderr now and then how far it is"},
	{NULL, 0, NULL, "For tests:"},
	{"layer-sleep-us", OPT_LAYER_SLEEP, "US",
	 "sleep before each layer's step, or each entry of a program"},
	{"start-delay-ms", OPT_START_DELAY, "MS", "sleep before the prompt is opened"},
	{NULL, 0, NULL, "About coppice-agent:"},
	{"help", '?', NULL, "print this"},
	{"version", 'V', NULL, "print the version"},
	{0},
};

static void print_help(void)
{
	puts("Usage: coppice-agent --model DIR --prompt TEXT [OPTION...]\n"
	     "Continues prompts with a model that coppiced holds and runs once for all its\n"
	     "clients. What their prompts have in common is computed once, too. With --layers\n"
	     "self a Llama's matrix products are computed here, and attention alone there.\n");
	args_print(stdout, options_table);
	puts("\nIt ends with 0, with 1 after one sentence on stderr, with 2 on a bad command\n"
	     "line, or with 130 when SIGINT or SIGTERM ended it. coppice-agent(1) says more.");
}

/* ---- values --------------------------------------------------------------------------------- */

static int whole(struct args *args, uint32_t min, uint32_t max, uint32_t *ret)
{
	uint64_t n;
	int r = args_whole(args, min, max, &n);

	if (r == 0)
		*ret = (uint32_t)n;
	return r;
}

static int real(struct args *args, double max, double *ret)
{
	char *end;
	const double value = strtod(args->value, &end);

	if (end == args->value || *end || !(value >= 0 && value <= max))
		return args_fail(args, "--%s takes a number from 0 to %g, not \"%.40s\"",
				 args->name, max, args->value);
	*ret = value;
	return 0;
}

/* A word's place among those that the option takes. */
static int word(struct args *args, const char *const *words, const char *all, int *ret)
{
	for (int i = 0; words[i]; i++) {
		if (strcmp(args->value, words[i]) != 0)
			continue;
		*ret = i;
		return 0;
	}
	return args_fail(args, "--%s takes %s, not \"%.40s\"", args->name, all, args->value);
}

static int dtype(struct args *args, struct options *o)
{
	static const char *const words[] = {
		[COPPICE_FP32] = "fp32", [COPPICE_FP16] = "fp16", [COPPICE_BF16] = "bf16", NULL};
	int n = 0, r = word(args, words, "fp32, fp16 or bf16", &n);

	if (r < 0)
		return r;
	o->kv_dtype = (enum coppice_dtype)n;
	o->has_kv_dtype = true;
	return 0;
}

static int layers(struct args *args, struct options *o)
{
	static const char *const words[] = {[OPTIONS_LAYERS_AUTO] = "auto",
					    [OPTIONS_LAYERS_DAEMON] = "daemon",
					    [OPTIONS_LAYERS_SELF] = "self",
					    NULL};
	int n = 0, r = word(args, words, "daemon, self or auto", &n);

	if (r == 0)
		o->layers = (enum options_layers)n;
	return r;
}

static int prompt(struct args *args, struct options *o, enum options_kind kind)
{
	if (o->n_prompts == OPTIONS_MAX_SEQS)
		return args_fail(args, "at most %d prompts", OPTIONS_MAX_SEQS);
	o->prompts[o->n_prompts++] = (struct options_prompt){kind, args->value};
	return 0;
}

static int text(struct args *args, const char **ret)
{
	*ret = args->value;
	return 0;
}

static int yes(bool *ret)
{
	*ret = true;
	return 0;
}

/* ---- options -------------------------------------------------------------------------------- */

static int take_number(struct options *o, int key, struct args *args)
{
	switch (key) {
	case 'n':
		return whole(args, 1, 1 << 24, &o->n_tokens);
	case OPT_N_SEQS:
		return whole(args, 1, OPTIONS_MAX_SEQS, &o->n_seqs);
	case OPT_CHUNK:
		return whole(args, 1, 32768, &o->chunk);
	case OPT_TEMPERATURE:
		return real(args, 100, &o->sampling.temperature);
	case OPT_TOP_K:
		return whole(args, 0, UINT32_MAX, &o->sampling.top_k);
	case OPT_TOP_P:
		return real(args, 1, &o->sampling.top_p);
	case OPT_SEED:
		return args_whole(args, 0, UINT64_MAX, &o->sampling.seed);
	case OPT_LAYER_SLEEP:
		return whole(args, 0, 60000000, &o->layer_sleep_us);
	default:
		return whole(args, 0, 3600000, &o->start_delay_ms);
	}
}

static int take_option(struct options *o, int key, struct args *args)
{
	switch (key) {
	case 'm':
		return text(args, &o->model_dir);
	case OPT_NAME:
		return text(args, &o->model_name);
	case 's':
		return args_name(args, &o->socket_path);
	case 'd':
		return text(args, &o->document);
	case OPT_REPORT:
		return text(args, &o->report_path);
	case OPT_IDS_OUT:
		return text(args, &o->ids_path);
	case 'p':
		return prompt(args, o, OPTIONS_TEXT);
	case OPT_PROMPT_FILE:
		return prompt(args, o, OPTIONS_FILE);
	case OPT_IDS:
		return prompt(args, o, OPTIONS_IDS);
	case OPT_KV_DTYPE:
		return dtype(args, o);
	case OPT_LAYERS:
		return layers(args, o);
	case OPT_PRIVATE:
		return yes(&o->private_kv);
	case OPT_JSON:
		return yes(&o->json);
	case OPT_PROGRESS:
		return yes(&o->progress);
	case OPT_LOGPROBS:
		return yes(&o->logprobs);
	case ARGS_WORD:
		return args_fail(
			args, "\"%.40s\": every argument is an option (a prompt is --prompt TEXT)",
			args->value);
	default:
		return take_number(o, key, args);
	}
}

static int check(const struct options *o, struct args *args)
{
	if (!o->model_dir)
		return args_fail(args, "--model is missing: see --help");
	if (!o->n_prompts)
		return args_fail(args, "a --prompt, --prompt-file or --ids is missing");
	if (o->n_prompts * o->n_seqs > OPTIONS_MAX_SEQS)
		return args_fail(args, "%u prompts times --n-seqs %u: at most %d sequences",
				 o->n_prompts, o->n_seqs, OPTIONS_MAX_SEQS);
	if (o->sampling.top_p == 0)
		return args_fail(args, "--top-p takes a number above 0");
	for (uint32_t i = 0; o->document && i < o->n_prompts; i++)
		if (o->prompts[i].kind == OPTIONS_IDS)
			return args_fail(args, "--document holds bytes and does not go with --ids");
	return 0;
}

int options_read(struct options *ret, struct args *args)
{
	int key, r = 0;

	*ret = (struct options){.n_seqs = 1, .n_tokens = 64, .chunk = 256, .sampling.top_p = 1};
	while (r == 0 && (key = args_next(args)) != 0) {
		if (key < 0)
			return key;
		if (key == '?') {
			print_help();
			return 1;
		}
		if (key == 'V') {
			puts("coppice-agent " COPPICE_VERSION);
			return 1;
		}
		r = take_option(ret, key, args);
	}
	return r < 0 ? r : check(ret, args);
}
