/*
 * service.h - what the service manager hears: READY, STATUS, WATCHDOG, STOPPING. Without one,
 * nothing is sent.
 *
 * The watchdog is fed from a timer at a third of its time, and only if the scheduler has gone round
 * or has answered a probe since the last time: an idle daemon lives, a stuck one dies.
 */
#ifndef COPPICED_SERVICE_H
#define COPPICED_SERVICE_H

#include "daemon/loop/loop.h"
#include "daemon/sched/core/status.h"
#include "daemon/session/request.h"

struct service {
	struct sessions *home; /* borrowed */
	bool has_manager;
	struct loop_op tick; /* looks after everything that has a time limit */
	struct loop_op watchdog;
	struct request probe, figures;
	bool probe_out, figures_out; /* posted, not back */
	bool probe_answered; /* since the watchdog was last fed */
	uint64_t progress; /* when the watchdog was last fed */
	uint32_t n_ticks;
	struct sched_status status;
	char text[160]; /* last STATUS */
};

void service_init(struct service *service, struct sessions *home);
void service_ready(void);
void service_stopping(struct service *service);

#endif
