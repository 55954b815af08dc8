/*
 * verbs.c - status, sessions, pin, unpin, evict, drain.
 */
#include "verbs.h"

#include "json.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_missing(struct ctl *ctl, const char *part)
{
	return call_fail(&ctl->call, -EPROTO, part, "coppiced's reply lacks its %s", part);
}

static double ratio(uint64_t a, uint64_t b)
{
	return b > 0 ? (double)a / (double)b : 0;
}

/* ---- looking -------------------------------------------------------------------------------- */

int verbs_look_status(struct ctl *ctl, struct verbs_look *look)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;
	CALL_REPLY reply = NULL;
	int r;

	request.status = &status;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (!reply->status)
		return fail_missing(ctl, "status");
	look->status = reply;
	reply = NULL;
	return 0;
}

/* Moves the sessions of one reply into the look. */
static int take_sessions(struct verbs_look *look, Coppice__SessionsReply *from)
{
	size_t n = look->n_sessions + from->n_session;
	Coppice__Session **sessions = realloc(look->sessions, (n + 1) * sizeof(*sessions));

	if (!sessions)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_session; i++)
		sessions[look->n_sessions + i] = from->session[i];
	from->n_session = 0;
	look->sessions = sessions;
	look->n_sessions = n;
	return 0;
}

int verbs_look_sessions(struct ctl *ctl, struct verbs_look *look)
{
	Coppice__Sessions ask = COPPICE__SESSIONS__INIT;
	size_t n_before;
	int r;

	do {
		Coppice__Request request = COPPICE__REQUEST__INIT;
		CALL_REPLY reply = NULL;
		request.sessions = &ask;
		r = call_ask(&ctl->call, &request, &reply);
		if (r < 0)
			return r;
		if (!reply->sessions)
			return fail_missing(ctl, "sessions");
		ask.has_cursor = 1;
		ask.cursor = reply->sessions->cursor;
		n_before = look->n_sessions;
		if (take_sessions(look, reply->sessions) < 0)
			return call_fail(&ctl->call, -ENOMEM, NULL, "out of memory");
	} while (ask.cursor != 0 && look->n_sessions > n_before);
	return 0;
}

void verbs_look_done(struct verbs_look *look)
{
	call_reply_freep(&look->status);
	for (size_t i = 0; i < look->n_sessions; i++)
		coppice__session__free_unpacked(look->sessions[i], NULL);
	free(look->sessions);
	*look = (struct verbs_look){0};
}

/* ---- status --------------------------------------------------------------------------------- */

static void print_kv_read(const char *what, uint64_t read, uint64_t alone)
{
	printf("  %-10s %s read; %s had each been alone", what, text_bytes(read).s,
	       text_bytes(alone).s);
	if (alone > 0)
		printf(" (%.1f %%)", 100 * ratio(read, alone));
	putchar('\n');
}

static void print_counts(const Coppice__StatusReply *s)
{
	printf("  sessions   %s, %s lanes, %s sequences\n", text_count(s->n_sessions).s,
	       text_count(s->n_lanes).s, text_count(s->n_seqs).s);
	printf("  tree       %s nodes, %s tokens, %s claims, %s pins\n", text_count(s->n_nodes).s,
	       text_count(s->n_tokens).s, text_count(s->n_claims).s, text_count(s->n_pins).s);
	printf("  pages      %s in use, %s; %s of %s lent to models\n", text_count(s->n_pages).s,
	       text_bytes(s->page_bytes).s, text_bytes(s->pool_bytes_used).s,
	       text_bytes(s->pool_bytes).s);
	if (s->device_arena_bytes || s->n_awaited)
		printf("  streams    %s of device arenas; %s lanes await their stream\n",
		       text_bytes(s->device_arena_bytes).s, text_count(s->n_awaited).s);
	printf("  tokens     %s matched, %s published, %s dropped as copies; %s pages evicted\n",
	       text_count(s->tokens_matched).s, text_count(s->tokens_published).s,
	       text_count(s->tokens_dropped).s, text_count(s->pages_evicted).s);
}

