/*
 * sessions.c - coppicectl sessions: who is connected, what each holds and what each has done.
 */
#include "sessions.h"

#include "table.h"
#include "text.h"

#include <stdio.h>

static const struct table_column columns[] = {
	{.title = "session"},
	{.title = "pid"},
	{.title = "user", .is_text = true},
	{.title = "name", .is_text = true},
	{.title = "lanes"},
	{.title = "seqs"},
	{.title = "arenas"},
	{.title = "entries"},
	{.title = "matched"},
	{.title = "computed"},
	{.title = "backend"},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))

int sessions_read(struct ctl *ctl, struct listing *ret)
{
	int r = listing_read(&ctl->call, "sessions", ret);

	for (size_t i = ret->n; i-- > 0;)
		if (((const Coppice__Session *)ret->items[i])->id == ctl->call.session)
			listing_drop(ret, i);
	return r;
}

static int add_session(struct table *table, const Coppice__Session *s)
{
	return table_add(table, (struct text[N_COLUMNS]){
					text_number(s->id),
					text_number(s->pid),
					text_user(s->uid),
					text_name(s->name),
					text_count(s->n_lanes),
					text_count(s->n_seqs),
					text_bytes(s->arena_bytes),
					text_count(s->entries),
					text_count(s->tokens_matched),
					text_count(s->tokens_computed),
					text_duration(s->backend_ns),
				});
}

static int print_sessions(struct ctl *ctl, const struct listing *sessions)
{
	TABLE table = table_new(columns, N_COLUMNS);

	if (sessions->n == 0) {
		puts("no sessions");
		return 0;
	}
	for (size_t i = 0; i < sessions->n; i++)
		if (add_session(&table, (const Coppice__Session *)sessions->items[i]) < 0)
			return call_fail_memory(&ctl->call);
	table_print(&table);
	return 0;
}

int sessions_run(struct ctl *ctl)
{
	LISTING sessions = {0};
	int r = sessions_read(ctl, &sessions);

	if (r < 0)
		return r;
	if (ctl->options.json)
		return listing_print_json(&ctl->call, &sessions, "sessions");
	return print_sessions(ctl, &sessions);
}
