/*
 * status.c - the verb status: figures of the whole daemon.
 *
 * The scheduler fills them in one go, so that they fit together; what the loop alone knows is added
 * to the answer. A user is told of its own sessions: what others do is not to be seen in counters.
 */
#include "proto/clock.h"
#include "daemon/config/quota.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "daemon/weights/load_slots.h"
#include "daemon/weights/share.h"
#include "daemon/weights/weights.h"
#include "verbs.h"

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
	to->has_domain_pool_bytes_max = true;
	to->domain_pool_bytes_max = quota_domain_bytes(config, false);
	to->has_reserved_pool_bytes = true;
	to->reserved_pool_bytes = quota_reserved_extents(config) * config->extent_bytes;
	to->n_claims = from->n_claims;
	to->has_prompt_bytes = to->has_prompt_bytes_max = true;
	to->prompt_bytes = from->prompt_bytes;
	to->prompt_bytes_max = config->prompt_bytes;
	to->n_pins = from->n_pins;
	to->has_pinned_bytes = to->has_pinned_bytes_max = true;
	to->pinned_bytes = from->pinned_bytes;
	to->pinned_bytes_max = quota_pin_bytes(config);
	to->tokens_matched = from->tokens_matched;
	to->tokens_published = from->tokens_published;
	to->tokens_dropped = from->tokens_dropped;
	to->pages_evicted = from->pages_evicted;
	to->has_nodes_split = to->has_nodes_collapsed = to->has_nodes_evicted = true;
	to->nodes_split = from->nodes_split;
	to->nodes_collapsed = from->nodes_collapsed;
	to->nodes_evicted = from->nodes_evicted;
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
	to->has_steps_cut = to->has_cut_batches = true;
	to->steps_cut = from->steps_cut;
	to->cut_batches = from->cut_batches;
	to->has_plans_ahead = true;
	to->plans_ahead = from->plans_ahead;
	to->has_passes = to->has_pass_rows = to->has_pass_ns = true;
	to->passes = from->passes;
	to->pass_rows = from->pass_rows;
	to->pass_ns = from->pass_ns;
	to->has_pass_segments = to->has_passes_cut_in = to->has_pass_slot_waits = !from->own;
	to->pass_segments = from->pass_segments;
	to->passes_cut_in = from->passes_cut_in;
	to->pass_slot_waits = from->pass_slot_waits;
	to->has_passes_under_way = !from->own;
	to->passes_under_way = from->passes_under_way;
	to->has_passes_under_way_max = true;
	to->passes_under_way_max = BACKEND_PROGRAMS_AT_ONCE;
	to->has_turn_waits = to->has_turn_wait_ns = !from->own;
	to->turn_waits = from->turn_waits;
	to->turn_wait_ns = from->turn_wait_ns;
	to->windows_won = from->windows_won;
	to->windows_lost = from->windows_lost;
	to->window_ns = from->window_ns;
	to->n_input_waits = from->n_input_waits;
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
	to->has_domain_bytes_max = to->has_share_evicted = true;
	to->domain_bytes_max = from->domain_bytes;
	to->share_evicted = from->share_evicted;
}

/* Rows that live as long as the reply. */
struct tier_rows {
	Coppice__TierStatus rows[STORE_TIERS];
	Coppice__TierStatus *pointers[STORE_TIERS];
};

static void status_of_journal(Coppice__StatusReply *to, const struct store_tiers_stats *from)
{
	to->has_tier_models = to->has_tier_journal_bytes = 1;
	to->has_tier_journal_max = to->has_tier_journal_evicted = 1;
	to->tier_models = from->n_file_models;
	to->tier_journal_bytes = from->journal_bytes;
	to->tier_journal_max = from->journal_capacity;
	to->tier_journal_evicted = from->journal_evicted;
}

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
	if (from->journal_capacity > 0)
		status_of_journal(to, from);
}

