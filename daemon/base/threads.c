/*
 * threads.c - one signal mask for all threads of the process.
 */
#include "threads.h"

void threads_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGHUP);
}

void threads_block_signals(void)
{
	sigset_t set;

	threads_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

void threads_let_end(bool may)
{
	sigset_t set;

	threads_signals(&set);
	sigdelset(&set, SIGHUP);
	pthread_sigmask(may ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}
