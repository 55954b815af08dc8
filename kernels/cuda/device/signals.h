/*
 * signals.h - what host and device tell each other in pinned memory while launches are under way:
 * calls of what stands on the device, clocks of what is done, words of others that wait.
 */
#ifndef COPPICE_CUDA_SIGNALS_H
#define COPPICE_CUDA_SIGNALS_H

#include "proto/must_check.h"
#include "format.h"
#include "launch.h"

/*
 * A call: what a launch that stands on the device, before anybody knows what it is for, waits for
 * in pinned memory. A word of its device_inbound and the tag in one packet, which memory does not
 * tear: whoever has read the tag has read the word.
 */
#define DEVICE_CALL_WORDS 20u
#define DEVICE_CALL_GO(id) (2 * (uint64_t)(id))
#define DEVICE_CALL_LEAVE(id) (2 * (uint64_t)(id) + 1)

struct device_call {
	struct {
		uint64_t word, tag;
	} packets[DEVICE_CALL_WORDS];
};

/* In the place of a device_inbound. Nobody calls in time, or says that it is to leave: what follows
 * finds rows of which nothing is wanted. */
struct device_stand {
	const struct device_call *call; /* pinned */
	struct device_call *heard; /* device memory: handed on */
	struct device_row *rows; /* of what follows */
	uint64_t *answer; /* pinned: the tag by which it went on */
	uint64_t id;
	uint64_t patience_ns;
	uint32_t n_rows;
	uint32_t pad;
};

/* Exchanges with other devices, since they met: how long they took, and what of O and LSE this
 * device gave them. */
struct device_exchanged {
	uint64_t ns, given_bytes;
};

/* Of a batch, in pinned host memory, by the device's clock; the id comes last, when all that the
 * batch writes is there. */
struct device_clock {
	uint64_t begin_ns;
	uint64_t answer; /* of the batch's launch that stood on the device: a call's tag */
	struct device_exchanged exchanged; /* by all batches up to this */
	uint64_t end_ns, id; /* written as one */
	uint64_t ending_ns; /* of a run: when the last rows of its head began */
	uint64_t pad;
};

/* Words of other processes that wait for a batch, in pinned host memory; of that with this id. */
#define DEVICE_TELLS 32u

struct device_tells {
	uint64_t id, n;
	struct {
		uint64_t address, value;
	} words[DEVICE_TELLS];
};

struct device_finish {
	struct device_clock *clock;
	uint64_t id;
	const struct device_exchanged *exchanged; /* for the clock; NULL: 0 */
	const struct device_tells *tells;
	/* the batch's, if its launch stood on the device: it may have left; NULL: it did not */
	const struct device_call *heard;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Each a cudaError_t as int: 0 is success. */

/* The first of a launch that stands: hands on what it hears. */
MUST_CHECK int device_listen(const struct device_stand *stand, struct launch_to to);
/* Loads what follows an exchange, before there is one. */
MUST_CHECK int device_signals_init(void);
/* When all before it is complete. */
MUST_CHECK int device_finish(const struct device_finish *finish, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
