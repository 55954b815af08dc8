/*
 * status.c - coppicectl status: counters in words, a topic a line.
 *
 * Every number is a field of StatusReply; coppicectl(1) says what each counts. What has counted
 * nothing yet may be left out; a limit is said before anybody comes near it.
 */
#include "status.h"

#include "json.h"
#include "text.h"
#include "proto/clock.h"

#include <stdio.h>

static double ratio(uint64_t a, uint64_t b)
{
	return b > 0 ? (double)a / (double)b : 0;
}

static void print_kv_read(const char *what, uint64_t read, uint64_t alone)
{
	printf("  %-10s %s read; %s had each been alone", what, text_bytes(read).s,
	       text_bytes(alone).s);
	if (alone > 0)
		printf(" (%.1f %%)", 100 * ratio(read, alone));
	putchar('\n');
}

static void print_pinned(const Coppice__StatusReply *s)
{
	printf("  pinned     %s", text_bytes(s->pinned_bytes).s);
	if (s->pinned_bytes_max > 0)
		printf(", %s and %s pins at most for one user, each for %s",
		       text_bytes(s->pinned_bytes_max).s, text_count(s->max_domain_pins).s,
		       text_duration(s->max_pin_ms * NS_PER_MS).s);
	putchar('\n');
}

/* Of the pool, what a user may have; who sees no others is told what he has. */
static void print_share(const Coppice__StatusReply *s)
{
	printf("  share      ");
	if (s->own)
		printf("%s of the pool, ", text_bytes(s->domain_pool_bytes).s);
	if (s->domain_pool_bytes_max > 0)
		printf("%s at most for one user", text_bytes(s->domain_pool_bytes_max).s);
	else
		printf("no limit for one user");
	if (s->reserved_pool_bytes > 0)
		printf("; the last %s for who has less than is left",
		       text_bytes(s->reserved_pool_bytes).s);
	putchar('\n');
}

static void print_streams(const Coppice__StatusReply *s)
{
	printf("  streams    %s of %s of device arenas", text_bytes(s->device_arena_bytes).s,
	       text_bytes(s->device_arena_bytes_max).s);
	if (s->kept_arena_bytes)
		printf(" (%s freed, and open in some process)", text_bytes(s->kept_arena_bytes).s);
	printf("; %s lanes wait for inputs of theirs\n", text_count(s->n_input_waits).s);
}

/* For how long one may keep others waiting. */
static void print_times(const Coppice__StatusReply *s)
{
	printf("  a batch    %s ms at most where others wait; prompts make passes %s %% longer; a "
	       "token %s ms\n",
	       text_count(s->batch_budget_ms).s, text_count(s->prompt_percent).s,
	       text_count(s->max_token_ms).s);
}

/* What one user may take of what all have together. */
static void print_each(const Coppice__StatusReply *s)
{
	printf("  each user  %s sessions; %s of arenas, %s of the device's, %s of prompts' ids\n",
	       text_count(s->max_domain_sessions).s, text_bytes(s->domain_arena_bytes_max).s,
	       text_bytes(s->domain_device_arena_bytes_max).s,
	       text_bytes(s->domain_prompt_bytes_max).s);
	printf("  a session  %s descriptors unread; %s nodes a path\n",
	       text_count(s->max_unread_fds).s, text_count(s->max_path_nodes).s);
	print_times(s);
}