static void print_devices(const Coppice__StatusReply *s)
{
	if (s->n_device_page_bytes == 0)
		return;
	printf("  devices    %zu with", s->n_device_page_bytes);
	for (size_t i = 0; i < s->n_device_page_bytes; i++)
		printf("%s %s", i ? "," : "", text_bytes(s->device_page_bytes[i]).s);
	printf(" of pages; %s exchanged", text_bytes(s->exchange_bytes).s);
	if (s->has_exchange_ns)
		printf(" in %s", text_duration(s->exchange_ns).s);
	if (s->kv_bytes_moved)
		printf("; %s of KV was to move between them, and was refused\n",
		       text_bytes(s->kv_bytes_moved).s);
	else
		printf("; no KV moved between them\n");
}

static void print_work(const Coppice__StatusReply *s)
{
	printf("  entries    %s, %s failed\n", text_count(s->entries).s,
	       text_count(s->entries_failed).s);
	printf("  batches    %s; %s decode jobs with %.2f sessions each, %s prefill jobs, %s "
	       "rows\n",
	       text_count(s->batches).s, text_count(s->decode_jobs).s,
	       ratio(s->decode_sessions, s->decode_jobs), text_count(s->prefill_jobs).s,
	       text_count(s->rows).s);
	print_kv_read("KV", s->kv_bytes_read, s->kv_bytes_alone);
	print_kv_read("decode KV", s->decode_kv_bytes_read, s->decode_kv_bytes_alone);
	printf("  holds      %s won, %s lost, %s in all\n", text_count(s->holds_won).s,
	       text_count(s->holds_lost).s, text_duration(s->hold_ns).s);
	printf("  busy       %s (%.1f %%)\n", text_duration(s->busy_ns).s,
	       100 * ratio(s->busy_ns, s->uptime_ns));
}

static void print_tier(const Coppice__TierStatus *t)
{
	printf("  %-10s %s of %s; %s pages found here, %s in, %s out, %s waited\n", t->name,
	       text_bytes(t->used_bytes).s, text_bytes(t->capacity_bytes).s, text_count(t->hits).s,
	       text_bytes(t->bytes_in).s, text_bytes(t->bytes_out).s,
	       text_duration(t->waited_ns).s);
}

static void print_tiers(const Coppice__StatusReply *s)
{
	for (size_t i = 0; i < s->n_tier; i++)
		print_tier(s->tier[i]);
	if (s->n_tier == 0)
		return;
	printf("  moves      %s under way for %s sequences; %s could not be had, %s pages dropped, "
	       "%s altered\n",
	       text_count(s->tier_moves).s, text_count(s->tier_wants).s,
	       text_count(s->tier_wants_failed).s, text_count(s->tier_dropped).s,
	       text_count(s->tier_altered).s);
	if (s->n_passes)
		printf("  passes     %s of attention to longer paths than the pool holds, %s "
		       "staged\n",
		       text_count(s->n_passes).s, text_bytes(s->staged_bytes).s);
	if (s->tier_error)
		printf("  file       nothing is written to it any more: %s\n", s->tier_error);
}

/* Name and value, one a line. */
static void print_status(const Coppice__StatusReply *s)
{
	printf("coppiced %s, up %s%s\n", s->version, text_duration(s->uptime_ns).s,
	       s->draining ? ", draining" : "");
	printf("  backend    %s, policy %s, loop %s\n", s->backend, s->policy, s->loop);
	print_counts(s);
	print_devices(s);
	print_tiers(s);
	print_work(s);
}

int verbs_status(struct ctl *ctl)
{
	struct verbs_look look = {0};
	int r = verbs_look_status(ctl, &look);

	if (r == 0 && ctl->options.json)
		r = json_print(json_message(&look.status->status->base));
	else if (r == 0)
		print_status(look.status->status);
	verbs_look_done(&look);
	return r;
}

