/*
 * reply.h - from what the scheduler said to the packet that the client gets.
 *
 * A reply that cannot be sent ends the session: a client that does not read is cut off. To a
 * session that is ending nothing is sent.
 */
#ifndef COPPICED_REPLY_H
#define COPPICED_REPLY_H

#include "request.h"

#include <stdint.h>

/* A refusal, or a breach of protocol: code < 0, the field of the request or NULL, a sentence. */
void reply_error(struct session *session, uint64_t id, int code, const char *field,
		 const char *sentence, ...) __attribute__((format(printf, 5, 6)));

/* Room for a page of the tree. */
struct reply_tree_room {
	struct store_node_info nodes[SCHED_TREE_PAGE];
	char names[SCHED_TREE_PAGE][128];
};

/* What requests have as done: each sends the reply of its verb. */
void reply_plain(struct request *request);
void reply_hello(struct request *request);
void reply_model(struct request *request);
void reply_arena(struct request *request);
void reply_arena_removed(struct request *request);
void reply_lane(struct request *request);
void reply_lane_removed(struct request *request);
void reply_seq(struct request *request); /* open and wait */
void reply_seq_length(struct request *request);
void reply_pin(struct request *request);
void reply_status(struct request *request);
void reply_tree(struct request *request); /* lent: a struct reply_tree_room */
void reply_sessions(struct request *request);
void reply_models(struct request *request);
void reply_evict(struct request *request);

#endif
