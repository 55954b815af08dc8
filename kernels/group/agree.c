/* agree.c - see agree.h. */
#include "agree.h"

#include "../say.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* What processes tell each other; all have the same but for the id, of which the first one's counts. */
struct hello {
	char kind[16];
	uint64_t n_devices, pool_bytes, extent_bytes;
	uint8_t id[BACKEND_MEETING_BYTES];
};

static int compare(const struct exchange *ranks, const struct hello *mine,
		   const struct hello *theirs, char *error, size_t error_bytes)
{
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

int agree(struct exchange *ranks, const struct backend_ops *ops,
	  const struct backend_config *config, uint8_t *ret, char *error, size_t error_bytes)
{
	struct hello mine = {.n_devices = config->group->n_devices,
			     .pool_bytes = config->pool_bytes,
			     .extent_bytes = config->extent_bytes};
	struct hello theirs[EXCHANGE_RANKS_MAX];
	int r = 0;

	snprintf(mine.kind, sizeof(mine.kind), "%s", ops->name);
	if (ranks->rank == 0 && ops->meeting_id)
		r = ops->meeting_id(mine.id, error, error_bytes);
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
