/*
 * top_view.c - rates for eyes, counters for programs.
 *
 * A session is found again by its number, which the daemon never gives twice. One that was not
 * there before began at zero.
 */
#include "top_view.h"

#include "json.h"
#include "sessions.h"
#include "status.h"
#include "table.h"
#include "text.h"
#include "proto/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Above the first session, the titles of the table among them; of who sees his own alone. */
#define HEAD_LINES 7
#define OWN_HEAD_LINES 5

int top_look_read(struct ctl *ctl, struct top_look *ret)
{
	int r;

	*ret = (struct top_look){.at_ns = clock_now_ns()};
	r = status_read(ctl, &ret->status);
	return r < 0 ? r : sessions_read(ctl, &ret->sessions);
}

void top_look_done(struct top_look *look)
{
	call_reply_freep(&look->status);
	listing_done(&look->sessions);
	*look = (struct top_look){0};
}

static double per_s(uint64_t now, uint64_t then, double seconds)
{
	return seconds > 0 && now >= then ? (double)(now - then) / seconds : 0;
}

static struct text rate(uint64_t now, uint64_t then, double seconds)
{
	return text_count((uint64_t)(per_s(now, then, seconds) + 0.5));
}

/* ---- the daemon ----------------------------------------------------------------------------- */

static void print_decode(const Coppice__StatusReply *now, const Coppice__StatusReply *then,
			 double s)
{
	uint64_t jobs = now->decode_jobs - then->decode_jobs;
	uint64_t read = now->decode_kv_bytes_read - then->decode_kv_bytes_read;
	uint64_t alone = now->decode_kv_bytes_alone - then->decode_kv_bytes_alone;
	double sessions = (double)(now->decode_sessions - then->decode_sessions);

	printf("  decode  %.2f sessions a batch, KV read %s/s", jobs ? sessions / (double)jobs : 0,
	       text_bytes((uint64_t)per_s(read, 0, s)).s);
	if (alone > 0)
		printf(", %.1f %% of each alone", 100 * (double)read / (double)alone);
	putchar('\n');
}

/* What is not in a pass is idle, as far as programs go. */
static void print_programs(const Coppice__StatusReply *now, const Coppice__StatusReply *then,
			   double s)
{
	double n = (double)(now->passes - then->passes);
	double rows = (double)(now->pass_rows - then->pass_rows);
	double pass_ms = (double)(now->pass_ns - then->pass_ns) / 1e6, idle_ms = s * 1e3 - pass_ms;

	printf("  passes  %s tokens/s", rate(now->pass_rows, then->pass_rows, s).s);
	if (n > 0)
		printf(", %.1f a pass, %.2f ms each, %.2f ms idle between", rows / n, pass_ms / n,
		       idle_ms > 0 ? idle_ms / n : 0);
	putchar('\n');
}

static void print_daemon(const Coppice__StatusReply *now, const Coppice__StatusReply *then,
			 double s)
{
	if (now->own) {
		printf("  work    %s entries/s, %s tokens matched/s of yours\n",
		       rate(now->entries, then->entries, s).s,
		       rate(now->tokens_matched, then->tokens_matched, s).s);
		printf("  pool    %s of %s\n", text_bytes(now->pool_bytes_used).s,
		       text_bytes(now->pool_bytes).s);
		return;
	}
	printf("  work    %s entries/s, %s batches/s, busy %.0f %%\n",
	       rate(now->entries, then->entries, s).s, rate(now->batches, then->batches, s).s,
	       per_s(now->busy_ns, then->busy_ns, s) / 1e7);
	printf("  tokens  %s matched/s, %s published/s\n",
	       rate(now->tokens_matched, then->tokens_matched, s).s,
	       rate(now->tokens_published, then->tokens_published, s).s);
	print_decode(now, then, s);
	if (now->passes)
		print_programs(now, then, s);
	printf("  KV      %s tokens in %s; pool %s of %s\n", text_count(now->n_tokens).s,
	       text_bytes(now->page_bytes).s, text_bytes(now->pool_bytes_used).s,
	       text_bytes(now->pool_bytes).s);
	if (now->weights_bytes)
		printf("  memory  %s of %s, of which weights %s\n", text_bytes(now->memory_bytes).s,
		       text_bytes(now->memory_bytes_max).s, text_bytes(now->weights_bytes).s);
}

