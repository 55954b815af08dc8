/* napping_daemon.h - the scheduler's rest and its completions over one lane, and nothing else of
 * it: a program of tso.h. */
#ifndef COPPICE_TEST_NAPPING_DAEMON_H
#define COPPICE_TEST_NAPPING_DAEMON_H

#include "proto/abi.h"

#include <stdbool.h>

enum { FLAG_DOORBELL, FLAG_BYTE }; /* of the session's doorbell; on the completion descriptor */

/* What napping_daemon works on. NOTIFY_FD: the lane has a completion descriptor. */
void napping_daemon_begin(struct abi_board *board, struct abi_lane *shared, uint64_t n_entries,
			  bool notifies);
/* Completes entries, and rests where there is none, until n_entries are done. */
void napping_daemon(void);

#endif
