/*
 * main.c - coppicectl: looks into a running coppiced and tells it what to keep, drop and refuse.
 *
 * A verb is a line of the table here and a function of its own file. Exit statuses are those of
 * proto/cli/status.h. What went wrong is a sentence on standard error; with --json it is an object
 * on standard output as well.
 */
#include "proto/cli/status.h"
#include "ctl.h"
#include "json.h"
#include "models.h"
#include "pins.h"
#include "sessions.h"
#include "status.h"
#include "top.h"
#include "tree.h"
#include "upkeep.h"
#include "weights.h"

#include <errno.h>
#include <stdio.h>

static const struct options_verb verbs[] = {
	{.help = "To look:"},
	{"status", NULL, 0, status_run, "what the daemon is, holds and has done"},
	{"tree", NULL, OPTIONS_MODEL | OPTIONS_DEPTH, tree_run, "the token runs that it keeps"},
	{"sessions", NULL, 0, sessions_run, "who is connected"},
	{"models", NULL, 0, models_run, "what is open, and where its KV lies"},
	{"weights", NULL, 0, weights_run, "models' weights that it holds"},
	{"pins", NULL, 0, pins_run, "what may not be evicted, and how long"},
	{"top", NULL, OPTIONS_INTERVAL | OPTIONS_COUNT, top_run, "what goes on, live"},
	{.help = "To act:"},
	{"pin", "NODE", OPTIONS_FOR, pins_pin, "keep a node and what is above it from eviction"},
	{"unpin", "PIN", 0, pins_unpin, "end a pin"},
	{"evict", NULL, OPTIONS_MODEL | OPTIONS_PAGES | OPTIONS_PINNED, upkeep_evict,
	 "drop what nobody uses"},
	{"drain", NULL, OPTIONS_OFF, upkeep_drain, "take no new sequences"},
	{0},
};

static void print_error(const struct ctl *ctl)
{
	const struct call_error *error = &ctl->call.error;

	fprintf(stderr, "coppicectl: %s\n", error->message);
	if (ctl->options.json)
		json_print_error(error);
}

static int run(struct ctl *ctl)
{
	int r = call_open(&ctl->call, ctl->options.socket);

	if (r == 0)
		r = ctl->options.verb->run(ctl);
	call_close(&ctl->call);
	if (r == 0 && (fflush(stdout) == EOF || ferror(stdout)))
		r = call_fail(&ctl->call, -EIO, NULL, "standard output cannot be written");
	return r;
}

int main(int argc, char **argv)
{
	static struct ctl ctl;
	struct args args = args_begin(options_table, argc, argv);
	int r = options_read(&ctl.options, verbs, &args);

	if (r > 0)
		return CLI_OK;
	if (r < 0) {
		fprintf(stderr, "coppicectl: %s\n", args.why);
		return CLI_USAGE;
	}
	if (run(&ctl) == 0)
		return CLI_OK;
	print_error(&ctl);
	return CLI_FAILED;
}