/* ---- sessions ------------------------------------------------------------------------------- */

#define USER_BYTES 8 /* with a name of 16 a row has 80 columns, however busy its session */

static const struct table_column columns[] = {
	{.title = "session"},
	{.title = "pid"},
	{.title = "user", .is_text = true},
	{.title = "name", .is_text = true},
	{.title = "seqs"},
	{.title = "entries/s"},
	{.title = "matched/s"},
	{.title = "computed/s"},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))

static const Coppice__Session *session_at(const struct listing *sessions, size_t i)
{
	return (const Coppice__Session *)sessions->items[i];
}

static const Coppice__Session *session_before(const struct listing *sessions, uint64_t id)
{
	static const Coppice__Session nobody = COPPICE__SESSION__INIT;

	for (size_t i = 0; i < sessions->n; i++)
		if (session_at(sessions, i)->id == id)
			return session_at(sessions, i);
	return &nobody;
}

static int add_session(struct table *table, const Coppice__Session *now,
		       const Coppice__Session *then, double s)
{
	return table_add(table, (struct text[N_COLUMNS]){
					text_number(now->id),
					text_number(now->pid),
					text_short(text_user(now->uid), USER_BYTES),
					text_name(now->name),
					text_count(now->n_seqs),
					rate(now->entries, then->entries, s),
					rate(now->tokens_matched, then->tokens_matched, s),
					rate(now->tokens_computed, then->tokens_computed, s),
				});
}

/* By entries since the look before; by age where all rest. */
static int by_entries(const void *a, const void *b, void *before)
{
	const Coppice__Session *x = *(Coppice__Session *const *)a,
			       *y = *(Coppice__Session *const *)b;
	uint64_t n_x = x->entries - session_before(before, x->id)->entries;
	uint64_t n_y = y->entries - session_before(before, y->id)->entries;

	return n_x != n_y ? (n_x < n_y) - (n_x > n_y) : (x->id > y->id) - (x->id < y->id);
}

static int fill(struct table *table, const struct top_look *then, struct top_look *now, size_t n)
{
	double s = (double)(now->at_ns - then->at_ns) / 1e9;

	qsort_r(now->sessions.items, now->sessions.n, sizeof(*now->sessions.items), by_entries,
		(void *)&then->sessions);
	for (size_t i = 0; i < n; i++) {
		const Coppice__Session *session = session_at(&now->sessions, i);

		if (add_session(table, session, session_before(&then->sessions, session->id), s) <
		    0)
			return -1;
	}
	return 0;
}

static int print_sessions(struct ctl *ctl, const struct top_look *then, struct top_look *now,
			  size_t n_lines)
{
	TABLE table = table_new(columns, N_COLUMNS);
	size_t n = now->sessions.n;

	if (n == 0) {
		puts("no sessions");
		return 0;
	}
	if (n_lines > 0 && n > n_lines)
		n = n_lines - 1;
	if (fill(&table, then, now, n) < 0)
		return call_fail_memory(&ctl->call);
	table_print(&table);
	if (n < now->sessions.n)
		printf("and %zu more\n", now->sessions.n - n);
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

int top_view_print(struct ctl *ctl, const struct top_look *then, struct top_look *now,
		   size_t n_lines)
{
	const Coppice__StatusReply *status = now->status->status;
	size_t n_head = status->own ? OWN_HEAD_LINES
				    : (size_t)HEAD_LINES + (status->passes > 0) +
					      (status->weights_bytes > 0);
	size_t n_left = n_lines > n_head + 1 ? n_lines - n_head : 2;

	printf("coppiced %s, up %s, %s%s\n", status->version, text_duration(status->uptime_ns).s,
	       status->backend, status->draining ? ", draining" : "");
	print_daemon(status, then->status->status, (double)(now->at_ns - then->at_ns) / 1e9);
	putchar('\n');
	return print_sessions(ctl, then, now, n_lines ? n_left : 0);
}

int top_view_print_json(struct ctl *ctl, const struct top_look *now)
{
	return json_print(&ctl->call, json_pack("{s:o, s:o}", "status",
						json_message(&now->status->status->base),
						"sessions", listing_json(&now->sessions)));
}
