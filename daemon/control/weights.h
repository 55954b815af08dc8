/* weights.h - a session's weights by their number, for the verbs that name them. */
#ifndef COPPICED_CONTROL_WEIGHTS_H
#define COPPICED_CONTROL_WEIGHTS_H

#include "daemon/session/session.h"

/* Those of the session's number, or what stands for them; what they hold is for who has asked
 * weights_ready() too. NULL: an answer is on its way. */
struct weights *session_weights(struct session *s, uint64_t id, uint32_t number);

#endif
