/*
 * listing.c - every verb that lists has the same shape in control.proto: the request has a cursor,
 * the reply the next cursor, 0 at the end, and one repeated message. So the messages' descriptors
 * serve them all.
 */
#include "listing.h"

#include "json.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_MAX_BYTES 64

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type,
						const char *name)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field_by_name(type, name);

	assert(field);
	return field;
}

static void *at(void *message, const ProtobufCFieldDescriptor *field)
{
	return (char *)message + field->offset;
}

static void set_cursor(ProtobufCMessage *ask, uint64_t cursor)
{
	const ProtobufCFieldDescriptor *field = field_of(ask->descriptor, "cursor");

	*(protobuf_c_boolean *)((char *)ask + field->quantifier_offset) = 1;
	*(uint64_t *)at(ask, field) = cursor;
}

/* cursor 0: the first page. */
static int ask_page(struct call *call, const char *verb, uint64_t cursor, Coppice__Reply **ret)
{
	const ProtobufCFieldDescriptor *field = field_of(&coppice__request__descriptor, verb);
	const ProtobufCMessageDescriptor *type = field->descriptor;
	union {
		ProtobufCMessage base;
		uint64_t bytes[ASK_MAX_BYTES / sizeof(uint64_t)];
	} ask;
	Coppice__Request request = COPPICE__REQUEST__INIT;

	assert(type->sizeof_message <= sizeof(ask));
	protobuf_c_message_init(type, &ask);
	if (cursor)
		set_cursor(&ask.base, cursor);
	*(ProtobufCMessage **)at(&request, field) = &ask.base;
	return call_ask(call, &request, ret);
}

static const ProtobufCFieldDescriptor *repeated_of(const ProtobufCMessageDescriptor *type)
{
	for (unsigned i = 0; i < type->n_fields; i++)
		if (type->fields[i].label == PROTOBUF_C_LABEL_REPEATED)
			return &type->fields[i];
	assert(!"a listing repeats a message");
	return NULL;
}

/* Moves the messages of one page over. */
static int take_page(struct listing *listing, ProtobufCMessage *page)
{
	const ProtobufCFieldDescriptor *field = repeated_of(page->descriptor);
	size_t *n = (size_t *)((char *)page + field->quantifier_offset);
	ProtobufCMessage **items =
		reallocarray(listing->items, listing->n + *n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	listing->items = items;
	if (*n > 0)
		memcpy(items + listing->n, *(ProtobufCMessage ***)at(page, field),
		       *n * sizeof(*items));
	listing->n += *n;
	*n = 0;
	return 0;
}

/* One page; *inout_cursor becomes the next one's. */
static int read_page(struct call *call, const char *verb, uint64_t *inout_cursor,
		     struct listing *listing)
{
	CALL_REPLY reply = NULL;
	ProtobufCMessage *page;
	int r = ask_page(call, verb, *inout_cursor, &reply);

	if (r < 0)
		return r;
	page = *(ProtobufCMessage **)at(reply, field_of(reply->base.descriptor, verb));
	if (!page)
		return call_fail_missing(call, verb);
	*inout_cursor = *(uint64_t *)at(page, field_of(page->descriptor, "cursor"));
	return take_page(listing, page) < 0 ? call_fail_memory(call) : 0;
}

int listing_read(struct call *call, const char *verb, struct listing *ret)
{
	uint64_t cursor = 0;
	size_t n_before;
	int r;

	*ret = (struct listing){0};
	do {
		n_before = ret->n;
		r = read_page(call, verb, &cursor, ret);
	} while (r == 0 && cursor != 0 && ret->n > n_before);
	return r;
}

void listing_done(struct listing *listing)
{
	for (size_t i = 0; i < listing->n; i++)
		protobuf_c_message_free_unpacked(listing->items[i], NULL);
	free(listing->items);
	*listing = (struct listing){0};
}

void listing_drop(struct listing *listing, size_t i)
{
	protobuf_c_message_free_unpacked(listing->items[i], NULL);
	memmove(listing->items + i, listing->items + i + 1,
		(--listing->n - i) * sizeof(*listing->items));
}

json_t *listing_json(const struct listing *listing)
{
	json_t *array = json_array();

	for (size_t i = 0; i < listing->n; i++)
		json_array_append_new(array, json_message(listing->items[i]));
	return array;
}

int listing_print_json(struct call *call, const struct listing *listing, const char *name)
{
	return json_print(call, json_pack("{s:o}", name, listing_json(listing)));
}

int listing_print_table(struct call *call, const struct listing *listing,
			const struct listing_table *as)
{
	TABLE table = table_new(as->columns, as->n_columns);

	if (listing->n == 0) {
		puts(as->none);
		return 0;
	}
	for (size_t i = 0; i < listing->n; i++)
		if (as->add(&table, listing->items[i]) < 0)
			return call_fail_memory(call);
	table_print(&table);
	return 0;
}
