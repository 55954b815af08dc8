/*
 * control.c - a packet becomes a verb.
 *
 * Messages are unpacked into a fixed arena, so that no packet, whatever its fields, costs more
 * memory than that. A request has exactly one verb, and the first of a connection is hello.
 */
#include "control.h"

#include "daemon/session/life.h"
#include "daemon/session/reply.h"
#include "verbs.h"
#include "proto/arith.h"

#include <errno.h>

/* ---- unpacking ---- */

static void *unpack_alloc(void *ctx, size_t bytes)
{
	struct unpack_arena *arena = ctx;
	size_t room = align_to(bytes, alignof(max_align_t));
	void *p = &arena->bytes[arena->used];

	if (room < bytes || room > CONTROL_UNPACK_BYTES - arena->used)
		return NULL;
	arena->used += room;
	return p;
}

static void unpack_free(void *ctx, void *p)
{
	(void)ctx;
	(void)p;
}

/* ---- dispatch ---- */

static const struct {
	size_t offset; /* of the verb's message in a Request */
	const struct verb *verb;
} verbs[] = {
#define VERB(name) {offsetof(Coppice__Request, name), &verb_##name},
#include "verbs.def"
};

struct found {
	const struct verb *verb;
	const void *message;
};

/* How many verbs are set, and the last of them. */
static unsigned verb_find(const Coppice__Request *request, struct found *ret)
{
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		const void *message = *(void *const *)((const char *)request + verbs[i].offset);

		if (!message)
			continue;
		*ret = (struct found){verbs[i].verb, message};
		n++;
	}
	return n;
}

static void request_serve(struct session *s, const Coppice__Request *request)
{
	struct found found = {0};
	unsigned n = verb_find(request, &found);

	if (n > 1) {
		reply_error(s, request->id, -EINVAL, NULL,
			    "The request has %u verbs; exactly one is wanted.", n);
	} else if (n == 0) {
		reply_error(s, request->id, -EINVAL, NULL,
			    "The request has no verb that this daemon (%s) knows.",
			    COPPICE_VERSION);
	} else if (s->state == SESSION_CONNECTED && found.verb != &verb_hello) {
		reply_error(s, request->id, -EPROTO, "hello",
			    "The first request of a connection must be hello.");
		session_end(s, "it did not say hello first");
	} else {
		found.verb->begin(s, request->id, found.message);
	}
}

void control_serve(struct session *session, const uint8_t *packet, size_t bytes)
{
	struct unpack_arena *arena = session->home->unpack;
	ProtobufCAllocator allocator = {unpack_alloc, unpack_free, arena};
	Coppice__Request *request;

	arena->used = 0;
	request = coppice__request__unpack(&allocator, bytes, packet);
	if (request) {
		request_serve(session, request);
		return;
	}
	reply_error(session, 0, -EBADMSG, NULL,
		    "The message is no request of this protocol; the connection ends.");
	session_end(session, "a message that is no request");
}
