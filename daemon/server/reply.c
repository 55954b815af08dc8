/*
 * reply.c - one function a verb, and the sending.
 */
#include "reply.h"

#include "control.pb-c.h"
#include "kernels/plan/plan.h"
#include "daemon/base/log.h"
#include "server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- sending ---- */

static void reply_send(struct session *session, const Coppice__Reply *reply, const int *fds,
		       uint32_t n_fds)
{
	uint8_t *packet = session->server->packet;
	size_t bytes = coppice__reply__get_packed_size(reply);
	int r;

	if (session->state == SESSION_ENDING)
		return;
	if (bytes > CHANNEL_MAX_BYTES) {
		reply_error(session, reply->id, -EMSGSIZE, NULL,
			    "The answer is too long for a message: %zu bytes.", bytes);
		return;
	}
	coppice__reply__pack(reply, packet);
	r = channel_send(session->fd, packet, bytes, fds, n_fds, MSG_DONTWAIT);
	if (r == -EAGAIN)
		session_end(session, "it does not read its replies");
	else if (r < 0)
		session_end(session, "a reply cannot be sent: %s", strerror(-r));
}

static void error_send(struct session *session, uint64_t id, int code, const char *field,
		       const char *sentence)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	reply.id = id;
	reply.code = code;
	reply.message = (char *)sentence;
	reply.field = (char *)field;
	reply_send(session, &reply, NULL, 0);
}

void reply_error(struct session *session, uint64_t id, int code, const char *field,
		 const char *sentence, ...)
{
	char text[240];
	va_list args;

	va_start(args, sentence);
	vsnprintf(text, sizeof(text), sentence, args);
	va_end(args);
	error_send(session, id, code, field, text);
}

/* Has the request failed? Then the reply is on its way. */
static bool failed(const struct request *request)
{
	const struct sched_request *answer = &request->sched;

	if (answer->code == 0)
		return false;
	error_send(request->session, answer->id, answer->code, answer->field,
		   answer->message[0] ? answer->message : strerror(-answer->code));
	return true;
}

static Coppice__Reply reply_to(const struct request *request)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	reply.id = request->sched.id;
	return reply;
}

static void send_with_fds(const struct request *request, const Coppice__Reply *reply)
{
	reply_send(request->session, reply, request->fds, request->n_fds);
}

void reply_plain(struct request *request)
{
	Coppice__Reply reply = reply_to(request);

	if (!failed(request))
		reply_send(request->session, &reply, NULL, 0);
}

/* ---- what a session has ---- */

void reply_hello(struct request *request)
{
	int fds[] = {request->server->parts.board_fd, request->session->bell_fd};
	Coppice__Reply reply = reply_to(request);
	Coppice__HelloReply hello = COPPICE__HELLO_REPLY__INIT;
	bool refused = failed(request);

	session_opened(request->session, refused ? NULL : request->sched.out.session);
	if (refused)
		return;
	hello.abi_version = ABI_VERSION;
	hello.daemon_version = (char *)COPPICE_VERSION;
	hello.session = request->session->id;
	hello.daemon_pid = (uint32_t)getpid();
	reply.hello = &hello;
	reply_send(request->session, &reply, fds, 2);
}

void reply_model(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__ModelReply model = COPPICE__MODEL_REPLY__INIT;

	if (failed(request))
		return;
	model.model = request->sched.out.model.model;
	model.page_tokens = request->sched.out.model.page_tokens;
	model.page_bytes = request->sched.out.model.page_bytes;
	reply.model = &model;
	reply_send(request->session, &reply, NULL, 0);
}

static void arena_drop(struct session *session, struct segment *arena)
{
	if (arena->map) {
		session->arena_bytes -= arena->bytes;
	} else {
		session->device_bytes -= arena->bytes;
		session->server->device_bytes -= arena->bytes;
	}
	segment_done(arena);
}

static void arena_handle(Coppice__ArenaReply *arena, struct request *request)
{
	struct backend_arena *device = &request->sched.out.arena;

	arena->has_handle = arena->has_device = true;
	arena->handle = (ProtobufCBinaryData){sizeof(device->handle), device->handle};
	arena->device = (ProtobufCBinaryData){sizeof(device->device), device->device};
}

void reply_arena(struct request *request)
{
	struct segment *segment = &request->session->arenas[request->number - 1];
	Coppice__Reply reply = reply_to(request);
	Coppice__ArenaReply arena = COPPICE__ARENA_REPLY__INIT;

	if (failed(request)) {
		arena_drop(request->session, segment);
		return;
	}
	segment->state = SEGMENT_READY;
	arena.arena = request->number;
	arena.bytes = segment->bytes;
	if (!segment->map)
		arena_handle(&arena, request);
	reply.arena = &arena;
	send_with_fds(request, &reply);
}

