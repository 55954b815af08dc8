/* pace.h - when to ask the daemon again for what takes its time. */
#ifndef COPPICE_CLIENT_PACE_H
#define COPPICE_CLIENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
	uint64_t deadline_ns, pause_ns;
};

struct pace pace_begin(uint64_t timeout_ns);
/* Waits; longer each time, up to 20 ms. False: the time is over. */
bool pace_sleep(struct pace *pace);

#endif
