/*
 * sessions.c - coppicectl sessions: who is connected, what each holds and what each has done.
 */
#include "sessions.h"

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

static int add_session(struct table *table, const void *item)
{
	const Coppice__Session *s = item;

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

static const struct listing_table as_table = {columns, N_COLUMNS, "no sessions", add_session};

int sessions_run(struct ctl *ctl)
{
	LISTING sessions = {0};
	int r = sessions_read(ctl, &sessions);

	if (r < 0)
		return r;
	if (ctl->options.json)
		return listing_print_json(&ctl->call, &sessions, "sessions");
	return listing_print_table(&ctl->call, &sessions, &as_table);
}
