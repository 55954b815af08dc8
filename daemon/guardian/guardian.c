/*
 * guardian.c - daemons, their lanes, and the loop that watches both.
 *
 * A lane is released again and again for a while: replays of a graph that were queued when the
 * daemon died each take the words back. One daemon at a time is the rule; while one is restarted
 * there are two.
 */
#include "guardian.h"

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "proto/channel.h"
#include "proto/ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define DAEMONS_MAX 16u
#define AGAIN_MS 20 /* between two releases */
#define RELEASE_NS UINT64_C(10000000000) /* for how long */

struct guarded_lane {
	LIST_ENTRY(guarded_lane) link;
	uint64_t session;
	uint32_t lane;
	struct abi_lane *shared; /* owned mapping */
};
LIST_HEAD(guarded_lanes, guarded_lane);

struct guarded_daemon {
	int fd; /* owned; -1: it has hung up */
	int pidfd; /* owned; -1: the kernel gives none, a hang-up is its end */
	pid_t pid; /* 0: free */
	struct guarded_lanes lanes; /* owned */
	uint32_t n_lanes;
	uint64_t release_until_ns; /* 0: it lives */
};

struct guardian {
	int listener, signals; /* owned */
	struct guarded_daemon daemons[DAEMONS_MAX];
};

/* ---- lanes ---- */

static void lane_drop(struct guarded_daemon *d, struct guarded_lane *lane)
{
	LIST_REMOVE(lane, link);
	d->n_lanes--;
	munmap(lane->shared, sizeof(*lane->shared));
	free(lane);
}

static void lane_add(struct guarded_daemon *d, const struct guardian_message *m, int fd)
{
	struct guarded_lane *lane = calloc(1, sizeof(*lane));
	void *map;

	if (!lane || channel_segment_map(fd, sizeof(struct abi_lane), 1, &map) < 0) {
		log_warning("lane %u of session %llu cannot be kept", m->lane,
			    (unsigned long long)m->session);
		free(lane);
		return;
	}
	*lane = (struct guarded_lane){.session = m->session, .lane = m->lane, .shared = map};
	LIST_INSERT_HEAD(&d->lanes, lane, link);
	d->n_lanes++;
}

static void lane_forget(struct guarded_daemon *d, const struct guardian_message *m)
{
	struct guarded_lane *lane;

	LIST_FOREACH (lane, &d->lanes, link) {
		if (lane->session == m->session && lane->lane == m->lane) {
			lane_drop(d, lane);
			return;
		}
	}
}

static void lanes_release(struct guarded_daemon *d)
{
	struct guarded_lane *lane;

	LIST_FOREACH (lane, &d->lanes, link) {
		ring_release_streams(lane->shared);
		syscall(SYS_futex, ring_done_futex(lane->shared), FUTEX_WAKE, INT_MAX, NULL, NULL,
			0);
	}
}

/* ---- daemons ---- */

static void daemon_drop(struct guarded_daemon *d)
{
	while (!LIST_EMPTY(&d->lanes))
		lane_drop(d, LIST_FIRST(&d->lanes));
	if (d->fd >= 0)
		close(d->fd);
	if (d->pidfd >= 0)
		close(d->pidfd);
	*d = (struct guarded_daemon){.fd = -1, .pidfd = -1};
}

static void daemon_died(struct guarded_daemon *d)
{
	if (d->n_lanes == 0) {
		log_info("the daemon (pid %d) has ended", d->pid);
		daemon_drop(d);
		return;
	}
	log_warning("the daemon (pid %d) is gone: the streams of %u lanes are released", d->pid,
		    d->n_lanes);
	d->release_until_ns = clock_now_ns() + RELEASE_NS;
	lanes_release(d);
}

/* All that it has sent. Returns whether it may send more. */
static bool daemon_read(struct guarded_daemon *d)
{
	for (;;) {
		struct guardian_message m;
		int fd = -1;
		unsigned n_fds = 1;
		ssize_t n = channel_recv(d->fd, &m, sizeof(m), &fd, &n_fds, MSG_DONTWAIT);

		if (n == sizeof(m) && m.kind == GUARDIAN_LANE_ADD && n_fds == 1)
			lane_add(d, &m, fd);
		else if (n == sizeof(m) && m.kind == GUARDIAN_LANE_REMOVE)
			lane_forget(d, &m);
		if (n > 0 && n_fds == 1)
			close(fd);
		if (n != sizeof(m))
			return n == -EAGAIN;
	}
}

