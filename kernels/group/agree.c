/*
 * agree.c - what processes tell each other before they are one group; see agree.h.
 *
 * One message of fixed size each way. All must have the same but for the id: whoever finds a
 * difference says which, in a sentence, and everybody finds the same one.
 */
#include "agree.h"

#include "exchange.h"
#include "group.h"

#include "kernels/say.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* What processes tell each other; all have the same but for the id, of which the first one's
 * counts. */
struct hello {
	char kind[16];
	struct backend_kind alike; /* of all its devices */
	uint64_t n_devices, pool_bytes, extent_bytes;
	uint8_t id[BACKEND_MEETING_BYTES];
};

/* Rows go to all devices alike: one that is slower would hold up the others. */
static int compare_kinds(const struct exchange *ranks, const struct hello *mine,
			 const struct hello *theirs, char *error, size_t error_bytes)
{
	const struct backend_kind *own = &mine->alike;

	for (uint32_t i = 0; i < ranks->n_ranks; i++) {
		const struct backend_kind *other = &theirs[i].alike;

		if (strncmp(mine->kind, theirs[i].kind, sizeof(mine->kind)) != 0 ||
		    memcmp(own, other, sizeof(*own)) == 0)
			continue;
		say(error, error_bytes,
		    "rank %u has a device of compute capability %u.%u with %u multiprocessors, "
		    "this one, rank %u, one of %u.%u with %u: devices of a group are alike",
		    i, other->capability / 10, other->capability % 10, other->n_multiprocessors,
		    ranks->rank, own->capability / 10, own->capability % 10,
		    own->n_multiprocessors);
		return -EINVAL;
	}
	return 0;
}

static int compare(const struct exchange *ranks, const struct hello *mine,
		   const struct hello *theirs, char *error, size_t error_bytes)
{
	if (compare_kinds(ranks, mine, theirs, error, error_bytes) != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < ranks->n_ranks; i++) {
		if (memcmp(mine, &theirs[i], offsetof(struct hello, id)) == 0)
			continue;
		say(error, error_bytes,
		    "rank %u has %llu devices of %.15s, %llu bytes of pool and %llu of an extent, "
		    "this one, rank %u, %llu of %s, %llu and %llu: all have the same",
		    i, (unsigned long long)theirs[i].n_devices, theirs[i].kind,
		    (unsigned long long)theirs[i].pool_bytes,
		    (unsigned long long)theirs[i].extent_bytes, ranks->rank,
		    (unsigned long long)mine->n_devices, mine->kind,
		    (unsigned long long)mine->pool_bytes, (unsigned long long)mine->extent_bytes);
		return -EINVAL;
	}
	return 0;
}

int agree(const struct backend_config *config, uint8_t *ret, char *error, size_t error_bytes)
{
	struct exchange *ranks = config->group->ranks;
	const struct group_device *first = &config->group->devices[0];
	struct hello mine = {.n_devices = config->group->n_devices,
			     .pool_bytes = config->pool_bytes,
			     .extent_bytes = config->extent_bytes};
	struct hello theirs[EXCHANGE_RANKS_MAX];
	int r = 0;

	snprintf(mine.kind, sizeof(mine.kind), "%s", first->ops->name);
	if (first->ops->kind)
		r = first->ops->kind(first->name, &mine.alike, error, error_bytes);
	if (r == 0 && ranks->rank == 0 && first->ops->meeting_id)
		r = first->ops->meeting_id(mine.id, error, error_bytes);
	if (r)
		return r;
	r = exchange_tell(ranks, &mine, sizeof(mine), theirs);
	if (r) {
		say(error, error_bytes, "ranks: %s", ranks->error);
		return r;
	}
	memcpy(ret, theirs[0].id, sizeof(theirs[0].id));
	return compare(ranks, &mine, theirs, error, error_bytes);
}
