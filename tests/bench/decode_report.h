/* decode_report.h - a round of coppice-bench decode, and what is printed of it. */
#ifndef COPPICE_BENCH_DECODE_REPORT_H
#define COPPICE_BENCH_DECODE_REPORT_H

#include "decode_client.h"
#include "decode_layers.h"
#include "decode_look.h"

#include <sys/types.h>

/* At which this machine, or its card, reads memory and multiplies. */
struct decode_rates {
	double bytes_s, operations_s;
};

struct decode_run {
	const struct bench_daemon *daemon;
	struct decode_board *board;
	pid_t pids[DECODE_CLIENTS];
	double daemon_bytes, client_bytes; /* Pss; of a client the mean */
	struct decode_look before, after; /* of the tokens that are timed alone */
	/* By the driver: before there was a daemon, and after; < 0: nothing says, or no GPU. */
	double device_before_bytes, device_bytes;
	uint32_t n_on_device; /* clients that have it open */
	struct decode_layers layers_beside, layers_alone;
};

/* Others come and go behind the same document, which costs them next to nothing. */
bool decode_is_joined(const struct decode_options *o);
void decode_report(const struct decode_run *run, const struct decode_options *o,
		   const struct decode_rates *rates);

#endif
