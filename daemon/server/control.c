/*
 * control.c - one function a verb: checks, then a request to the scheduler.
 *
 * Messages are unpacked into a fixed arena, so that no packet, whatever its fields, costs more
 * memory than that. Sequences and models are checked by the scheduler, which knows them.
 */
#include "control.h"

#include "control.pb-c.h"
#include "shm_verbs.h"
#include "daemon/base/log.h"
#include "reply.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define WAIT_MAX_NS UINT64_C(3600000000000)

/* ---- unpacking ---- */

static void *unpack_alloc(void *ctx, size_t bytes)
{
	struct unpack_arena *arena = ctx;
	size_t room = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
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

/* ---- helpers ---- */

/* Is this session allowed what concerns everybody? Else the reply is on its way. */
static bool may_rule(struct session *s, uint64_t id, const char *verb)
{
	if (s->privileged)
		return true;
	reply_error(s, id, -EPERM, NULL, "%s is for root and the daemon's own user.", verb);
	return false;
}

/* ---- hello ---- */

/* For logs and reports: printable ASCII, whatever the client sent. */
static void name_set(struct session *s, const char *name)
{
	size_t i;

	for (i = 0; name && name[i] && i < sizeof(s->name) - 1; i++)
		s->name[i] = name[i] >= ' ' && name[i] < 0x7f ? name[i] : '?';
	s->name[i] = 0;
}

static void session_join(struct session *s, uint64_t id)
{
	struct request *request = request_begin(s, id, SCHED_SESSION_ADD, reply_hello);

	if (!request) {
		session_end(s, "no memory");
		return;
	}
	s->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->bell_fd < 0) {
		reply_error(s, id, -errno, NULL, "The daemon has no descriptor to spare.");
		session_end(s, "no descriptor");
		request_free(request);
		return;
	}
	request->sched.in.session_add.id = s->id;
	request->sched.in.session_add.domain = s->peer.uid;
	request->sched.in.session_add.bell_fd = s->bell_fd;
	s->state = SESSION_JOINING;
	s->joined = true;
	request_post(request);
}

static void verb_hello(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Hello *hello = message;
	const char *refusal;

	if (s->state != SESSION_CONNECTED) {
		reply_error(s, id, -EPROTO, "hello", "Hello was said already.");
		return;
	}
	if (hello->abi_version != ABI_VERSION) {
		reply_error(s, id, -EPROTO, "abi_version",
			    "This daemon (%s) speaks ABI version %u, the client speaks version %u: "
			    "one of them must be updated.",
			    COPPICE_VERSION, ABI_VERSION, hello->abi_version);
		session_end(s, "ABI version %u", hello->abi_version);
		return;
	}
	name_set(s, hello->client_name);
	refusal = session_refusal(s);
	if (refusal) {
		reply_error(s, id, -EUSERS, NULL, "No session for you: %s.", refusal);
		session_end(s, "refused: %s", refusal);
		return;
	}
	session_join(s, id);
}

/* ---- models ---- */

/* What this version has no kernels for; the names are the protocol's. */
static const char *model_unserved(const Coppice__ModelOpen *m)
{
	if (m->window)
		return "window";
	if (m->soft_cap != 0) /* NaN too */
		return "soft_cap";
	return m->n_sinks ? "n_sinks" : NULL;
}

enum { DTYPE_FP8_E4M3 = 3, DTYPE_FP8_E5M2 = 4 }; /* of the protocol; its others are work_dtype's */

static bool dtype_check(struct session *s, uint64_t id, uint32_t dtype)
{
	if (dtype == DTYPE_FP8_E4M3 || dtype == DTYPE_FP8_E5M2)
		reply_error(s, id, -EOPNOTSUPP, "dtype",
			    "This version has no kernels for fp8 (%s): use 1 (fp16) or 2 (bf16).",
			    dtype == DTYPE_FP8_E4M3 ? "e4m3" : "e5m2");
	else if (dtype > WORK_BF16)
		reply_error(s, id, -EINVAL, "dtype",
			    "The dtype must be 0 (fp32), 1 (fp16) or 2 (bf16), not %u.", dtype);
	else
		return true;
	return false;
}