/* ---- sessions ------------------------------------------------------------------------------- */

void verbs_print_sessions(Coppice__Session *const *sessions, size_t n)
{
	printf("%8s %8s %-10s %-20s %5s %5s %10s %12s %12s %12s\n", "session", "pid", "user",
	       "name", "lanes", "seqs", "arenas", "entries", "matched", "computed");
	for (size_t i = 0; i < n; i++) {
		const Coppice__Session *s = sessions[i];
		char name[TEXT_QUOTED_BYTES];
		printf("%8" PRIu64 " %8" PRIu32 " %-10.10s %-20.20s %5" PRIu32 " %5" PRIu32
		       " %10s %12s %12s %12s\n",
		       s->id, s->pid, text_user(s->uid).s, text_quoted(name, sizeof(name), s->name),
		       s->n_lanes, s->n_seqs, text_bytes(s->arena_bytes).s,
		       text_count(s->entries).s, text_count(s->tokens_matched).s,
		       text_count(s->tokens_computed).s);
	}
}

static int print_sessions_json(const struct verbs_look *look)
{
	json_t *array = json_array();

	for (size_t i = 0; i < look->n_sessions; i++)
		json_array_append_new(array, json_message(&look->sessions[i]->base));
	return json_print(json_pack("{s:o}", "sessions", array));
}

int verbs_sessions(struct ctl *ctl)
{
	struct verbs_look look = {0};
	int r = verbs_look_sessions(ctl, &look);

	if (r == 0 && ctl->options.json)
		r = print_sessions_json(&look);
	else if (r == 0)
		verbs_print_sessions(look.sessions, look.n_sessions);
	verbs_look_done(&look);
	return r;
}

/* ---- doing ---------------------------------------------------------------------------------- */

int verbs_pin(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__NodePin pin = COPPICE__NODE_PIN__INIT;
	CALL_REPLY reply = NULL;
	int r;

	pin.node = ctl->options.argument;
	pin.for_ns = ctl->options.for_ns;
	request.node_pin = &pin;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (!reply->pin)
		return fail_missing(ctl, "pin");
	if (ctl->options.json)
		return json_print(json_message(&reply->pin->base));
	printf("pin %" PRIu64 " keeps node %" PRIu64 " and what is above it for %s\n",
	       reply->pin->pin, pin.node, text_duration(pin.for_ns).s);
	return 0;
}

int verbs_unpin(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Unpin unpin = COPPICE__UNPIN__INIT;
	CALL_REPLY reply = NULL;
	int r;

	unpin.pin = ctl->options.argument;
	request.unpin = &unpin;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (ctl->options.json)
		return json_print(json_pack("{s:I}", "unpinned", (json_int_t)unpin.pin));
	printf("pin %" PRIu64 " is gone\n", unpin.pin);
	return 0;
}

int verbs_evict(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	CALL_REPLY reply = NULL;
	int r;

	evict.model = (char *)ctl->options.model;
	evict.n_pages = ctl->options.n_pages;
	request.evict = &evict;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (!reply->evict)
		return fail_missing(ctl, "evict");
	if (ctl->options.json)
		return json_print(json_message(&reply->evict->base));
	printf("%s pages evicted\n", text_count(reply->evict->n_pages).s);
	return 0;
}

int verbs_drain(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Drain drain = COPPICE__DRAIN__INIT;
	CALL_REPLY reply = NULL;
	int r;

	drain.has_off = 1;
	drain.off = ctl->options.off;
	request.drain = &drain;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (ctl->options.json)
		return json_print(json_pack("{s:b}", "draining", !drain.off));
	puts(drain.off ? "coppiced takes new work again"
		       : "coppiced is draining: what runs may end, nothing new begins");
	return 0;
}
