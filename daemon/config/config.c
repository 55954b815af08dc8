/*
 * config.c - one table of keys serves the file, the flags and the help.
 *
 * Flags are read first, for the name of the file, and kept; then the file is read over the
 * defaults, and the kept flags over that. What a value may be is in the table: errors are made from
 * it. All errors are said, not only the first.
 */
#include "config.h"

#include "config_value.h"
#include "daemon/backend/kv_split.h"
#include "daemon/backend/ranks.h"
#include "daemon/base/log.h"

#include <argp.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_FILE "/etc/coppice/coppiced.conf"
#define MIB (UINT64_C(1) << 20)
#define TIB (UINT64_C(1) << 40)
#define EXTENT_GRAIN_BYTES (2 * MIB)

#define FIELD(f) offsetof(struct config, f), sizeof(((struct config *)0)->f)
#define COUNT(name, field, min, max, help) \
	{ \
		name, NULL, "N", help, KEY_COUNT, FIELD(field), min, max, NULL \
	}
#define SIZE(name, field, min, help) \
	{ \
		name, NULL, "SIZE", help, KEY_SIZE, FIELD(field), min, 1024 * TIB, NULL \
	}
#define CHOICE(name, kind, field, choices, help) \
	{ \
		name, NULL, "NAME", help, kind, FIELD(field), 0, 0, choices \
	}