static bool model_check(struct session *s, uint64_t id, const Coppice__ModelOpen *m)
{
	size_t name_bytes = strlen(m->name);
	const char *unserved = model_unserved(m);

	if (unserved)
		reply_error(s, id, -EOPNOTSUPP, unserved,
			    "This version has no kernels for %s: it must be 0.", unserved);
	else if (name_bytes < 1 || name_bytes >= sizeof((struct sched_request){0}.in.model.name))
		reply_error(s, id, -EINVAL, "name", "A model's name has 1 to 127 bytes, not %zu.",
			    name_bytes);
	else if (m->head_dim < 16 || m->head_dim > 256 || m->head_dim % 16)
		reply_error(s, id, -EINVAL, "head_dim",
			    "The head dimension must be a multiple of 16 up to 256, not %u.",
			    m->head_dim);
	else if (m->page_tokens && m->page_tokens != 16 && m->page_tokens != 32 &&
		 m->page_tokens != 64)
		reply_error(s, id, -EINVAL, "page_tokens",
			    "A page has 16, 32 or 64 tokens (0: the daemon's choice), not %u.",
			    m->page_tokens);
	else
		return dtype_check(s, id, m->dtype);
	return false;
}

static void verb_model_open(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ModelOpen *m = message;
	struct request *request;

	if (!model_check(s, id, m))
		return;
	request = request_begin(s, id, SCHED_MODEL_OPEN, reply_model);
	if (!request)
		return;
	strcpy(request->sched.in.model.name, m->name);
	request->sched.in.model.shape = (struct work_shape){
		.n_layers = m->n_layers,
		.n_q_heads = m->n_q_heads,
		.n_kv_heads = m->n_kv_heads,
		.head_dim = m->head_dim,
		.page_tokens = m->page_tokens,
		.dtype = (enum work_dtype)m->dtype,
		.scale = m->scale,
	};
	request->sched.in.model.weights_hash = m->weights_hash;
	request->sched.in.model.first_kv_head = m->first_kv_head;
	request->sched.in.model.own_kv_heads = m->own_kv_heads;
	request_post(request);
}

/* ---- sequences ---- */

/* Where the token ids lie, or NULL after a reply that says what is wrong. */
static const uint32_t *tokens_find(struct session *s, uint64_t id, const Coppice__SeqOpen *m)
{
	const struct config *config = s->server->parts.config;
	const struct segment *arena = segment_find(s->arenas, config->max_arenas, m->arena);
	uint64_t bytes = (uint64_t)m->n_tokens * sizeof(uint32_t);

	if (!arena)
		reply_error(s, id, -ENOENT, "arena", "There is no arena %u in this session.",
			    m->arena);
	else if (!arena->map)
		reply_error(s, id, -EINVAL, "arena",
			    "Arena %u is device memory: token ids lie in host memory.", m->arena);
	else if (!segment_find(s->lanes, config->max_lanes, m->lane))
		reply_error(s, id, -ENOENT, "lane", "There is no lane %u in this session.",
			    m->lane);
	else if (m->n_tokens == 0)
		reply_error(s, id, -EINVAL, "n_tokens", "A prompt has at least one token.");
	else if (m->n_tokens > config->max_seq_tokens)
		reply_error(s, id, -E2BIG, "n_tokens",
			    "A prompt of %u tokens is too long: at most %u are taken.", m->n_tokens,
			    config->max_seq_tokens);
	else if (m->offset % sizeof(uint32_t))
		reply_error(s, id, -EINVAL, "offset",
			    "Token ids lie at multiples of 4 bytes, not at %" PRIu64 ".",
			    m->offset);
	else if (m->offset > arena->bytes || bytes > arena->bytes - m->offset)
		reply_error(s, id, -ERANGE, "offset",
			    "%u token ids at %" PRIu64
			    " reach beyond arena %u, which has %zu bytes.",
			    m->n_tokens, m->offset, m->arena, arena->bytes);
	else
		return (const uint32_t *)((const char *)arena->map + m->offset);
	return NULL;
}

