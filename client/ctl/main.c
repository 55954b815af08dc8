/*
 * main.c - coppicectl: looks into a running coppiced and tells it what to keep, drop and refuse.
 *
 * Exit status: 0; 1 where the daemon is absent or refused, with its sentence on standard error; 2
 * on a bad command line. With --json the error is an object on standard output as well.
 */
#include "ctl.h"
#include "json.h"
#include "models.h"
#include "top.h"
#include "tree.h"
#include "verbs.h"

#include <stdio.h>

static const struct options_verb verbs[] = {
	{"status", NULL, 0, verbs_status},
	{"tree", NULL, 0, tree_run},
	{"sessions", NULL, 0, verbs_sessions},
	{"models", NULL, 0, models_run},
	{"top", NULL, OPTIONS_INTERVAL | OPTIONS_COUNT, top_run},
	{"pin", "NODE", OPTIONS_FOR, verbs_pin},
	{"unpin", "PIN", 0, verbs_unpin},
	{"evict", NULL, OPTIONS_MODEL | OPTIONS_PAGES, verbs_evict},
	{"drain", NULL, OPTIONS_OFF, verbs_drain},
	{0},
};

static void print_error(const struct ctl *ctl)
{
	const struct call_error *error = &ctl->call.error;

	if (error->field[0])
		fprintf(stderr, "coppicectl: %s (%s)\n", error->message, error->field);
	else
		fprintf(stderr, "coppicectl: %s\n", error->message);
	if (ctl->options.json)
		json_print(json_error(error));
}

int main(int argc, char **argv)
{
	static struct ctl ctl;
	int r;

	options_read(&ctl.options, verbs, argc, argv);
	r = call_open(&ctl.call, ctl.options.socket);
	if (r == 0)
		r = ctl.options.verb->run(&ctl);
	call_close(&ctl.call);
	if (r < 0)
		print_error(&ctl);
	return r < 0 ? 1 : 0;
}
