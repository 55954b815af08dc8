/*
 * signals.c - signals as something that the loop reads.
 */
#include "signals.h"

#include "daemon/base/log.h"
#include "daemon/base/threads.h"
#include "server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void serve(struct server *server, const struct signalfd_siginfo *info)
{
	if (info->ssi_signo == SIGHUP) {
		log_info("SIGHUP: the configuration is read at start only; restart to change it");
		return;
	}
	if (server->stopping)
		log_warning("%s again: leaving at once", strsignal((int)info->ssi_signo));
	else
		log_info("%s: stopping", strsignal((int)info->ssi_signo));
	server_stop(server, 0);
}

static void on_signals(struct loop_op *op, int result)
{
	struct server *server = op->user;
	struct signalfd_siginfo info;

	if (result < 0) {
		log_error("signals cannot be waited for: %s", strerror(-result));
		server_stop(server, 1);
		return;
	}
	while (read(server->signals.fd, &info, sizeof(info)) == sizeof(info))
		serve(server, &info);
}

int signals_init(struct signals *signals, struct server *server)
{
	sigset_t set;

	threads_signals(&set);
	signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals->fd < 0)
		return -errno;
	signals->op = (struct loop_op){.callback = on_signals, .user = server};
	loop_poll(server->parts.loop, &signals->op, signals->fd, POLLIN);
	return 0;
}

void signals_done(struct signals *signals)
{
	if (signals->fd >= 0)
		close(signals->fd);
	signals->fd = -1;
}
