/*
 * weights.c - coppicectl weights: a line for each set of tensors, those on their way too.
 */
#include "weights.h"

#include "listing.h"
#include "status.h"
#include "text.h"

#include <stdio.h>

static const struct table_column columns[] = {
	{.title = "weights"},  {.title = "user", .is_text = true},
	{.title = "tensors"},  {.title = "memory"},
	{.title = "users"},    {.title = "read"},
	{.title = "of files"},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))

static int add_row(struct table *table, const void *item)
{
	const Coppice__WeightsRow *row = item;

	return table_add(table, (struct text[N_COLUMNS]){
					text_number(row->number),
					text_user(row->domain),
					text_count(row->n_tensors),
					text_bytes(row->bytes),
					text_count(row->n_users),
					text_bytes(row->bytes_done),
					text_bytes(row->bytes_all),
				});
}

static const struct listing_table as_table = {columns, N_COLUMNS, "no weights", add_row};

/* What they have together with KV; only who may see all users' is told. */
static int print_memory(struct ctl *ctl)
{
	CALL_REPLY reply = NULL;
	int r = status_read(ctl, &reply);

	if (r == 0)
		status_print_memory("", reply->status);
	return r;
}

int weights_run(struct ctl *ctl)
{
	LISTING rows = {0};
	int r = listing_read(&ctl->call, "weights_list", &rows);

	if (r < 0)
		return r;
	if (ctl->options.json)
		return listing_print_json(&ctl->call, &rows, "weights");
	r = listing_print_table(&ctl->call, &rows, &as_table);
	return r < 0 ? r : print_memory(ctl);
}