static const struct key keys[] = {
	{"socket", NULL, "PATH", "control socket", KEY_PATH, FIELD(socket_path), 0, 0, NULL},
	{"socket_mode", NULL, "MODE", "its permission bits, octal", KEY_OCTAL, FIELD(socket_mode),
	 0, 0777, NULL},
	CHOICE("backend", KEY_CHOICE, backend, "auto cpu cuda ", "what computes: auto, cpu, cuda"),
	{"device", NULL, "DEVICE", "which GPU, by index or UUID", KEY_DEVICE, FIELD(device), 0, 0,
	 NULL},
	{"devices", NULL, "LIST", "several GPUs, or cpu,cpu,...", KEY_DEVICES, FIELD(devices), 0, 0,
	 NULL},
	{"split", NULL, "HOW", "KV over devices: auto, tokens, heads, MODEL:tokens, ...", KEY_SPLIT,
	 FIELD(split), 0, 0, NULL},
	{"ranks", NULL, "LIST", "addresses of daemons that join, this one's among them", KEY_RANKS,
	 FIELD(ranks), 0, 0, NULL},
	COUNT("rank", rank, 0, 63, "which of them is this one's, from 0"),
	COUNT("ranks_timeout_ms", ranks_timeout_ms, 1, 3600000,
	      "longest wait for the others to join"),
	CHOICE("policy", KEY_POLICY, policy,
	       "auto none cascade fasttree deft deft-node deft-chunk deft-flatten ",
	       "how work is grouped: auto, none, cascade, fasttree, deft, deft-node, ..."),
	{"pool", NULL, "SIZE", "memory for KV, or N% of the GPU's or machine's; 0: usual share",
	 KEY_POOL, FIELD(pool_bytes), 0, 1024 * TIB, NULL},
	SIZE("extent", extent_bytes, EXTENT_GRAIN_BYTES,
	     "it is lent to models in pieces so large on each device"),
	COUNT("threads", n_threads, 0, 1024, "threads that compute; 0: one per core"),
	COUNT("page_tokens", page_tokens, 16, 64, "tokens per page where a model does not say"),
	COUNT("spin_us", spin_us, 0, 1000000, "how long idle sides spin before they sleep"),
	COUNT("claim_ms", claim_ms, 1, 3600000, "a claim without progress for so long lapses"),
	CHOICE("batch_hold", KEY_HOLD, batch_hold, "cost always never ",
	       "hold batches open for late sessions: cost, always, never"),
	{"batch_wait_max_us", "batch-wait-max", "US", "but never longer than this", KEY_COUNT,
	 FIELD(batch_wait_max_us), 0, 1000000, NULL},
	COUNT("prefill_rows", prefill_rows, 1, 65536,
	      "rows of prefill between two looks at decode"),
	COUNT("max_sessions", max_sessions, 1, 65536, "sessions"),
	COUNT("max_domain_sessions", max_domain_sessions, 1, 65536, "sessions of a domain"),
	COUNT("max_models", max_models, 1, 65536, "models open in a session"),
	COUNT("max_lanes", max_lanes, 1, 4096, "lanes of a session"),
	COUNT("max_seqs", max_seqs, 1, 1u << 20, "sequences of a session"),
	COUNT("max_arenas", max_arenas, 1, 4096, "arenas of a session"),
	SIZE("max_arena_bytes", max_arena_bytes, 2 * MIB, "bytes of all host arenas of a session"),
	SIZE("max_device_arena_bytes", max_device_arena_bytes, 0,
	     "bytes of all device arenas of a session"),
	SIZE("device_arena_bytes", device_arena_bytes, 0, "device arenas of all sessions"),
	SIZE("domain_bytes", domain_bytes, 0, "KV of a domain; 0: no limit"),
	SIZE("host_tier", host_tier_bytes, 0, "host memory for KV that leaves the pool; 0: none"),
	{"file_tier", NULL, "PATH", "file for KV that leaves host memory", KEY_PATH,
	 FIELD(file_tier), 0, 0, NULL},
	SIZE("file_tier_bytes", file_tier_bytes, 4 * MIB, "its size when it is made"),
	SIZE("domain_host_bytes", domain_host_bytes, 0,
	     "KV of a domain in host memory; 0: no limit"),
	SIZE("domain_file_bytes", domain_file_bytes, 0, "KV of a domain in the file; 0: no limit"),
	SIZE("stage", stage_bytes, 0, "of the pool, for attention to KV in host memory; 0: none"),
	COUNT("stage_block", stage_block, 64, 65536,
	      "tokens of it that sparse prefill fetches or leaves, a power of two"),
	COUNT("tier_depth", tier_depth, 1, 1024, "moves of a kind between tiers at a time"),
	COUNT("tier_flush_ms", tier_flush_ms, 0, 3600000,
	      "how long a daemon that ends writes to the file"),
	COUNT("max_seq_tokens", max_seq_tokens, 1, 1u << 28, "tokens of a sequence"),
	COUNT("max_domain_pins", max_domain_pins, 1, 1u << 20, "pins of a domain"),
	COUNT("max_pin_ms", max_pin_ms, 0, UINT64_C(31622400000), "how long a pin may hold"),
	CHOICE("loop", KEY_CHOICE, loop, "auto io_uring epoll ",
	       "event loop: auto, io_uring, epoll"),
	{"keep_socket", NULL, "PATH", "where coppiced --keep listens", KEY_PATH, FIELD(keep_socket),
	 0, 0, NULL},
	CHOICE("log_level", KEY_CHOICE, log_level, "debug info warning error ",
	       "debug, info, warning, error"),
};

#define N_KEYS (sizeof(keys) / sizeof(*keys))

void config_init(struct config *config)
{
	*config = (struct config){
		.socket_path = "/run/coppice/coppiced.sock",
		.socket_mode = 0666,
		.backend = "auto",
		.extent_bytes = 32 * MIB,
		.page_tokens = 32,
		.spin_us = 200,
		.claim_ms = 10000,
		.batch_hold = CONFIG_HOLD_COST,
		.batch_wait_max_us = 2000,
		.prefill_rows = 128,
		.max_sessions = 256,
		.max_domain_sessions = 128,
		.max_models = 16,
		.max_lanes = 16,
		.max_seqs = 1024,
		.max_arenas = 64,
		.max_arena_bytes = 1024 * MIB,
		.max_device_arena_bytes = 1024 * MIB,
		.device_arena_bytes = 4096 * MIB,
		.file_tier_bytes = 16384 * MIB,
		.ranks_timeout_ms = 60000,
		.stage_block = 4096,
		.tier_depth = 32,
		.tier_flush_ms = 8000,
		.max_seq_tokens = 1u << 20,
		.max_domain_pins = 1024,
		.max_pin_ms = 24 * 3600 * 1000,
		.loop = "auto",
		.log_level = "info",
	};
	config->policy.policy = PLAN_AUTO;
}

