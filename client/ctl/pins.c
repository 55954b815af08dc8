/*
 * pins.c - coppicectl pins, pin and unpin: paths of the tree that eviction leaves alone.
 */
#include "pins.h"

#include "json.h"
#include "listing.h"
#include "table.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

/* The model stands behind the cells, at its whole length: tree and evict take it so. */
static const struct table_column columns[] = {
	{.title = "pin"},
	{.title = "node"},
	{.title = "user", .is_text = true},
	{.title = "tokens"},
	{.title = "KV"},
	{.title = "left"},
	{.title = "model", .is_text = true},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))

static int add_pin(struct table *table, const Coppice__Pin *pin)
{
	return table_add(table, (struct text[N_COLUMNS]){
					text_number(pin->pin),
					text_number(pin->node),
					text_user(pin->domain),
					text_count(pin->n_tokens),
					text_bytes(pin->n_bytes),
					text_duration(pin->left_ns),
				});
}

static void print_pins(const struct listing *pins, const struct table *table)
{
	char name[TEXT_QUOTED_BYTES];

	table_print_titles(table);
	putchar('\n');
	for (size_t i = 0; i < pins->n; i++) {
		table_print_row(table, i);
		puts(text_quoted(name, sizeof(name), ((Coppice__Pin *)pins->items[i])->model));
	}
}

static int print_table(struct ctl *ctl, const struct listing *pins)
{
	TABLE table = table_new(columns, N_COLUMNS);

	for (size_t i = 0; i < pins->n; i++)
		if (add_pin(&table, (const Coppice__Pin *)pins->items[i]) < 0)
			return call_fail_memory(&ctl->call);
	if (pins->n > 0)
		print_pins(pins, &table);
	else
		puts("no pins");
	return 0;
}

int pins_run(struct ctl *ctl)
{
	LISTING pins = {0};
	int r = listing_read(&ctl->call, "pins", &pins);

	if (r < 0)
		return r;
	if (ctl->options.json)
		return listing_print_json(&ctl->call, &pins, "pins");
	return print_table(ctl, &pins);
}

int pins_pin(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__NodePin pin = COPPICE__NODE_PIN__INIT;
	CALL_REPLY reply = NULL;
	int r;

	pin.node = ctl->options.argument;
	pin.for_ns = ctl->options.for_ns;
	pin.has_unit_ns = 1;
	pin.unit_ns = ctl->options.for_unit_ns;
	request.node_pin = &pin;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (!reply->pin)
		return call_fail_missing(&ctl->call, "pin");
	if (ctl->options.json)
		return json_print(&ctl->call, json_message(&reply->pin->base));
	printf("pin %" PRIu64 " keeps node %" PRIu64 " and what is above it for %s\n",
	       reply->pin->pin, pin.node, text_duration(pin.for_ns).s);
	return 0;
}

int pins_unpin(struct ctl *ctl)
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
		return json_print(&ctl->call,
				  json_pack("{s:I}", "unpinned", (json_int_t)unpin.pin));
	printf("pin %" PRIu64 " is gone\n", unpin.pin);
	return 0;
}
