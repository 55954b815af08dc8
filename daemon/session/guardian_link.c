/*
 * guardian_link.c - what the guardian has been told, lane by lane.
 *
 * A lane's `guarded` is true while the guardian at the other end of this very connection knows of
 * it: a connection that is lost makes all of them untold, and a new one begins from there. Nothing
 * here blocks.
 */
#include "guardian_link.h"

#include "daemon/base/log.h"
#include "daemon/guardian/guardian.h"
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void lose(struct guardian_link *link, const char *why)
{
	struct session *s;

	if (!link->absent)
		log_warning(
			"no guardian at %s (%s): should this daemon die, streams of clients that "
			"wait for it are released by their next call of the library alone",
			link->home->config->guardian_socket, why);
	link->absent = true;
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
	TAILQ_FOREACH (s, &link->home->list, entry) {
		for (uint32_t i = 0; i < link->home->config->max_lanes; i++)
			s->lanes[i].guarded = false;
	}
}

/* Does not wait for room in the guardian's backlog. */
static void find(struct guardian_link *link)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, link->home->config->guardian_socket);
	link->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (link->fd < 0 || connect(link->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		lose(link, strerror(errno));
		return;
	}
	link->absent = false;
	log_info("the guardian at %s will know of all lanes", address.sun_path);
}

/* It never says anything: what can be read is its end. */
static void look_for_end(struct guardian_link *link)
{
	char byte;
	ssize_t n = recv(link->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		lose(link, "it is gone");
}

/* False: no more now. */
static bool tell(struct guardian_link *link, enum guardian_kind kind, const struct session *s,
		 struct shm *lane)
{
	struct guardian_message m = {.kind = kind,
				     .lane = (uint32_t)(lane - s->lanes) + 1,
				     .session = s->id};
	int r = channel_send(link->fd, &m, sizeof(m), &lane->fd, kind == GUARDIAN_LANE_ADD ? 1 : 0,
			     MSG_DONTWAIT);

	if (r == 0)
		lane->guarded = kind == GUARDIAN_LANE_ADD;
	else if (r != -EAGAIN || kind == GUARDIAN_LANE_REMOVE)
		lose(link, r == -EAGAIN ? "it does not read" : strerror(-r));
	return r == 0;
}

static void tell_all(struct guardian_link *link)
{
	struct session *s;

	TAILQ_FOREACH (s, &link->home->list, entry) {
		for (uint32_t i = 0; i < link->home->config->max_lanes; i++) {
			struct shm *lane = &s->lanes[i];

			if (lane->state == SHM_READY && lane->fd >= 0 && !lane->guarded &&
			    !tell(link, GUARDIAN_LANE_ADD, s, lane))
				return;
		}
	}
}

void guardian_link_init(struct guardian_link *link, struct sessions *home)
{
	*link = (struct guardian_link){.home = home, .fd = -1};
	guardian_link_look(link);
}

void guardian_link_done(struct guardian_link *link)
{
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
}

void guardian_link_look(struct guardian_link *link)
{
	if (!link->home->config->guardian_socket[0])
		return;
	if (link->fd >= 0)
		look_for_end(link);
	if (link->fd < 0)
		find(link);
	if (link->fd >= 0)
		tell_all(link);
}

void guardian_link_forget(struct guardian_link *link, const struct session *session,
			  struct shm *lane)
{
	if (lane->guarded && link->fd >= 0)
		tell(link, GUARDIAN_LANE_REMOVE, session, lane);
}
