/* decode_report.h - a round of coppice-bench decode, and what is printed of it. */
#ifndef COPPICE_BENCH_DECODE_REPORT_H
#define COPPICE_BENCH_DECODE_REPORT_H

#include "decode_client.h"
#include "decode_layers.h"

#include <sys/types.h>

struct decode_run {
	pid_t daemon;
	struct decode_board *board;
	pid_t pids[DECODE_CLIENTS];
	double daemon_bytes, client_bytes; /* Pss; of a client the mean */
	struct decode_layers layers_beside, layers_alone;
};

/* Others come and go behind the same document, which costs them next to nothing. */
bool decode_is_joined(const struct decode_options *o);
void decode_report(const struct decode_run *run, const struct decode_options *o, double bytes_s);

#endif