void reply_arena_removed(struct request *request)
{
	struct segment *segment = &request->session->arenas[request->number - 1];

	if (request->sched.code == 0)
		arena_drop(request->session, segment);
	else
		segment->state = SEGMENT_READY;
	reply_plain(request);
}

void reply_lane(struct request *request)
{
	struct segment *segment = &request->session->lanes[request->number - 1];
	Coppice__Reply reply = reply_to(request);
	Coppice__LaneReply lane = COPPICE__LANE_REPLY__INIT;

	if (failed(request)) {
		segment_done(segment);
		return;
	}
	segment->state = SEGMENT_READY;
	if (segment->fd >= 0) /* before the client can put a stream on it */
		guardian_link_look(&request->server->guardian);
	lane.lane = request->number;
	lane.bytes = segment->bytes;
	lane.generation = request->server->parts.board->generation;
	reply.lane = &lane;
	send_with_fds(request, &reply);
}

void reply_lane_removed(struct request *request)
{
	struct segment *segment = &request->session->lanes[request->number - 1];

	if (request->sched.code == 0) {
		guardian_link_forget(&request->server->guardian, request->session, segment);
		segment_done(segment);
	} else {
		segment->state = SEGMENT_READY;
	}
	reply_plain(request);
}

void reply_seq(struct request *request)
{
	const struct store_match *match = &request->sched.out.seq.match;
	Coppice__Reply reply = reply_to(request);
	Coppice__SeqReply seq = COPPICE__SEQ_REPLY__INIT;
	int code = request->sched.code;

	if (code != -ETIMEDOUT && failed(request))
		return;
	seq.seq = request->sched.out.seq.seq;
	seq.cached = match->cached;
	seq.pending = match->pending;
	seq.claimed = match->claimed;
	reply.seq = &seq;
	reply.code = code;
	if (code != 0)
		reply.message = request->sched.message[0]
					? request->sched.message
					: (char *)"The tokens are still being computed.";
	reply_send(request->session, &reply, NULL, 0);
}

void reply_seq_length(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__SeqLengthReply length = COPPICE__SEQ_LENGTH_REPLY__INIT;

	if (failed(request))
		return;
	length.n_tokens = request->sched.out.length.n_tokens;
	length.n_live = request->sched.out.length.n_live;
	reply.seq_length = &length;
	reply_send(request->session, &reply, NULL, 0);
}

void reply_pin(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__PinReply pin = COPPICE__PIN_REPLY__INIT;

	if (failed(request))
		return;
	pin.pin = request->sched.out.pin;
	reply.pin = &pin;
	reply_send(request->session, &reply, NULL, 0);
}

/* ---- reports ---- */

static void status_of_store(Coppice__StatusReply *to, const struct store_stats *from,
			    const struct config *config)
{
	to->n_seqs = from->n_seqs;
	to->n_nodes = from->n_nodes;
	to->n_tokens = from->n_tokens;
	to->n_pages = from->n_pages;
	to->page_bytes = from->page_bytes;
	to->pool_bytes = from->n_extents * config->extent_bytes;
	to->pool_bytes_used = from->n_extents_used * config->extent_bytes;
	to->n_claims = from->n_claims;
	to->n_pins = from->n_pins;
	to->tokens_matched = from->tokens_matched;
	to->tokens_published = from->tokens_published;
	to->tokens_dropped = from->tokens_dropped;
	to->pages_evicted = from->pages_evicted;
}

static void status_of_scheduler(Coppice__StatusReply *to, const struct sched_status *from)
{
	to->draining = from->draining;
	to->n_sessions = from->n_sessions;
	to->n_lanes = from->n_lanes;
	to->entries = from->entries;
	to->entries_failed = from->entries_failed;
	to->batches = from->batches;
	to->decode_jobs = from->decode_jobs;
	to->decode_sessions = from->decode_sessions;
	to->prefill_jobs = from->prefill_jobs;
	to->rows = from->backend.rows;
	to->kv_bytes_read = from->backend.kv_bytes_read;
	to->kv_bytes_alone = from->backend.kv_bytes_alone;
	to->decode_kv_bytes_read = from->decode_kv_bytes_read;
	to->decode_kv_bytes_alone = from->decode_kv_bytes_alone;
	to->holds_won = from->holds_won;
	to->holds_lost = from->holds_lost;
	to->hold_ns = from->hold_ns;
	to->n_awaited = from->n_awaited;
	to->busy_ns = from->backend.busy_ns;
}