/* ---- the file ---- */

struct file {
	struct config *config;
	FILE *stream;
	struct place place;
	unsigned n_errors;
};

/* A line at a time, counted; inih's own number is not told to handlers. */
static char *file_line(char *text, int bytes, void *user)
{
	struct file *f = user;
	size_t length;
	int c;

	if (!fgets(text, bytes, f->stream))
		return NULL;
	f->place.line++;
	length = strlen(text);
	if (length > 0 && text[length - 1] != '\n' && !feof(f->stream)) {
		log_error("%s:%u: the line is longer than %d bytes", f->place.file, f->place.line,
			  bytes - 2);
		f->n_errors++;
		while ((c = getc(f->stream)) != EOF && c != '\n')
			continue;
	}
	return text;
}

static const struct key *key_find(const char *name)
{
	for (size_t i = 0; i < N_KEYS; i++) {
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	}
	return NULL;
}

static int file_value(void *user, const char *section, const char *name, const char *value)
{
	struct file *f = user;
	const struct key *key = key_find(name);

	if (strcmp(section, "coppiced") != 0) {
		log_error("%s:%u: %s stands in section [%s]; accepted: [coppiced]", f->place.file,
			  f->place.line, name, section);
		f->n_errors++;
	} else if (!key) {
		log_error(
			"%s:%u: %s is no key; accepted are those of coppiced --help, with _ for -",
			f->place.file, f->place.line, name);
		f->n_errors++;
	} else if (value_read(f->config, key, value, &f->place) < 0) {
		f->n_errors++;
	}
	return 1;
}

static int file_read(struct config *config, const char *path, bool must_exist)
{
	struct file f = {.config = config, .place.file = path, .stream = fopen(path, "re")};
	int line;

	if (!f.stream) {
		if (errno == ENOENT && !must_exist)
			return 0;
		log_error("%s: cannot be read: %s", path, strerror(errno));
		return -EINVAL;
	}
	line = ini_parse_stream(file_line, &f, file_value, &f);
	if (ferror(f.stream)) {
		log_error("%s: cannot be read: %s", path, strerror(errno));
		f.n_errors++;
	} else if (line != 0) {
		log_error(
			"%s:%d: not understood; accepted: key = value, [coppiced], comments with #",
			path, line);
		f.n_errors++;
	}
	fclose(f.stream);
	return f.n_errors ? -EINVAL : 0;
}

/* ---- flags ---- */

#define FLAG_KEYS 256 /* option numbers of keys begin here */
#define FLAG_CHECK 1
#define FLAG_KEEP 2
#define FLAG_VERIFY_TIER 3
#define FLAG_CONFIG 'c'
#define FLAG_HELP '?'
#define FLAG_VERSION 'V'

struct flags {
	const char *file; /* NULL: the default one, if it is there */
	const char *values[N_KEYS];
	bool check_only;
	bool keep;
	const char *verify_tier; /* NULL: not asked for */
	bool answered; /* help or version */
};