static void status_of_limits(Coppice__StatusReply *to, struct sessions *home,
			     const struct sessions_use *use)
{
	to->has_max_sessions = to->has_reserved_sessions = true;
	to->max_sessions = home->config->max_sessions;
	to->reserved_sessions = home->config->reserved_sessions;
	to->has_n_fds = to->has_max_fds = to->has_n_unread_fds = true;
	to->n_fds = use->n_fds;
	to->max_fds = home->max_fds;
	to->n_unread_fds = use->n_unread_fds;
	to->device_arena_bytes = use->device_bytes;
	to->has_kept_arena_bytes = true;
	to->kept_arena_bytes = use->kept_bytes;
	to->has_arena_bytes = to->has_arena_bytes_max = true;
	to->arena_bytes = use->arena_bytes;
	to->arena_bytes_max = home->config->arena_bytes;
}

/* What one user may have, or a session. */
static void status_of_shares(Coppice__StatusReply *to, const struct config *config)
{
	to->has_max_domain_sessions = to->has_max_unread_fds = true;
	to->max_domain_sessions = config->max_domain_sessions;
	to->max_unread_fds = config->max_unread_fds;
	to->has_domain_arena_bytes_max = to->has_domain_prompt_bytes_max = true;
	to->domain_arena_bytes_max = config->domain_arena_bytes;
	to->domain_prompt_bytes_max = config->domain_prompt_bytes;
	to->has_device_arena_bytes_max = to->has_domain_device_arena_bytes_max = true;
	to->device_arena_bytes_max = config->device_arena_bytes;
	to->domain_device_arena_bytes_max = config->domain_device_arena_bytes;
	to->has_max_domain_pins = to->has_max_path_nodes = true;
	to->max_domain_pins = config->max_domain_pins;
	to->max_path_nodes = config->max_path_nodes;
}

/* For how long one may keep others waiting. */
static void status_of_times(Coppice__StatusReply *to, const struct config *config)
{
	to->has_batch_budget_ms = to->has_segment_ms = to->has_prompt_percent = true;
	to->batch_budget_ms = config->batch_budget_ms;
	to->segment_ms = config->segment_ms;
	to->prompt_percent = config->prompt_percent;
	to->has_max_token_ms = to->has_max_pin_ms = true;
	to->max_token_ms = config->max_token_ms;
	to->max_pin_ms = config->max_pin_ms;
}

static void status_of_loads(Coppice__StatusReply *to, struct weights_table *table)
{
	const struct weights_config *config = weights_table_config(table);

	to->has_n_loads = to->has_max_loads = to->has_max_domain_loads = true;
	to->n_loads = load_slots_count(table);
	to->max_loads = config->max_loads;
	to->max_domain_loads = config->domain_max_loads;
	to->has_load_stall_ms = to->has_load_least_rate = to->has_max_load_s = true;
	to->load_stall_ms = config->stall_ms;
	to->load_least_rate = config->least_rate;
	to->max_load_s = config->max_load_s;
}

static void status_of_weights(Coppice__StatusReply *to, struct weights_table *table)
{
	const struct weights_config *config;

	if (!table)
		return;
	config = weights_table_config(table);
	to->has_weights_bytes = to->has_weights_bytes_max = to->has_reserved_weights_bytes = true;
	to->weights_bytes = weights_bytes(table);
	to->weights_bytes_max = config->memory.bytes;
	to->reserved_weights_bytes = share_reserved_bytes(&config->memory);
	to->has_weight_names_bytes = to->has_weight_names_bytes_max = true;
	to->weight_names_bytes = weights_names_bytes(table);
	to->weight_names_bytes_max = config->names.bytes;
	to->has_domain_weights_bytes_max = to->has_domain_weight_names_bytes_max = true;
	to->domain_weights_bytes_max = config->memory.domain_bytes;
	to->domain_weight_names_bytes_max = config->names.domain_bytes;
	status_of_loads(to, table);
	to->has_memory_bytes = to->has_memory_bytes_max = true;
	to->memory_bytes = atomic_load(&weights_ledger(table)->all_bytes);
	to->memory_bytes_max = weights_ledger(table)->max_bytes;
}

