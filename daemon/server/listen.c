/*
 * listen.c - where connections come from.
 *
 * A socket that the service manager gave is its own, and stays; one made here is removed at the
 * end. Out of descriptors the daemon pauses: a client stays in the backlog until some are free.
 */
#include "listen.h"

#include "connection.h"
#include "daemon/base/log.h"
#include "daemon/session/life.h"
#include "proto/channel.h"
#include "proto/channel_why.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS UINT64_C(200000000)
#define LISTEN_TRIES 10
#define LISTEN_PAUSE_NS 50000000L

static int inherited_open(struct listener *listener, int n)
{
	int fd = SD_LISTEN_FDS_START;
	int flags;

	if (n > 1) {
		log_error("the service manager gave %d sockets; one is wanted", n);
		return -EINVAL;
	}
	if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) <= 0) {
		log_error("the service manager's socket is not a listening AF_UNIX SOCK_SEQPACKET "
			  "one (ListenSequentialPacket=)");
		return -EINVAL;
	}
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	listener->fd = fd;
	log_info("listening on the service manager's socket");
	return 0;
}

/* A daemon that was killed may answer for some milliseconds yet: its ring holds the socket until
 * the kernel has taken that apart. So who answers is asked again before it is believed. */
static int path_listen(const struct config *config, int *ret_fd)
{
	const struct timespec pause = {.tv_nsec = LISTEN_PAUSE_NS};
	int r = channel_listen(config->socket_path, config->socket_mode, ret_fd);

	for (int i = 0; i < LISTEN_TRIES && r == -EADDRINUSE; i++) {
		nanosleep(&pause, NULL);
		r = channel_listen(config->socket_path, config->socket_mode, ret_fd);
	}
	return r;
}

/* Who types coppiced and nothing else, and has no /run/coppice, is told what to type. */
static void say_why(const struct config *config, int error)
{
	char why[CHANNEL_WHY_BYTES];

	channel_why_listen(config->socket_path, error, why, sizeof(why));
	log_error("%s", why);
	if (error != -EADDRINUSE && strcmp(config->socket_path, CONFIG_SOCKET) == 0)
		log_error("try: coppiced --socket=./coppiced.sock, and "
			  "COPPICE_SOCKET=$PWD/coppiced.sock for its clients");
}

static int own_open(struct listener *listener, const struct config *config)
{
	int r = path_listen(config, &listener->fd);

	if (r < 0) {
		say_why(config, r);
	} else {
		snprintf(listener->path, sizeof(listener->path), "%s", config->socket_path);
		log_info("listening on %s", config->socket_path);
	}
	return r;
}

int listener_open(struct listener *listener, const struct config *config)
{
	int n = sd_listen_fds(1);

	*listener = (struct listener){.fd = -1};
	if (n < 0) {
		log_error("the service manager's sockets cannot be taken: %s", strerror(-n));
		return n;
	}
	return n > 0 ? inherited_open(listener, n) : own_open(listener, config);
}

static void on_accept(struct loop_op *op, int result)
{
	struct listener *listener = op->user;
	struct sessions *home = listener->home;

	if (result >= 0) {
		session_new(home, result, connection_packet);
		return;
	}
	if (home->stopping)
		return;
	log_warning("a connection cannot be taken: %s; trying again soon", strerror(-result));
	loop_timer(home->loop, &listener->pause, PAUSE_NS, 0);
}

static void on_pause(struct loop_op *op, int result)
{
	struct listener *listener = op->user;

	if (result == 0 && !listener->home->stopping)
		loop_accept(listener->home->loop, &listener->accept, listener->fd);
}

void listener_start(struct listener *listener, struct sessions *home)
{
	listener->home = home;
	listener->accept = (struct loop_op){.callback = on_accept, .user = listener};
	listener->pause = (struct loop_op){.callback = on_pause, .user = listener};
	loop_accept(home->loop, &listener->accept, listener->fd);
}

void listener_stop(struct listener *listener)
{
	loop_cancel(listener->home->loop, &listener->accept);
	loop_cancel(listener->home->loop, &listener->pause);
}

void listener_done(struct listener *listener)
{
	if (listener->fd < 0)
		return;
	if (listener->path[0])
		unlink(listener->path);
	close(listener->fd);
	listener->fd = -1;
}
