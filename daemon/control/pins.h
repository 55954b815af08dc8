/* pins.h - what the verbs seq_pin and node_pin take and give. */
#ifndef COPPICED_PINS_H
#define COPPICED_PINS_H

#include <stdint.h>

struct pin_call {
	uint64_t what; /* a sequence's handle, or a node's id */
	uint64_t for_ns;
	uint64_t pin; /* answered: its id */
};

#endif