static void status_answer(struct request *request)
{
	const struct sessions *home = request->home;
	const struct sched_status *figures = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__StatusReply status = COPPICE__STATUS_REPLY__INIT;
	struct tier_rows tiers;
	struct sessions_use use;

	if (reply_failed(request))
		return;
	status.version = (char *)COPPICE_VERSION;
	status.backend = (char *)home->backend_name;
	status.policy = (char *)plan_policy_name(home->config->policy.policy);
	status.loop = (char *)loop_name(home->loop);
	status.uptime_ns = clock_now_ns() - home->started_ns;
	status_of_store(&status, &figures->store, home->config);
	status_of_scheduler(&status, figures);
	if (figures->has_tiers)
		status_of_tiers(&status, &figures->tiers, &tiers);
	status.has_n_streamed = status.has_staged_bytes = 1;
	status.n_streamed = figures->n_streamed;
	status.staged_bytes = figures->staged_bytes;
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
	status.has_own = true;
	status.own = status.has_domain_pool_bytes = figures->own;
	status.domain_pool_bytes = figures->own_pool_bytes;
	lent_look(&request->home->lent);
	use = figures->own ? sessions_domain_use(request->home, request->session->peer.uid)
			   : sessions_use(request->home);
	status_of_limits(&status, request->home, &use);
	status_of_shares(&status, home->config);
	status_of_times(&status, home->config);
	if (!figures->own)
		status_of_weights(&status, home->weights);
	reply.status = &status;
	reply_send(request->session, &reply);
}

static void status_begin(struct session *s, uint64_t id, const void *message)
{
	struct request *request = request_begin(s, id, &verb_status, sizeof(struct sched_status));

	(void)message;
	if (request)
		request_post(request);
}

/* What a user may know: how much of the pool is lent it finds out by asking for pages, that the
 * daemon drains by asking for a sequence; else of its own alone. What is left is 0. */
static void status_own(const struct sched *s, uint64_t domain, struct sched_status *out)
{
	const struct sched_session *session;
	struct store_stats store;

	store_stats(s->core.store, &store);
	out->own = true;
	out->draining = s->core.draining;
	out->store.n_extents = store.n_extents;
	out->store.n_extents_used = store.n_extents_used;
	out->own_pool_bytes = store_domain_bytes(s->core.store, domain);
	LIST_FOREACH (session, &s->sessions, link) {
		if (session->domain != domain)
			continue;
		out->n_sessions++;
		out->n_lanes += session->n_lanes;
		out->store.n_seqs += session->n_seqs;
		out->entries += session->entries;
		out->store.tokens_matched += session->tokens_matched;
	}
}

static int status_serve(struct sched *s, struct sched_request *rq)
{
	struct sched_status *out = rq->room;

	if (!rq->privileged && rq->session) {
		status_own(s, rq->session->domain, out);
		return 0;
	}
	*out = s->core.stats;
	store_stats(s->core.store, &out->store);
	store_tiers_stats(s->core.store, &out->tiers);
	out->has_tiers = s->tiers.on;
	out->n_streamed = s->streamed.n_done;
	out->staged_bytes = s->streamed.staged_bytes;
	s->core.ops->counters(s->core.backend, &out->backend);
	out->n_sessions = s->n_sessions;
	out->n_lanes = s->lanes.n;
	out->n_input_waits = input_wait_n(&s->input_wait);
	out->passes_under_way = s->passes.n_under_way;
	for (uint32_t i = 0; i < out->store.n_devices && i < GROUP_DEVICES_MAX; i++)
		out->device_page_bytes[i] = store_device_bytes(s->core.store, i);
	out->draining = s->core.draining;
	return 0;
}

const struct verb verb_status = {.begin = status_begin,
				 .serve = status_serve,
				 .beside = beside_pass,
				 .answer = status_answer};
