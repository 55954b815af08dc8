/*
 * json.c - control messages as JSON by their descriptors: a field added to control.proto appears
 * here by itself.
 */
#include "json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

static json_t *json_u64(uint64_t n)
{
	if (n > INT64_MAX)
		return json_sprintf("%" PRIu64, n);
	return json_integer((json_int_t)n);
}

/* control.proto has numbers, truth values, strings and messages. */
static json_t *json_value(const ProtobufCFieldDescriptor *field, const void *at)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64:
		return json_u64(*(const uint64_t *)at);
	case PROTOBUF_C_TYPE_UINT32:
		return json_integer(*(const uint32_t *)at);
	case PROTOBUF_C_TYPE_SINT32:
		return json_integer(*(const int32_t *)at);
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(*(const protobuf_c_boolean *)at);
	case PROTOBUF_C_TYPE_FLOAT:
		return json_real((double)*(const float *)at);
	case PROTOBUF_C_TYPE_STRING:
		return json_string(*(const char *const *)at);
	case PROTOBUF_C_TYPE_MESSAGE:
		return json_message(*(const ProtobufCMessage *const *)at);
	default:
		return json_null();
	}
}

static size_t element_bytes(const ProtobufCFieldDescriptor *field)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64:
		return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	default:
		return sizeof(uint32_t);
	}
}

static json_t *json_repeated(const ProtobufCFieldDescriptor *field, const char *message)
{
	size_t n = *(const size_t *)(message + field->quantifier_offset);
	const char *elements = *(const char *const *)(message + field->offset);
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array,
				      json_value(field, elements + i * element_bytes(field)));
	return array;
}

static bool is_set(const ProtobufCFieldDescriptor *field, const char *message)
{
	if (field->label != PROTOBUF_C_LABEL_OPTIONAL)
		return true;
	if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
		return *(const void *const *)(message + field->offset) != NULL;
	return *(const protobuf_c_boolean *)(message + field->quantifier_offset);
}

json_t *json_message(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *type = message->descriptor;
	const char *bytes = (const char *)message;
	json_t *object = json_object();

	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &type->fields[i];
		if (!is_set(field, bytes))
			continue;
		json_object_set_new(object, field->name,
				    field->label == PROTOBUF_C_LABEL_REPEATED
					    ? json_repeated(field, bytes)
					    : json_value(field, bytes + field->offset));
	}
	return object;
}

static bool print_line(json_t *object)
{
	int r = object ? json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) : -1;

	json_decref(object);
	putchar('\n');
	return r == 0 || ferror(stdout);
}

int json_print(struct call *call, json_t *object)
{
	return print_line(object) ? 0 : call_fail_memory(call);
}

void json_print_error(const struct call_error *error)
{
	print_line(json_pack("{s:{s:i, s:s, s:s?}}", "error", "code", error->code, "message",
			     error->message, "field", error->field[0] ? error->field : NULL));
}
