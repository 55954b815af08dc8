/*
 * signals.c - signals as something that the loop reads.
 *
 * What a signal means is the owner's; here it is only told which one came, in a callback of the
 * loop like any other.
 */
#include "signals.h"

#include "daemon/base/log.h"
#include "daemon/base/threads.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void serve(struct signals *signals, const struct signalfd_siginfo *info)
{
	if (info->ssi_signo == SIGHUP)
		log_info("SIGHUP: the configuration is read at start only; restart to change it");
	else
		signals->stop(signals->user, strsignal((int)info->ssi_signo));
}

static void on_signals(struct loop_op *op, int result)
{
	struct signals *signals = op->user;
	struct signalfd_siginfo info;

	if (result < 0) {
		log_error("signals cannot be waited for: %s", strerror(-result));
		signals->stop(signals->user, NULL);
		return;
	}
	while (read(signals->fd, &info, sizeof(info)) == sizeof(info))
		serve(signals, &info);
}

int signals_init(struct signals *signals, struct loop *loop,
		 void (*stop)(void *user, const char *signal), void *user)
{
	sigset_t set;

	threads_signals(&set);
	*signals = (struct signals){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
				    .stop = stop,
				    .user = user};
	if (signals->fd < 0)
		return -errno;
	signals->op = (struct loop_op){.callback = on_signals, .user = signals};
	loop_poll(loop, &signals->op, signals->fd, POLLIN);
	return 0;
}

void signals_done(struct signals *signals)
{
	if (signals->fd >= 0)
		close(signals->fd);
	signals->fd = -1;
}
