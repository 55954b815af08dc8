/*
 * unread.c - how far a client has read, as its socket tells.
 *
 * SIOCOUTQ has what the kernel holds for packets that have not been read: at least PACKET_BYTES for
 * each, whatever is in it. So no more packets are unread than it has room for, and as packets are
 * read in order, these are the last ones. Where all are read, or the other end is closed, it is 0.
 */
#include "unread.h"

#include <assert.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

/* The kernel's own struct of a packet and what goes with it are larger. */
#define PACKET_BYTES 512u

void unread_add(struct unread *unread, bool has_fds)
{
	unread->n_packets++;
	if (!has_fds)
		return;
	assert(unread->n < UNREAD_ANSWERS_MAX);
	unread->answers[(unread->first + unread->n++) % UNREAD_ANSWERS_MAX] = unread->n_packets;
}

static bool is_unread(const struct unread *unread, uint64_t packet, uint64_t n_held)
{
	return unread->n_packets - packet < n_held;
}

uint32_t unread_fds(struct unread *unread, int fd)
{
	int bytes = 0;

	if (unread->n == 0)
		return 0;
	if (ioctl(fd, SIOCOUTQ, &bytes) < 0)
		return unread->n * UNREAD_FDS_AN_ANSWER;
	while (unread->n > 0 &&
	       !is_unread(unread, unread->answers[unread->first], (uint64_t)bytes / PACKET_BYTES)) {
		unread->first = (unread->first + 1) % UNREAD_ANSWERS_MAX;
		unread->n--;
	}
	return unread->n * UNREAD_FDS_AN_ANSWER;
}
