/*
 * weights_map.c - weights of the daemon's as memory of this process. Where they have to be made
 * ready first the daemon says so at once, and is asked again.
 */
#include "arena.h"

#include "client/lib/base/pace.h"
#include "client/lib/weights/weights.h"
#include "driver.h"

#include <errno.h>

static bool is_map(const struct answer *answer)
{
	const Coppice__WeightsMapReply *map = answer->reply->weights_map;

	return map && map->weights != 0 && map->bytes > 0 && answer->n_fds == 1;
}

/* -EAGAIN: they are made ready. */
static int map_once(struct coppice_weights *weights, struct coppice_arena **ret)
{
	Coppice__WeightsMap message = COPPICE__WEIGHTS_MAP__INIT;
	struct call call = call_of("coppice_weights_map");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	struct coppice *c = weights_connection(weights);
	const struct driver *driver;
	int r;

	message.weights = weights_id(weights);
	call.request.weights_map = &message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!is_map(&answer))
		return call_bad_answer(c, call.what);
	if (answer.reply->weights_map->has_device)
		r = driver_find(c, call.what, &driver);
	if (r < 0)
		weights_release(c, answer.reply->weights_map->weights);
	else
		r = arena_of_weights(c, call.what, answer.reply->weights_map, answer.fds[0], ret);
	return r;
}

int coppice_weights_map(struct coppice_weights *weights, uint64_t timeout_ns,
			struct coppice_arena **ret)
{
	struct pace pace = pace_begin(timeout_ns);
	int r;

	if (coppice_weights_count(weights) == 0)
		return explain(weights_connection(weights)->key, -EAGAIN,
			       "coppice_weights_map: wait for the weights first "
			       "(coppice_weights_wait)");
	do
		r = map_once(weights, ret);
	while (r == -EAGAIN && pace_sleep(&pace));
	if (r == -EAGAIN)
		return explain(weights_connection(weights)->key, -ETIMEDOUT,
			       "coppice_weights_map: the weights are still being made ready");
	return r;
}