static void tier_row(Coppice__TierStatus *to, const char *name, const struct store_tier_stats *from)
{
	coppice__tier_status__init(to);
	to->name = (char *)name;
	to->used_bytes = from->used_bytes;
	to->capacity_bytes = from->capacity_bytes;
	to->hits = from->hits;
	to->bytes_in = from->bytes_in;
	to->bytes_out = from->bytes_out;
	to->waited_ns = from->waited_ns;
}

/* Rows that live as long as the reply. */
struct tier_rows {
	Coppice__TierStatus rows[STORE_TIERS];
	Coppice__TierStatus *pointers[STORE_TIERS];
};

static void status_of_tiers(Coppice__StatusReply *to, const struct store_tiers_stats *from,
			    struct tier_rows *rows)
{
	static const char *const names[STORE_TIERS] = {
		[STORE_HOST] = "host", [STORE_FILE] = "file"};

	for (enum store_tier i = STORE_HOST; i < STORE_TIERS; i++) {
		if (!from->tiers[i].capacity_bytes)
			continue;
		tier_row(&rows->rows[to->n_tier], names[i], &from->tiers[i]);
		rows->pointers[to->n_tier] = &rows->rows[to->n_tier];
		to->n_tier++;
	}
	to->tier = rows->pointers;
	to->has_tier_wants = to->has_tier_moves = to->has_tier_wants_failed = 1;
	to->has_tier_dropped = to->has_tier_altered = 1;
	to->tier_wants = from->n_wants;
	to->tier_moves = from->n_moves;
	to->tier_wants_failed = from->wants_failed;
	to->tier_dropped = from->slices_dropped;
	to->tier_altered = from->images_bad;
	to->tier_error = (char *)from->error;
}

void reply_status(struct request *request)
{
	const struct server_parts *parts = &request->server->parts;
	const struct sched_status *figures = request->lent;
	Coppice__Reply reply = reply_to(request);
	Coppice__StatusReply status = COPPICE__STATUS_REPLY__INIT;
	struct tier_rows tiers;

	if (failed(request))
		return;
	status.version = (char *)COPPICE_VERSION;
	status.backend = (char *)parts->backend_name;
	status.policy = (char *)plan_policy_name(parts->config->policy.policy);
	status.loop = (char *)loop_name(parts->loop);
	status.uptime_ns = server_now_ns() - request->server->started_ns;
	status_of_store(&status, &figures->store, parts->config);
	status_of_scheduler(&status, figures);
	if (figures->has_tiers)
		status_of_tiers(&status, &figures->tiers, &tiers);
	status.has_n_passes = status.has_staged_bytes = 1;
	status.n_passes = figures->n_passes;
	status.staged_bytes = figures->staged_bytes;
	status.device_arena_bytes = request->server->device_bytes;
	if (figures->store.n_devices > 1) {
		status.n_device_page_bytes = figures->store.n_devices;
		status.device_page_bytes = (uint64_t *)(uintptr_t)figures->device_page_bytes;
		status.has_exchange_bytes = 1;
		status.exchange_bytes = figures->backend.exchange_bytes;
		/* bytes without time: nobody times what NCCL does */
		status.has_exchange_ns =
			figures->backend.exchange_ns > 0 || figures->backend.exchange_bytes == 0;
		status.exchange_ns = figures->backend.exchange_ns;
		status.has_kv_bytes_moved = 1;
		status.kv_bytes_moved = figures->backend.kv_bytes_moved;
	}
	reply.status = &status;
	reply_send(request->session, &reply, NULL, 0);
}

static void tree_node(Coppice__TreeNode *to, struct store_node_info *from)
{
	coppice__tree_node__init(to);
	to->id = from->id;
	to->parent = from->parent_id;
	to->model = (char *)from->model;
	to->domain = from->domain;
	to->salt = from->salt;
	to->depth = from->depth;
	to->pos = from->pos;
	to->n_tokens = from->n_tokens;
	to->n_pages = from->n_pages;
	to->n_users = from->n_users;
	to->hits = from->hits;
	to->head = from->head;
	to->n_head = from->n_head;
	to->has_n_pages_host = to->has_n_pages_file = to->has_n_pages_backed = 1;
	to->n_pages_host = from->n_pages_in[STORE_HOST];
	to->n_pages_file = from->n_pages_in[STORE_FILE];
	to->n_pages_backed = from->n_pages_backed;
}

/* A node takes at most 272 bytes (a name of 127, a domain of 32 bits, everything else at its
 * widest), so that SCHED_TREE_PAGE of them always fit a message. */
