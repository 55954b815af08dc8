/*
 * life.h - how a session comes and goes.
 *
 * It ends at hang-up, when its peer's process is gone, at a breach of protocol, when it does not
 * read its replies, or when the daemon stops. ENDING: nothing is read, no reply is sent. It is
 * freed by session_free_if_over once its loop operations have had their last callbacks and all its
 * requests are back, the one that ends it in the scheduler among them; until then the scheduler may
 * use its memory. Device arenas that the client did not say to have closed are kept until its
 * process is gone, and the session's bones with them. So is the socket, until the client has read
 * the descriptors that were sent to it, or nobody has its end open: until then they count for its
 * user. Only callbacks of the loop call session_free_if_over, after which the session may be gone.
 */
#ifndef COPPICED_LIFE_H
#define COPPICED_LIFE_H

#include "session.h"

/* A connection has come; fd becomes the session's, packets are on_packet's, with the session as
 * user. What goes wrong ends it, and is said in the log. */
void session_new(struct sessions *sessions, int fd, loop_callback on_packet);
/* Waits for the next packet. */
void session_receive(struct session *session);
/* The scheduler has taken it (or not: NULL). Reads on, or ends. */
void session_opened(struct session *session, struct sched_session *sched);
/* Begins the end; why goes to the log. Never frees. Of one that is ending: nothing. */
void session_end(struct session *session, const char *why, ...)
	__attribute__((format(printf, 2, 3)));
/* Frees it if it is over. */
void session_free_if_over(struct session *session);
/* Once a second: ends connections that have not said hello in time, and frees what is over. */
void sessions_expire(struct sessions *sessions);
/* Ends all of them, and waits for no client's process. */
void sessions_stop(struct sessions *sessions);

#endif