/* A daemon that hangs up and lives will come back and tell all anew. */
static void daemon_serve(struct guarded_daemon *d)
{
	if (d->fd < 0 || daemon_read(d))
		return;
	close(d->fd);
	d->fd = -1;
	if (d->pidfd < 0)
		daemon_died(d);
}

static struct guarded_daemon *daemon_place(struct guardian *k, pid_t pid)
{
	for (uint32_t i = 0; i < DAEMONS_MAX; i++) {
		if (k->daemons[i].pid == pid && k->daemons[i].release_until_ns == 0)
			daemon_drop(&k->daemons[i]);
	}
	for (uint32_t i = 0; i < DAEMONS_MAX; i++) {
		if (k->daemons[i].pid == 0)
			return &k->daemons[i];
	}
	return NULL;
}

static void daemon_accept(struct guardian *k)
{
	int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC);
	struct channel_peer peer = {.pidfd = -1};
	struct guarded_daemon *d = NULL;

	if (fd < 0)
		return;
	if (channel_peer(fd, &peer) == 0 && (peer.uid == geteuid() || peer.uid == 0))
		d = daemon_place(k, peer.pid);
	if (!d) {
		log_warning("pid %d (uid %u) is refused: it is no daemon of this user's", peer.pid,
			    peer.uid);
		close(fd);
		if (peer.pidfd >= 0)
			close(peer.pidfd);
		return;
	}
	*d = (struct guarded_daemon){.fd = fd, .pidfd = peer.pidfd, .pid = peer.pid};
	log_info("watching the daemon with pid %d", d->pid);
}

/* ---- the loop ---- */

/* Words that came before the end are read before the end is looked at. */
static void look_at_daemons(struct guardian *k, const struct pollfd *gone)
{
	for (uint32_t i = 0; i < DAEMONS_MAX; i++) {
		struct guarded_daemon *d = &k->daemons[i];

		if (d->pid == 0)
			continue;
		daemon_serve(d);
		if (d->release_until_ns == 0 && gone[i].revents)
			daemon_died(d);
		else if (d->release_until_ns && clock_now_ns() > d->release_until_ns)
			daemon_drop(d);
		else if (d->release_until_ns)
			lanes_release(d);
	}
}

static bool is_releasing(const struct guardian *k)
{
	for (uint32_t i = 0; i < DAEMONS_MAX; i++) {
		if (k->daemons[i].pid && k->daemons[i].release_until_ns)
			return true;
	}
	return false;
}

static void guardian_loop(struct guardian *k)
{
	struct pollfd fds[2 + 2 * DAEMONS_MAX];
	struct pollfd *sockets = fds + 2, *gone = sockets + DAEMONS_MAX;

	for (;;) {
		fds[0] = (struct pollfd){.fd = k->signals, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = k->listener, .events = POLLIN};
		for (uint32_t i = 0; i < DAEMONS_MAX; i++) {
			const struct guarded_daemon *d = &k->daemons[i];
			bool lives = d->pid && d->release_until_ns == 0;

			sockets[i] = (struct pollfd){.fd = lives ? d->fd : -1, .events = POLLIN};
			gone[i] = (struct pollfd){.fd = lives ? d->pidfd : -1, .events = POLLIN};
		}
		if (poll(fds, 2 + 2 * DAEMONS_MAX, is_releasing(k) ? AGAIN_MS : -1) < 0)
			continue;
		if (fds[0].revents)
			return;
		look_at_daemons(k, gone);
		if (fds[1].revents)
			daemon_accept(k);
	}
}

static int signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

int guardian_run(const struct config *config)
{
	struct guardian k = {.listener = -1, .signals = signals_open()};
	int r = channel_listen(config->guardian_socket, 0600, &k.listener);

	if (r < 0 || k.signals < 0) {
		log_error("%s cannot be listened on: %s", config->guardian_socket,
			  strerror(r < 0 ? -r : errno));
		return 1;
	}
	for (uint32_t i = 0; i < DAEMONS_MAX; i++)
		k.daemons[i] = (struct guarded_daemon){.fd = -1, .pidfd = -1};
	log_info("%s keeps lanes; daemons tell of them on %s", COPPICE_VERSION,
		 config->guardian_socket);
	sd_notify(0, "READY=1");
	guardian_loop(&k);
	for (uint32_t i = 0; i < DAEMONS_MAX; i++)
		daemon_drop(&k.daemons[i]);
	unlink(config->guardian_socket);
	close(k.listener);
	close(k.signals);
	return 0;
}
