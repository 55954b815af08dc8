/*
 * options.h - what coppice-agent was asked to do.
 */
#ifndef AGENT_OPTIONS_H
#define AGENT_OPTIONS_H

#include "client/coppice.h"
#include "proto/cli/args.h"
#include "proto/must_check.h"
#include "sampler.h"

#define OPTIONS_MAX_SEQS 256

enum options_kind { OPTIONS_TEXT, OPTIONS_FILE, OPTIONS_IDS };

/* One prompt: bytes from the command line or a file, or ids from a file. */
struct options_prompt {
	enum options_kind kind;
	const char *arg;
};

/* Who computes what stands between two attentions. */
enum options_layers { OPTIONS_LAYERS_AUTO, OPTIONS_LAYERS_DAEMON, OPTIONS_LAYERS_SELF };

struct options {
	const char *model_dir;
	const char *model_name; /* NULL: the folder's */
	const char *socket_path;
	const char *document; /* a file whose bytes go before every prompt, or NULL */
	struct options_prompt prompts[OPTIONS_MAX_SEQS];
	uint32_t n_prompts;
	uint32_t n_seqs; /* sequences for each prompt, their seeds counting up */
	uint32_t n_tokens;
	uint32_t chunk;
	struct sampler_config sampling;
	bool has_kv_dtype;
	enum coppice_dtype kv_dtype;
	bool private_kv, json, progress, logprobs;
	enum options_layers layers;
	const char *report_path, *ids_path;
	uint32_t layer_sleep_us, start_delay_ms;
};

extern const struct args_option options_table[];

/* Reads args, which has options_table. 0; 1 where --help or --version asked for what is printed
 * now; -EINVAL and a sentence in args->why. */
MUST_CHECK int options_read(struct options *ret, struct args *args);

#endif
