/* guardian_link.c - see guardian_link.h. */
#include "guardian_link.h"

#include "daemon/guardian/guardian.h"
#include "daemon/base/log.h"
#include "proto/channel.h"
#include "server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void lose(struct guardian_link *k, const char *why)
{
	struct session *s;

	if (!k->absent)
		log_warning(
			"no guardian at %s (%s): should this daemon die, streams of clients that "
			"wait for it are released by their next call of the library alone",
			k->server->parts.config->guardian_socket, why);
	k->absent = true;
	if (k->fd >= 0)
		close(k->fd);
	k->fd = -1;
	TAILQ_FOREACH (s, &k->server->sessions, entry) {
		for (uint32_t i = 0; i < k->server->parts.config->max_lanes; i++)
			s->lanes[i].kept = false;
	}
}

/* Does not wait for room in the guardian's backlog. */
static void find(struct guardian_link *k)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, k->server->parts.config->guardian_socket);
	k->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k->fd < 0 || connect(k->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		lose(k, strerror(errno));
		return;
	}
	k->absent = false;
	log_info("the guardian at %s will know of all lanes", address.sun_path);
}

/* It never says anything: what can be read is its end. */
static void look_for_end(struct guardian_link *k)
{
	char byte;
	ssize_t n = recv(k->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		lose(k, "it is gone");
}

/* False: no more now. */
static bool tell(struct guardian_link *k, enum guardian_kind kind, const struct session *s,
		 struct segment *lane)
{
	struct guardian_message m = {.kind = kind,
				     .lane = (uint32_t)(lane - s->lanes) + 1,
				     .session = s->id};
	int r = channel_send(k->fd, &m, sizeof(m), &lane->fd, kind == GUARDIAN_LANE_ADD ? 1 : 0,
			     MSG_DONTWAIT);

	if (r == 0)
		lane->kept = kind == GUARDIAN_LANE_ADD;
	else if (r != -EAGAIN || kind == GUARDIAN_LANE_REMOVE)
		lose(k, r == -EAGAIN ? "it does not read" : strerror(-r));
	return r == 0;
}

static void tell_all(struct guardian_link *k)
{
	struct session *s;

	TAILQ_FOREACH (s, &k->server->sessions, entry) {
		for (uint32_t i = 0; i < k->server->parts.config->max_lanes; i++) {
			struct segment *lane = &s->lanes[i];

			if (lane->state == SEGMENT_READY && lane->fd >= 0 && !lane->kept &&
			    !tell(k, GUARDIAN_LANE_ADD, s, lane))
				return;
		}
	}
}

void guardian_link_init(struct guardian_link *guardian, struct server *server)
{
	*guardian = (struct guardian_link){.server = server, .fd = -1};
	guardian_link_look(guardian);
}

void guardian_link_done(struct guardian_link *guardian)
{
	if (guardian->fd >= 0)
		close(guardian->fd);
	guardian->fd = -1;
}

void guardian_link_look(struct guardian_link *guardian)
{
	if (!guardian->server->parts.config->guardian_socket[0])
		return;
	if (guardian->fd >= 0)
		look_for_end(guardian);
	if (guardian->fd < 0)
		find(guardian);
	if (guardian->fd >= 0)
		tell_all(guardian);
}

void guardian_link_forget(struct guardian_link *guardian, const struct session *session,
			  struct segment *lane)
{
	if (lane->kept && guardian->fd >= 0)
		tell(guardian, GUARDIAN_LANE_REMOVE, session, lane);
}
