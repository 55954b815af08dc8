/*
 * json.h - control messages as JSON: keys are the field names of control.proto, so nothing is named
 * twice.
 */
#ifndef CTL_JSON_H
#define CTL_JSON_H

#include "call.h"
#include "proto/must_check.h"

#include <jansson.h>

/* Every field of message that is set, nested ones too; a whole number above 2^63 - 1 becomes a
 * string of digits. New reference, NULL where memory is out. */
json_t *json_message(const ProtobufCMessage *message);
/* Writes object on one line of standard output and drops the reference. 0, or -ENOMEM with
 * call->error; whether the line got through is known when all is written. */
MUST_CHECK int json_print(struct call *call, json_t *object);

/* {"error": {code, message, field}} on a line; field null: none. */
void json_print_error(const struct call_error *error);

#endif
