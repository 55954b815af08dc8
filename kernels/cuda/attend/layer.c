/*
 * layer.c - see layer.h. The first launch that fails ends the layer: what is already on its way is
 * complete in itself, and does nothing that a later one would have to undo.
 */
#include "layer.h"

static int launch_attention(const struct device_attend *attend, struct launch_to to)
{
	int r = attend->n_work_tiles ? device_attend(attend, to) : 0;

	return r ? r : device_merge(attend, to);
}

int layer_launch(const struct layer *layer, struct launch_to to)
{
	int r = layer->stand ? device_stand(layer->stand, to) : 0;

	if (!r && layer->inbound)
		r = device_inbound(layer->inbound, to);
	if (!r && layer->attend)
		r = launch_attention(layer->attend, to);
	if (!r && layer->outbound)
		r = device_outbound(layer->outbound, to);
	if (!r && layer->finish)
		r = device_finish(layer->finish, to);
	return r;
}

int layer_play(const struct layer *layer, struct queue *q, struct launch_chain *chain)
{
	int r;

	queue_record(q, chain);
	r = queue_expect(q, layer_launch(layer, queue_to(q)));
	if (!r)
		return queue_play(q);
	queue_drop(q);
	return r;
}
