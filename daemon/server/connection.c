/*
 * connection.c - one packet after the other, each in a turn of its user's.
 *
 * The next one is received when one has been served: whatever a client sends, one packet of each of
 * its sessions is all that waits here. While a session joins nothing is read: hello's answer comes
 * first, and reads on.
 */
#include "connection.h"

#include "daemon/control/control.h"
#include "daemon/session/life.h"
#include "daemon/session/reply.h"

#include <errno.h>
#include <string.h>

static void packet_serve(struct session *session, int result)
{
	if (result == 0) {
		session_end(session, "hang-up");
	} else if (result < 0) {
		session_end(session, "%s", strerror(-result));
	} else if (session->msg.msg_flags & MSG_TRUNC) {
		reply_error(session, 0, -EMSGSIZE, NULL,
			    "the message is longer than %u bytes; the connection ends",
			    CHANNEL_MAX_BYTES);
		session_end(session, "a message of more than %u bytes", CHANNEL_MAX_BYTES);
	} else {
		control_serve(session, session->packet, (size_t)result);
	}
}

static void on_turn(struct errand *errand)
{
	struct session *session = errand->of;

	if (session->state != SESSION_ENDING)
		packet_serve(session, session->arrived_bytes);
	if (session->state == SESSION_ENDING)
		session_free_if_over(session);
	else if (session->state != SESSION_JOINING)
		session_receive(session);
}

void connection_packet(struct loop_op *op, int result)
{
	struct session *session = op->user;

	session->arrived = (struct errand){.serve = on_turn, .of = session};
	session->arrived_bytes = result;
	errand_add(session->user, &session->arrived);
}
