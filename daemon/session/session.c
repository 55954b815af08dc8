/*
 * session.c - the table of sessions, and how many there may be.
 *
 * A few connections more are taken than there may be sessions, so that who is refused can be told
 * why. Sessions that are ending count until they are gone: what they have is not free yet.
 */
#include "session.h"

#define SPARE_CONNECTIONS 32u
#define SPARE_DOMAIN_CONNECTIONS 8u

struct session *session_find(const struct sessions *sessions, uint64_t id)
{
	struct session *s;

	TAILQ_FOREACH (s, &sessions->list, entry) {
		if (s->id == id)
			return s;
	}
	return NULL;
}

static uint32_t domain_count(const struct sessions *sessions, uid_t uid, bool joined)
{
	const struct session *s;
	uint32_t n = 0;

	TAILQ_FOREACH (s, &sessions->list, entry) {
		if (s->peer.uid == uid && (s->joined || !joined))
			n++;
	}
	return n;
}

static uint32_t joined_count(const struct sessions *sessions)
{
	const struct session *s;
	uint32_t n = 0;

	TAILQ_FOREACH (s, &sessions->list, entry) {
		if (s->joined)
			n++;
	}
	return n;
}

const char *session_refusal(const struct session *session)
{
	const struct sessions *sessions = session->home;
	const struct config *config = sessions->config;

	if (sessions->stopping)
		return "the daemon stops";
	if (joined_count(sessions) >= config->max_sessions)
		return "the daemon has as many sessions as it serves (max_sessions)";
	if (domain_count(sessions, session->peer.uid, true) >= config->max_domain_sessions)
		return "this user has as many sessions as one may have (max_domain_sessions)";
	return NULL;
}

bool sessions_are_crowded(const struct sessions *sessions, uid_t uid)
{
	const struct config *config = sessions->config;

	return sessions->stopping ||
	       sessions->n_connections >= config->max_sessions + SPARE_CONNECTIONS ||
	       domain_count(sessions, uid, false) >=
		       config->max_domain_sessions + SPARE_DOMAIN_CONNECTIONS;
}