void reply_tree(struct request *request)
{
	struct reply_tree_room *room = request->lent;
	Coppice__Reply reply = reply_to(request);
	Coppice__TreeReply tree = COPPICE__TREE_REPLY__INIT;
	Coppice__TreeNode nodes[SCHED_TREE_PAGE], *pointers[SCHED_TREE_PAGE];

	if (failed(request))
		return;
	for (uint32_t i = 0; i < request->sched.out.tree.n; i++) {
		tree_node(&nodes[i], &room->nodes[i]);
		pointers[i] = &nodes[i];
	}
	tree.n_node = request->sched.out.tree.n;
	tree.cursor = tree.n_node < SCHED_TREE_PAGE ? 0 : request->sched.out.tree.cursor;
	tree.node = pointers;
	reply.tree = &tree;
	reply_send(request->session, &reply, NULL, 0);
}

static void session_row(Coppice__Session *to, const struct sched_session_info *from,
			struct session *session)
{
	coppice__session__init(to);
	to->id = from->id;
	to->pid = (uint32_t)session->peer.pid;
	to->uid = session->peer.uid;
	to->name = session->name;
	to->n_lanes = from->n_lanes;
	to->n_seqs = from->n_seqs;
	to->n_arenas = from->n_arenas;
	to->arena_bytes = from->arena_bytes;
	to->entries = from->entries;
	to->tokens_matched = from->tokens_matched;
	to->tokens_computed = from->tokens_computed;
	to->decode_steps = from->decode_steps;
}

/* The scheduler has the figures, the loop the names; sessions that are ending are left out. */
void reply_sessions(struct request *request)
{
	const struct sched_session_info *infos = request->lent;
	Coppice__Reply reply = reply_to(request);
	Coppice__SessionsReply sessions = COPPICE__SESSIONS_REPLY__INIT;
	Coppice__Session rows[SCHED_SESSIONS_PAGE], *pointers[SCHED_SESSIONS_PAGE];

	if (failed(request))
		return;
	for (uint32_t i = 0; i < request->sched.out.sessions.n; i++) {
		struct session *session = session_find(request->server, infos[i].id);
		size_t n = sessions.n_session;

		if (!session || session->state == SESSION_ENDING)
			continue;
		session_row(&rows[n], &infos[i], session);
		pointers[n] = &rows[n];
		sessions.n_session++;
	}
	sessions.cursor = request->sched.out.sessions.cursor;
	sessions.session = pointers;
	reply.sessions = &sessions;
	reply_send(request->session, &reply, NULL, 0);
}

static const char *const split_names[] = {"tokens", "heads", "home"};

static void model_row(Coppice__Model *to, struct sched_model_info *from)
{
	coppice__model__init(to);
	to->name = from->name;
	to->n_layers = from->shape.n_layers;
	to->n_q_heads = from->shape.n_q_heads;
	to->n_kv_heads = from->shape.n_kv_heads;
	to->head_dim = from->shape.head_dim;
	to->dtype = from->shape.dtype;
	to->page_tokens = from->shape.page_tokens;
	to->page_bytes = from->page_bytes;
	to->n_sessions = from->n_users;
	to->n_devices = from->n_devices;
	to->split = (char *)split_names[from->shape.split];
	to->split_why = from->split_why;
	to->has_first_kv_head = to->has_all_kv_heads = from->all_kv_heads != 0;
	to->first_kv_head = from->first_kv_head;
	to->all_kv_heads = from->all_kv_heads;
}

void reply_models(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__ModelsReply models = COPPICE__MODELS_REPLY__INIT;
	Coppice__Model rows[SCHED_MODELS_PAGE], *pointers[SCHED_MODELS_PAGE];

	if (failed(request))
		return;
	models.n_model = request->sched.out.models.n;
	models.model = pointers;
	models.cursor = request->sched.out.models.cursor;
	for (size_t i = 0; i < models.n_model; i++) {
		model_row(&rows[i], &request->sched.out.models.infos[i]);
		pointers[i] = &rows[i];
	}
	reply.models = &models;
	reply_send(request->session, &reply, NULL, 0);
}

/* The scheduler evicts a bounded number at a time: it is asked again while pages go and more are
 * wanted. */
void reply_evict(struct request *request)
{
	uint64_t *wanted = &request->sched.in.evict.n_pages; /* 0: all */
	uint64_t gone = request->sched.out.evict.n_pages;
	Coppice__Reply reply = reply_to(request);
	Coppice__EvictReply evict = COPPICE__EVICT_REPLY__INIT;

	if (failed(request))
		return;
	request->n_pages += gone;
	if (request->sched.out.evict.more && (*wanted == 0 || gone < *wanted) &&
	    request->session->state != SESSION_ENDING) {
		*wanted -= *wanted ? gone : 0;
		request->again = true;
		return;
	}
	evict.n_pages = request->n_pages;
	reply.evict = &evict;
	reply_send(request->session, &reply, NULL, 0);
}
