/*
 * control.h - a client's packet: unpacked, checked, and answered at once or posted to the
 * scheduler.
 */
#ifndef COPPICED_CONTROL_H
#define COPPICED_CONTROL_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_UNPACK_BYTES (256u << 10)

struct session;

/* Where a message is unpacked, and all the memory that it may take. */
struct unpack_arena {
	size_t used;
	alignas(max_align_t) uint8_t bytes[CONTROL_UNPACK_BYTES];
};

/* One packet of a session that is CONNECTED or OPEN. Whatever is wrong with it gets one error
 * reply; a packet that is no Request, and anything but a fitting Hello at first, also ends the
 * session. Does not block, never frees the session. */
void control_serve(struct session *session, const uint8_t *packet, size_t bytes);

#endif
