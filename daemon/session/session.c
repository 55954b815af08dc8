/*
 * session.c - the table of sessions, how many there may be, and how many descriptors they take.
 *
 * A few connections more are taken than there may be sessions, so that who is refused can be told
 * why. Sessions that are ending count until they are gone: what they have is not free yet. Of what
 * all users share, one that has as much as is left gets no more: whoever comes finds something,
 * however many have come before. Something more is kept for root and the daemon's own user.
 */
#include "session.h"
#include "proto/arith.h"

#define SPARE_CONNECTIONS 32u
#define SPARE_DOMAIN_CONNECTIONS 8u
#define RESERVED_FDS 64u
#define FDS_A_CONNECTION 2u /* its socket, its peer's pidfd */
#define FDS_TO_JOIN 3u /* a doorbell; board and doorbell on their way */
/* Of an answer: a lane's two here, and two on their way. */
#define FDS_AN_ANSWER (2 * UNREAD_FDS_AN_ANSWER)

struct session *session_find(const struct sessions *sessions, uint64_t id)
{
	struct session *s;

	TAILQ_FOREACH (s, &sessions->list, entry) {
		if (s->id == id)
			return s;
	}
	return NULL;
}

static void use_add(struct sessions_use *use, struct session *s)
{
	uint32_t n_unread = unread_fds(&s->unread, s->fd);

	use->n_connections++;
	use->n_sessions += s->joined;
	use->n_fds += FDS_A_CONNECTION + (s->doorbell_fd >= 0) + s->n_shm_fds + n_unread +
		      s->n_carriers * UNREAD_FDS_AN_ANSWER;
	use->n_unread_fds += n_unread;
	use->device_bytes += s->device_bytes;
	use->arena_bytes += s->arena_bytes;
}

static void use_add_kept(struct sessions_use *use, const struct sessions *sessions,
			 const uid_t *uid)
{
	use->kept_bytes = lent_kept_bytes(&sessions->lent, uid);
	use->device_bytes += use->kept_bytes;
}

struct sessions_use sessions_use(struct sessions *sessions)
{
	struct sessions_use use = {0};
	struct session *s;

	TAILQ_FOREACH (s, &sessions->list, entry)
		use_add(&use, s);
	use_add_kept(&use, sessions, NULL);
	return use;
}

struct sessions_use sessions_domain_use(struct sessions *sessions, uid_t uid)
{
	struct sessions_use use = {0};
	struct session *s;

	TAILQ_FOREACH (s, &sessions->list, entry) {
		if (s->peer.uid == uid)
			use_add(&use, s);
	}
	use_add_kept(&use, sessions, &uid);
	return use;
}

/* May a user that has some of all get n more of what there is? */
static bool share_has(uint64_t own, uint64_t all, uint64_t n, uint64_t most)
{
	return all < most && own + n <= most - all;
}

/* Who may have as many sessions as there are does not share. */
static bool is_shared(const struct config *config)
{
	return config->max_domain_sessions < config->max_sessions;
}

static bool fds_are_left(const struct session *session, const struct sessions_use *own,
			 const struct sessions_use *all, uint64_t n)
{
	uint64_t most = session->home->max_fds;

	if (session->privileged)
		return all->n_fds + n <= most;
	most -= min_u64(most, RESERVED_FDS);
	return share_has(own->n_fds, all->n_fds, n, most);
}

static const char *fds_refusal(const struct session *session, const struct sessions_use *own,
			       const struct sessions_use *all, uint64_t n)
{
	if (fds_are_left(session, own, all, n))
		return NULL;
	return session->privileged
		       ? "the daemon has no descriptors left (RLIMIT_NOFILE)"
		       : "this user takes as many of the daemon's descriptors as are left to all "
			 "others (RLIMIT_NOFILE)";
}

const char *session_refusal(struct session *session)
{
	struct sessions *sessions = session->home;
	const struct config *config = sessions->config;
	struct sessions_use all = sessions_use(sessions);
	struct sessions_use own = sessions_domain_use(sessions, session->peer.uid);
	uint32_t reserved = session->privileged ? config->reserved_sessions : 0;

	if (sessions->stopping)
		return "the daemon stops";
	if (own.n_sessions >= config->max_domain_sessions)
		return "this user has as many sessions as one may have (max_domain_sessions)";
	if (all.n_sessions >= config->max_sessions + reserved)
		return "the daemon has as many sessions as it serves (max_sessions)";
	if (!session->privileged && is_shared(config) &&
	    !share_has(own.n_sessions, all.n_sessions, 1, config->max_sessions))
		return "this user has as many sessions as are left to all others (max_sessions)";
	return fds_refusal(session, &own, &all, FDS_TO_JOIN);
}

const char *session_fds_refusal(struct session *session)
{
	struct sessions *sessions = session->home;
	struct sessions_use all = sessions_use(sessions);
	struct sessions_use own = sessions_domain_use(sessions, session->peer.uid);

	if (unread_fds(&session->unread, session->fd) +
		    (session->n_carriers + 1) * UNREAD_FDS_AN_ANSWER >
	    sessions->config->max_unread_fds)
		return "this session has not read as many as it may leave unread (max_unread_fds)";
	return fds_refusal(session, &own, &all, FDS_AN_ANSWER);
}

int session_seal(struct session *session, struct shm *shm)
{
	bool had_fd = shm->fd >= 0;
	int r = shm_seal(shm);

	if (r == 0 && had_fd)
		session->n_shm_fds--;
	return r;
}

bool sessions_are_crowded(struct sessions *sessions, const struct session *newcomer)
{
	const struct config *config = sessions->config;
	uint32_t most = config->max_sessions + SPARE_CONNECTIONS;
	struct sessions_use all = sessions_use(sessions);
	struct sessions_use own = sessions_domain_use(sessions, newcomer->peer.uid);

	if (sessions->stopping ||
	    own.n_connections >= config->max_domain_sessions + SPARE_DOMAIN_CONNECTIONS)
		return true;
	if (newcomer->privileged)
		return all.n_connections >=
		       most + config->reserved_sessions + SPARE_DOMAIN_CONNECTIONS;
	return all.n_connections >= most ||
	       (is_shared(config) && !share_has(own.n_connections, all.n_connections, 1, most));
}
