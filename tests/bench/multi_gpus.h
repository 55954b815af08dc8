/*
 * multi_gpus.h - a case of coppice-bench multi on GPUs.
 *
 *   time         64 layers, launched one behind the other from a graph on each device, divided by
 *                64: each begins when the device has all others' rows of the one before. O goes to
 *                the first device's memory.
 *   local        of the same layers, by the devices' own clocks: from the end of the layer before
 *                to when a device's partials are there, of the slowest device of each layer
 *   exchange     from there until a device has what the others have, of the device that waits least
 *                for them
 *   rest         of the layer, on the average of the devices, but for the slowest's local part:
 *                less than the exchange where whose rows are merged ends later than others and is
 *                not the slowest of the next layer, too
 *   skew         how much sooner the partials are there on the average of the devices than on the
 *                slowest
 *   exchange_alone
 *                the time of 64 exchanges of the same rows, launched one behind the other with
 *                nothing between, divided by 64: the launches are in it, the skew of devices is not
 *   local_alone  the time of 64 layers without an exchange, divided by 64, of the slowest device:
 *                no layer waits for another device's, and the end of one overlaps with the begin of
 *                the next; and of each device
 *
 * Times of layers are medians. Where heads are shared out nothing is exchanged, and all of the time
 * is local. Where NCCL exchanges (COPPICE_EXCHANGE=nccl, or devices that do not reach each other) a
 * layer is timed from submit to end and without its exchange alone.
 */
#ifndef COPPICE_BENCH_MULTI_GPUS_H
#define COPPICE_BENCH_MULTI_GPUS_H

#include "card.h"
#include "kernels/group/group.h"
#include "limits.h"

struct multi_gpus {
	struct card card;
	cuda_measure_group measure_group;
	cuda_free_bytes free_bytes;
	struct limits limits;
	char names[GROUP_DEVICES_MAX][48];
	uint32_t n_names;
};

/* names: devices with commas. Measures what a bare kernel reads on the first. 0 or -errno, and says
 * why. */
int multi_gpus_init(struct multi_gpus *g, const char *module, const char *names);
/* Of a layer. 0: not measured. */
struct multi_exchange {
	double us, alone_us, bytes;
};

/* On the first n_devices. False where something failed, or the output or the bytes are wrong; said
 * on stderr. */
bool multi_gpus_case(struct multi_gpus *g, const struct workload_spec *spec, uint32_t n_devices,
		     struct multi_exchange *ret);

#endif