static error_t flag_read(int option, char *arg, struct argp_state *state)
{
	struct flags *flags = state->input;

	if (option >= FLAG_KEYS && option < FLAG_KEYS + (int)N_KEYS) {
		flags->values[option - FLAG_KEYS] = arg;
	} else if (option == FLAG_KEEP) {
		flags->keep = true;
	} else if (option == FLAG_VERIFY_TIER) {
		flags->verify_tier = arg;
	} else if (option == FLAG_CONFIG) {
		flags->file = arg;
	} else if (option == FLAG_CHECK) {
		flags->check_only = true;
	} else if (option == FLAG_HELP) {
		argp_state_help(state, stdout, ARGP_HELP_LONG | ARGP_HELP_USAGE | ARGP_HELP_DOC);
		flags->answered = true;
	} else if (option == FLAG_VERSION) {
		printf("coppiced %s\n", COPPICE_VERSION);
		flags->answered = true;
	} else if (option == ARGP_KEY_ARG) {
		log_error("\"%s\": coppiced takes flags only; see coppiced --help", arg);
		return EINVAL;
	} else {
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* argp's table, made from ours: name[i] holds the flag's spelling. */
static void flags_table(struct argp_option *options, char (*names)[32])
{
	static const struct argp_option own[] = {
		{"config", FLAG_CONFIG, "FILE", 0, "default: " DEFAULT_FILE ", if it is there", 1},
		{"check-config", FLAG_CHECK, NULL, 0, "read flags and file, say what is wrong, end",
		 1},
		{"keep", FLAG_KEEP, NULL, 0,
		 "be no daemon, but what releases its clients' streams when it dies", 1},
		{"verify-tier", FLAG_VERIFY_TIER, "FILE", 0,
		 "read a tier file that no daemon uses, say what is wrong in it, end", 1},
		{"help", FLAG_HELP, NULL, 0, "this text", 1},
		{"version", FLAG_VERSION, NULL, 0, "the version", 1},
		{NULL, 0, NULL, 0, "Each is also a key of the file (with _ for -):", 2},
	};
	size_t n = sizeof(own) / sizeof(*own);

	memcpy(options, own, sizeof(own));
	for (size_t i = 0; i < N_KEYS; i++) {
		snprintf(names[i], sizeof(names[i]), "%s",
			 keys[i].flag ? keys[i].flag : keys[i].name);
		for (char *c = names[i]; *c; c++)
			*c = *c == '_' ? '-' : *c;
		options[n + i] = (struct argp_option){names[i], FLAG_KEYS + (int)i, keys[i].arg,
						      0,	keys[i].help,	    2};
	}
}

static int flags_parse(struct flags *flags, int argc, char **argv)
{
	struct argp_option options[N_KEYS + 10] = {0};
	char names[N_KEYS][32];
	const struct argp argp = {.options = options,
				  .parser = flag_read,
				  .doc = "Serves attention over KV that many processes share."};

	flags_table(options, names);
	if (argp_parse(&argp, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_IN_ORDER, NULL, flags))
		return -EINVAL;
	return flags->answered ? 1 : 0;
}

static int verify_tier_set(struct config *config, const char *path)
{
	if (path[0] && strlen(path) < sizeof(config->verify_tier)) {
		strcpy(config->verify_tier, path);
		return 0;
	}
	log_error("--verify-tier: \"%.80s\" is no path of 1 to %zu bytes", path,
		  sizeof(config->verify_tier) - 1);
	return -EINVAL;
}

static int flags_apply(struct config *config, const struct flags *flags)
{
	const struct place place = {0};
	int r = 0;

	for (size_t i = 0; i < N_KEYS; i++) {
		if (flags->values[i] && value_read(config, &keys[i], flags->values[i], &place) < 0)
			r = -EINVAL;
	}
	config->check_only = flags->check_only;
	config->keep = flags->keep;
	if (flags->verify_tier && verify_tier_set(config, flags->verify_tier) < 0)
		r = -EINVAL;
	return r;
}

/* ---- the whole ---- */

/* The devices decide what computes; an extent is as large on each. */
static int devices_check(struct config *config)
{
	bool cpu = false;

	config->n_devices = 1;
	if (config->devices[0])
		devices_parse(config->devices, &config->n_devices, &cpu);
	if (config->devices[0] && config->device[0]) {
		log_error("devices and device are both there; accepted: one of them");
		return -EINVAL;
	}
	if (config->devices[0] && !strcmp(config->backend, cpu ? "cuda" : "cpu")) {
		log_error("devices: \"%s\" is not accepted with backend = %s; accepted: devices of "
			  "that kind",
			  config->devices, config->backend);
		return -EINVAL;
	}
	if (config->devices[0])
		strcpy(config->backend, cpu ? "cpu" : "cuda");
	if (config->devices[0] && config->n_devices == 1 && !cpu)
		snprintf(config->device, sizeof(config->device), "%.63s", config->devices);
	config->extent_bytes *= config->n_devices;
	return 0;
}

static int ranks_check(struct config *config)
{
	config->n_ranks = 1;
	if (config->ranks[0])
		joined_parse(config->ranks, &config->n_ranks);
	if (config->rank < config->n_ranks)
		return 0;
	log_error("rank: %u is not accepted; accepted: a number below %u, as many as ranks has "
		  "addresses",
		  config->rank, config->n_ranks);
	return -EINVAL;
}

/* What one value alone does not tell. */
static int pool_check(struct config *config)
{
	if (config->page_tokens & (config->page_tokens - 1)) {
		log_error("page_tokens: %u is not accepted; accepted: 16, 32, 64",
			  config->page_tokens);
		return -EINVAL;
	}
	if (config->extent_bytes % EXTENT_GRAIN_BYTES) {
		log_error("extent: %" PRIu64 " is not accepted; accepted: multiples of 2M",
			  config->extent_bytes);
		return -EINVAL;
	}
	if (devices_check(config) < 0)
		return -EINVAL;
	if (config->pool_bytes == 0)
		return 0; /* backends_open knows */
	if (config->pool_bytes < config->extent_bytes ||
	    config->pool_bytes / config->extent_bytes > UINT32_MAX) {
		log_error("pool: %" PRIu64 " is not accepted; accepted: one extent (%" PRIu64
			  " on all devices together) or more",
			  config->pool_bytes, config->extent_bytes);
		return -EINVAL;
	}
	config->pool_bytes -= config->pool_bytes % config->extent_bytes;
	return 0;
}

/* In whole extents, of which the pool has more. */
static int stage_check(struct config *config)
{
	uint64_t n = config->stage_bytes / config->extent_bytes;

	if (config->stage_bytes && !config->host_tier_bytes) {
		log_error("stage: it needs host_tier: KV comes from there");
		return -EINVAL;
	}
	n += config->stage_bytes % config->extent_bytes > 0;
	if (config->pool_bytes && n >= config->pool_bytes / config->extent_bytes) {
		log_error("stage: %" PRIu64
			  " is not accepted; accepted: less than the pool (%" PRIu64
			  "), whose part it is",
			  config->stage_bytes, config->pool_bytes);
		return -EINVAL;
	}
	config->stage_bytes = n * config->extent_bytes;
	if (config->stage_block & (config->stage_block - 1)) {
		log_error("stage_block: %u is not accepted; accepted: a power of two",
			  config->stage_block);
		return -EINVAL;
	}
	return 0;
}

static int tiers_check(struct config *config)
{
	if (config->file_tier[0] && !config->host_tier_bytes) {
		log_error("file_tier: it needs host_tier: KV goes to the file through host memory");
		return -EINVAL;
	}
	if (stage_check(config) < 0)
		return -EINVAL;
	if (config->host_tier_bytes && config->host_tier_bytes < config->extent_bytes) {
		log_error("host_tier: %" PRIu64 " is not accepted; accepted: 0, or one extent "
			  "(%" PRIu64 ") or more",
			  config->host_tier_bytes, config->extent_bytes);
		return -EINVAL;
	}
	return 0;
}

static int whole_check(struct config *config)
{
	if (pool_check(config) < 0 || ranks_check(config) < 0 || tiers_check(config) < 0)
		return -EINVAL;
	if (config->keep && !config->keep_socket[0]) {
		log_error("--keep: it needs keep_socket, which the daemon is told as well");
		return -EINVAL;
	}
	return 0;
}

int config_read(struct config *config, int argc, char **argv)
{
	struct flags flags = {0};
	int r, r_file, r_flags;

	r = flags_parse(&flags, argc, argv);
	if (r != 0)
		return r;
	r_file = file_read(config, flags.file ? flags.file : DEFAULT_FILE, flags.file != NULL);
	r_flags = flags_apply(config, &flags);
	if (r_file < 0 || r_flags < 0)
		return -EINVAL;
	return whole_check(config);
}
