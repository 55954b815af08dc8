/*
 * main.c - coppice-agent: continues prompts by coppiced.
 *
 * An app as others are written: of coppice's it uses the installed headers and client/model alone.
 * How the daemon runs its model stands in forward_daemon.c, how it computes layers itself and takes
 * attention in daemon_attention.c. Exit statuses are those of all programs here, and 130 when a
 * signal ended it.
 */
#include "proto/cli/status.h"
#include "run.h"

#include <errno.h>
#include <stdio.h>

#define STATUS_SIGNALLED 130 /* as shells have it: 128 and SIGINT */

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

/* No SA_RESTART: a sleeping call returns. */
static void catch_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int main(int argc, char **argv)
{
	struct args args = args_begin(options_table, argc, argv);
	struct options options;
	struct fault fault;
	int r = options_read(&options, &args);

	if (r > 0)
		return CLI_OK;
	if (r < 0) {
		fprintf(stderr, "coppice-agent: %s\n", args.why);
		return CLI_USAGE;
	}
	catch_signals();
	r = run_agent(&options, &stop, &fault);
	if (r == 0)
		return CLI_OK;
	fflush(stdout);
	fprintf(stderr, "coppice-agent: %s\n", fault.text);
	return r == -EINTR ? STATUS_SIGNALLED : CLI_FAILED;
}