static void verb_seq_open(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqOpen *m = message;
	const uint32_t *tokens = tokens_find(s, id, m);
	struct request *request;

	if (!tokens)
		return;
	request = request_begin_lent(s, id, SCHED_SEQ_OPEN, reply_seq,
				     m->n_tokens * sizeof(uint32_t));
	if (!request)
		return;
	memcpy(request->lent, tokens, m->n_tokens * sizeof(uint32_t)); /* the only look at them */
	request->sched.in.open.model = m->model;
	request->sched.in.open.lane = m->lane;
	request->sched.in.open.tokens = request->lent;
	request->sched.in.open.n_tokens = m->n_tokens;
	request->sched.in.open.salt = m->salt;
	request_post(request);
}

static void verb_seq_wait(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqWait *m = message;
	struct request *request = request_begin(s, id, SCHED_SEQ_WAIT, reply_seq);

	if (!request)
		return;
	request->sched.in.seq.seq = m->seq;
	request->sched.in.seq.for_ns = m->timeout_ns < WAIT_MAX_NS ? m->timeout_ns : WAIT_MAX_NS;
	request_post(request);
}

static void verb_seq_length(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqLength *m = message;
	struct request *request = request_begin(s, id, SCHED_SEQ_LENGTH, reply_seq_length);

	if (!request)
		return;
	request->sched.in.seq.seq = m->seq;
	request_post(request);
}

static void verb_seq_close(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqClose *m = message;
	struct request *request = request_begin(s, id, SCHED_SEQ_CLOSE, reply_plain);

	if (!request)
		return;
	request->sched.in.seq.seq = m->seq;
	request_post(request);
}

/* ---- pins ---- */

static bool pin_check(struct session *s, uint64_t id, uint64_t for_ns)
{
	uint64_t max_ms = s->server->parts.config->max_pin_ms;

	if (for_ns > 0 && for_ns <= max_ms * 1000000u)
		return true;
	reply_error(s, id, -EINVAL, "for_ns",
		    "A pin holds for 1 to %" PRIu64 " ns (max_pin_ms), not for %" PRIu64 ".",
		    max_ms * 1000000u, for_ns);
	return false;
}

static void verb_seq_pin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqPin *m = message;
	struct request *request;

	if (!pin_check(s, id, m->for_ns))
		return;
	request = request_begin(s, id, SCHED_SEQ_PIN, reply_pin);
	if (!request)
		return;
	request->sched.in.seq.seq = m->seq;
	request->sched.in.seq.for_ns = m->for_ns;
	request_post(request);
}

static void verb_node_pin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__NodePin *m = message;
	struct request *request;

	if (!may_rule(s, id, "node_pin") || !pin_check(s, id, m->for_ns))
		return;
	request = request_begin(s, id, SCHED_NODE_PIN, reply_pin);
	if (!request)
		return;
	request->sched.in.node_pin.node = m->node;
	request->sched.in.node_pin.for_ns = m->for_ns;
	request_post(request);
}

static void verb_unpin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Unpin *m = message;
	struct request *request = request_begin(s, id, SCHED_UNPIN, reply_plain);

	if (!request)
		return;
	request->sched.in.pin = m->pin;
	request_post(request);
}

/* ---- reports and rule ---- */

static void verb_status(struct session *s, uint64_t id, const void *message)
{
	struct request *request =
		request_begin_lent(s, id, SCHED_STATUS, reply_status, sizeof(struct sched_status));

	(void)message;
	if (!request)
		return;
	request->sched.out.status = request->lent;
	request_post(request);
}

static void verb_tree(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Tree *m = message;
	struct request *request =
		request_begin_lent(s, id, SCHED_TREE, reply_tree, sizeof(struct reply_tree_room));
	struct reply_tree_room *room;

	if (!request)
		return;
	room = request->lent;
	request->sched.in.cursor = m->cursor;
	request->sched.out.tree.nodes = room->nodes;
	request->sched.out.tree.names = room->names;
	request_post(request);
}

