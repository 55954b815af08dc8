/*
 * json.h - control messages as JSON: keys are the field names of control.proto, so nothing is named
 * twice.
 */
#ifndef CTL_JSON_H
#define CTL_JSON_H

#include "call.h"

#include <jansson.h>

/* Every field of message that is set, nested ones too; a whole number above 2^63 - 1 becomes a
 * string of digits. New reference, NULL where memory is out. */
json_t *json_message(const ProtobufCMessage *message);
/* {"error": {code, message, field}}; field null: none. New reference. */
json_t *json_error(const struct call_error *error);
/* Writes object on one line of standard output and drops the reference. 0, or -EIO. */
int json_print(json_t *object);

#endif
