/* wait.h - the completion of tickets, for those that need more than its status. */
#ifndef COPPICE_CLIENT_WAIT_H
#define COPPICE_CLIENT_WAIT_H

#include "lane.h"

/* As coppice_wait, and copies the completion where the ticket has one. */
MUST_CHECK int wait_completion(struct coppice_lane *lane, uint64_t ticket, uint64_t timeout_ns,
			       struct abi_completion *ret);
/* Until the oldest entry in flight has completed, however it ended: then there is room for one
 * more. 0, -ETIMEDOUT, -ECONNRESET, -EOWNERDEAD; explains. */
MUST_CHECK int wait_oldest(struct coppice_lane *lane, uint64_t timeout_ns);

/* Submits one entry; -EAGAIN: the lane is full. */
typedef int wait_submit(struct coppice_lane *lane, const void *order, uint64_t *ret_ticket);
/* Does so, once there is room, and waits until it has completed: coppice_step_wait's contract. */
MUST_CHECK int wait_submitted(struct coppice_lane *lane, wait_submit *submit, const void *order,
			      uint64_t timeout_ns, uint64_t *ret_ticket);

#endif