static void verb_sessions(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Sessions *m = message;
	struct request *request =
		request_begin_lent(s, id, SCHED_SESSIONS, reply_sessions,
				   SCHED_SESSIONS_PAGE * sizeof(struct sched_session_info));

	if (!request)
		return;
	request->sched.in.cursor = m->cursor;
	request->sched.out.sessions.infos = request->lent;
	request_post(request);
}

static void verb_models(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Models *m = message;
	struct request *request =
		request_begin_lent(s, id, SCHED_MODELS, reply_models,
				   SCHED_MODELS_PAGE * sizeof(struct sched_model_info));

	if (!request)
		return;
	request->sched.in.cursor = m->cursor;
	request->sched.out.models.infos = request->lent;
	request_post(request);
}

static void verb_evict(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Evict *m = message;
	struct request *request;

	if (!may_rule(s, id, "evict"))
		return;
	if (m->model && strlen(m->model) >= sizeof(request->sched.in.evict.model)) {
		reply_error(s, id, -EINVAL, "model", "A model's name has at most 127 bytes.");
		return;
	}
	request = request_begin(s, id, SCHED_EVICT, reply_evict);
	if (!request)
		return;
	if (m->model)
		strcpy(request->sched.in.evict.model, m->model);
	request->sched.in.evict.n_pages = m->n_pages;
	request_post(request);
}

static void verb_drain(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Drain *m = message;
	struct request *request;

	if (!may_rule(s, id, "drain"))
		return;
	request = request_begin(s, id, SCHED_DRAIN, reply_plain);
	if (!request)
		return;
	request->sched.in.drain = !m->off;
	request_post(request);
}

/* ---- the end ---- */

static void verb_leave(struct session *s, uint64_t id, const void *message)
{
	(void)id;
	(void)message;
	s->has_left = true;
	session_end(s, "it has left");
}

/* ---- dispatch ---- */

typedef void (*verb_function)(struct session *s, uint64_t id, const void *message);

/* By field number in Request. */
static const verb_function verbs[] = {
	[2] = verb_hello,      [3] = verb_model_open, [4] = lend_arena_new, [5] = lend_arena_free,
	[6] = lend_lane_new,   [7] = lend_lane_free,  [8] = verb_seq_open,  [9] = verb_seq_wait,
	[10] = verb_seq_close, [11] = verb_seq_pin,   [12] = verb_unpin,    [13] = verb_status,
	[14] = verb_tree,      [15] = verb_sessions,  [16] = verb_node_pin, [17] = verb_evict,
	[18] = verb_drain,     [19] = verb_leave,     [20] = verb_models,   [22] = verb_seq_length,
};

struct verb {
	verb_function serve;
	const void *message;
};

/* How many verbs are set, and the last of them. */
static unsigned verb_find(const Coppice__Request *request, struct verb *ret)
{
	const ProtobufCMessageDescriptor *descriptor = &coppice__request__descriptor;
	unsigned n = 0;

	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		const void *message;

		if (field->id >= sizeof(verbs) / sizeof(*verbs) || !verbs[field->id])
			continue;
		message = *(void *const *)((const char *)request + field->offset);
		if (!message)
			continue;
		*ret = (struct verb){verbs[field->id], message};
		n++;
	}
	return n;
}

static void request_serve(struct session *s, const Coppice__Request *request)
{
	struct verb verb = {0};
	unsigned n = verb_find(request, &verb);

	if (n > 1) {
		reply_error(s, request->id, -EINVAL, NULL,
			    "The request has %u verbs; exactly one is wanted.", n);
	} else if (n == 0) {
		reply_error(s, request->id, -EINVAL, NULL,
			    "The request has no verb that this daemon (%s) knows.",
			    COPPICE_VERSION);
	} else if (s->state == SESSION_CONNECTED && verb.serve != verb_hello) {
		reply_error(s, request->id, -EPROTO, "hello",
			    "The first request of a connection must be hello.");
		session_end(s, "it did not say hello first");
	} else {
		verb.serve(s, request->id, verb.message);
	}
}

void control_serve(struct session *session, const uint8_t *packet, size_t bytes)
{
	struct unpack_arena *arena = &session->server->unpack;
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
