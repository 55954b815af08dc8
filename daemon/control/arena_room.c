/*
 * arena_room.c - how much more of arenas a session may have.
 *
 * There is a limit for each session, each user and all, of host memory and of the device's. Of the
 * last tenth of what all may have a user gets no more than he leaves to others (reserve.h): arenas
 * count also while nobody has brought their pages, so users could take all of them at no cost. Root
 * and the daemon's own user are not bound by that. The loop's thread.
 */
#include "arena_room.h"

#include "proto/arith.h"
#include "kvstore/base/reserve.h"

/* What there may be of a kind, and what there is. */
struct arena_limits {
	struct arena_room own, domain, all; /* what each has room for yet */
	uint64_t has, reserved; /* of the user; of all, the last part */
};

static struct arena_room smaller(struct arena_room a, struct arena_room b)
{
	return a.bytes <= b.bytes ? a : b;
}

static struct arena_room room_within(const struct session *s, const struct arena_limits *limits)
{
	struct arena_room left = smaller(smaller(limits->own, limits->domain), limits->all);
	struct arena_room share = {reserve_room(limits->reserved, limits->has, limits->all.bytes),
				   "of the last tenth a user gets no more than he leaves to "
				   "others: yours",
				   limits->all.key};

	return s->privileged ? left : smaller(left, share);
}

static struct arena_room host_room(const struct session *s)
{
	const struct config *config = s->home->config;
	uint64_t domain_has = sessions_domain_use(s->home, s->peer.uid).arena_bytes;
	uint64_t all_have = sessions_use(s->home).arena_bytes;
	struct arena_limits limits = {
		.own = {config->max_arena_bytes - s->arena_bytes, "the session's arenas",
			"max_arena_bytes"},
		.domain = {config->domain_arena_bytes - domain_has, "your arenas",
			   "domain_arena_bytes"},
		.all = {config->arena_bytes - all_have, "all sessions' arenas", "arena_bytes"},
		.has = domain_has,
		.reserved = reserve_of(config->arena_bytes, config->domain_arena_bytes),
	};

	return room_within(s, &limits);
}

/* closed: as if nobody had what was freed any more. */
static struct arena_room device_room(const struct session *s, bool closed)
{
	const struct config *config = s->home->config;
	struct sessions_use own_use = sessions_domain_use(s->home, s->peer.uid);
	struct sessions_use all_use = sessions_use(s->home);
	uint64_t domain_has = own_use.device_bytes - (closed ? own_use.kept_bytes : 0);
	uint64_t all_have = all_use.device_bytes - (closed ? all_use.kept_bytes : 0);
	struct arena_limits limits = {
		.own = {config->max_device_arena_bytes - s->device_bytes,
			"the session's device arenas", "max_device_arena_bytes"},
		.domain = {config->domain_device_arena_bytes - domain_has,
			   "your device arenas, those freed among them that a process of yours "
			   "has open still,",
			   "domain_device_arena_bytes"},
		.all = {config->device_arena_bytes - all_have, "all sessions' device arenas",
			"device_arena_bytes"},
		.has = domain_has,
		.reserved =
			reserve_of(config->device_arena_bytes, config->domain_device_arena_bytes),
	};

	return room_within(s, &limits);
}

bool arena_fits(const struct arena_room *room, uint64_t bytes, uint64_t grain)
{
	return ceil_div_u64(bytes, grain) <= room->bytes / grain;
}

/* Who has freed arenas may have closed their descriptors since it was looked last: it is looked
 * again where that could help. */
static struct arena_room device_room_for(const struct session *s, uint64_t bytes)
{
	struct arena_room room = device_room(s, false), most = device_room(s, true);

	if (arena_fits(&room, bytes, ARENA_GRAIN_BYTES) ||
	    !arena_fits(&most, bytes, ARENA_GRAIN_BYTES))
		return room;
	lent_look(&s->home->lent);
	return device_room(s, false);
}

struct arena_room arena_room(const struct session *session, uint32_t kind, uint64_t bytes)
{
	return kind == ARENA_DEVICE ? device_room_for(session, bytes) : host_room(session);
}
