/*
 * main.c - coppice-agent: continues prompts, attention by coppiced.
 *
 * Status 0; 1 after one sentence on stderr; 64 for bad arguments; 130 when a signal ended it.
 */
#include "agent.h"

#include <errno.h>
#include <stdio.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

int main(int argc, char **argv)
{
	struct options options;
	struct fault fault;
	options_parse(&options, argc, argv);
	/* No SA_RESTART: a sleeping call returns. */
	const struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	int r = agent_run(&options, &stop, &fault);
	if (r == 0)
		return 0;
	fflush(stdout);
	fprintf(stderr, "coppice-agent: %s\n", fault.text);
	return r == -EINTR ? 130 : 1;
}