static void print_counts(const Coppice__StatusReply *s)
{
	/* All but this one, as coppicectl sessions has them. */
	printf("  sessions   %s, %s lanes, %s sequences\n", text_count(s->n_sessions - 1).s,
	       text_count(s->n_lanes).s, text_count(s->n_seqs).s);
	printf("  limits     %s sessions and %s for root; %s of %s descriptors, %s unread\n",
	       text_count(s->max_sessions).s, text_count(s->reserved_sessions).s,
	       text_count(s->n_fds).s, text_count(s->max_fds).s, text_count(s->n_unread_fds).s);
	print_each(s);
	printf("  tree       %s nodes, %s tokens, %s claims, %s pins\n", text_count(s->n_nodes).s,
	       text_count(s->n_tokens).s, text_count(s->n_claims).s, text_count(s->n_pins).s);
	print_pinned(s);
	printf("  arenas     %s of %s taken in host memory\n", text_bytes(s->arena_bytes).s,
	       text_bytes(s->arena_bytes_max).s);
	printf("  prompts    %s of %s taken by token ids that are not computed\n",
	       text_bytes(s->prompt_bytes).s, text_bytes(s->prompt_bytes_max).s);
	printf("  nodes      %s split, %s collapsed into their parents, %s evicted\n",
	       text_count(s->nodes_split).s, text_count(s->nodes_collapsed).s,
	       text_count(s->nodes_evicted).s);
	printf("  pages      %s in use, %s; %s of %s lent to models\n", text_count(s->n_pages).s,
	       text_bytes(s->page_bytes).s, text_bytes(s->pool_bytes_used).s,
	       text_bytes(s->pool_bytes).s);
	print_share(s);
	print_streams(s);
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

void status_print_memory(const char *title, const Coppice__StatusReply *s)
{
	if (s->has_memory_bytes)
		printf("%s%s of %s taken by KV and weights together\n", title,
		       text_bytes(s->memory_bytes).s, text_bytes(s->memory_bytes_max).s);
}

/* When one ends that is not done. */
static void print_load_ends(const Coppice__StatusReply *s)
{
	printf("  load ends  after %s without a byte",
	       text_duration(s->load_stall_ms * NS_PER_MS).s);
	if (s->load_least_rate || s->max_load_s)
		printf("; where another finds no place");
	if (s->load_least_rate)
		printf(" below %s a second", text_bytes(s->load_least_rate).s);
	if (s->max_load_s)
		printf("%s after %s", s->load_least_rate ? " or" : "",
		       text_duration(s->max_load_s * NS_PER_S).s);
	putchar('\n');
}

static void print_weights(const Coppice__StatusReply *s)
{
	printf("  weights    %s of %s", text_bytes(s->weights_bytes).s,
	       text_bytes(s->weights_bytes_max).s);
	if (s->reserved_weights_bytes)
		printf(", the last %s for newcomers", text_bytes(s->reserved_weights_bytes).s);
	printf("; names %s of %s\n", text_bytes(s->weight_names_bytes).s,
	       text_bytes(s->weight_names_bytes_max).s);
	printf("  loads      %s of %s under way; for one user %s, %s of weights and %s of names\n",
	       text_count(s->n_loads).s, text_count(s->max_loads).s,
	       text_count(s->max_domain_loads).s, text_bytes(s->domain_weights_bytes_max).s,
	       text_bytes(s->domain_weight_names_bytes_max).s);
	print_load_ends(s);
}

/* What others' tokens wait for. */
static void print_segments(const Coppice__StatusReply *s)
{
	printf("  segments   %s of passes, %s ms at most where others wait; %s passes cut in\n",
	       text_count(s->pass_segments).s, text_count(s->segment_ms).s,
	       text_count(s->passes_cut_in).s);
	printf("  under way  %s of %s passes, for whose end others waited %s segments\n",
	       text_count(s->passes_under_way).s, text_count(s->passes_under_way_max).s,
	       text_count(s->pass_slot_waits).s);
}

static void print_passes(const Coppice__StatusReply *s)
{
	if (s->passes)
		printf("  passes     %s of programs, %.1f tokens each, %s each\n",
		       text_count(s->passes).s, ratio(s->pass_rows, s->passes),
		       text_duration(s->pass_ns / s->passes).s);
	print_segments(s);
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
	print_passes(s);
	if (s->has_weights_bytes)
		print_weights(s);
	status_print_memory("  memory     ", s);
	print_kv_read("KV", s->kv_bytes_read, s->kv_bytes_alone);
	print_kv_read("decode KV", s->decode_kv_bytes_read, s->decode_kv_bytes_alone);
	printf("  windows    %s won, %s lost, %s in all\n", text_count(s->windows_won).s,
	       text_count(s->windows_lost).s, text_duration(s->window_ns).s);
	if (s->turn_waits)
		printf("  turns      %s waits for whose it was, %s in all\n",
		       text_count(s->turn_waits).s, text_duration(s->turn_wait_ns).s);
	if (s->steps_cut)
		printf("  cut        %s decode steps, into %s batches\n",
		       text_count(s->steps_cut).s, text_count(s->cut_batches).s);
	if (s->plans_ahead)
		printf("  plans      %s made ahead\n", text_count(s->plans_ahead).s);
	printf("  busy       %s (%.1f %%)\n", text_duration(s->busy_ns).s,
	       100 * ratio(s->busy_ns, s->uptime_ns));
}

static void print_tier(const Coppice__TierStatus *t)
{
	printf("  %-10s %s of %s; %s pages found here, %s in, %s out, %s waited\n", t->name,
	       text_bytes(t->used_bytes).s, text_bytes(t->capacity_bytes).s, text_count(t->hits).s,
	       text_bytes(t->bytes_in).s, text_bytes(t->bytes_out).s,
	       text_duration(t->waited_ns).s);
	if (t->has_domain_bytes_max)
		printf("  %-10s %s of it for a user; %s pages left for that\n", "",
		       text_bytes(t->domain_bytes_max).s, text_count(t->share_evicted).s);
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
	if (s->n_streamed)
		printf("  streamed   %s attentions to longer paths than the pool holds, %s "
		       "staged\n",
		       text_count(s->n_streamed).s, text_bytes(s->staged_bytes).s);
	if (s->has_tier_models)
		printf("  journal    %s of %s, pages of %s models; %s pages left the file for it\n",
		       text_bytes(s->tier_journal_bytes).s, text_bytes(s->tier_journal_max).s,
		       text_count(s->tier_models).s, text_count(s->tier_journal_evicted).s);
	if (s->tier_error)
		printf("  file       nothing is written to it any more: %s\n", s->tier_error);
}

/* What a user is told who may not look at others'. */
static void print_own(const Coppice__StatusReply *s)
{
	printf("  yours      %s sessions beside this one, %s lanes, %s sequences\n",
	       text_count(s->n_sessions - 1).s, text_count(s->n_lanes).s, text_count(s->n_seqs).s);
	printf("  limits     %s sessions; %s of %s descriptors, %s unread\n",
	       text_count(s->max_sessions).s, text_count(s->n_fds).s, text_count(s->max_fds).s,
	       text_count(s->n_unread_fds).s);
	print_each(s);
	printf("  pages      %s of %s lent to models\n", text_bytes(s->pool_bytes_used).s,
	       text_bytes(s->pool_bytes).s);
	print_share(s);
	printf("  entries    %s; %s tokens matched\n", text_count(s->entries).s,
	       text_count(s->tokens_matched).s);
}

/* Name and value, one a line. */
static void print_status(const Coppice__StatusReply *s)
{
	printf("coppiced %s, up %s%s\n", s->version, text_duration(s->uptime_ns).s,
	       s->draining ? ", draining" : "");
	printf("  backend    %s, policy %s, loop %s\n", s->backend, s->policy, s->loop);
	if (s->own) {
		print_own(s);
		return;
	}
	print_counts(s);
	print_devices(s);
	print_tiers(s);
	print_work(s);
}

int status_read(struct ctl *ctl, Coppice__Reply **ret)
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
		return call_fail_missing(&ctl->call, "status");
	*ret = reply;
	reply = NULL;
	return 0;
}

int status_run(struct ctl *ctl)
{
	CALL_REPLY reply = NULL;
	int r = status_read(ctl, &reply);

	if (r < 0)
		return r;
	if (ctl->options.json)
		return json_print(&ctl->call, json_message(&reply->status->base));
	print_status(reply->status);
	return 0;
}
