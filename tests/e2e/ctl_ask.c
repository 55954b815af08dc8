/*
 * ctl_ask.c - looks into what coppicectl printed: words in a text, numbers and errors of its JSON,
 * a node by the first byte of its tokens.
 */
#include "ctl_ask.h"

#include <string.h>

void assert_says(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("\"%s\" is not in:\n%s", what, text);
}

json_int_t integer(json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

json_int_t find_node(struct ctl_fixture *f, char byte)
{
	json_t *object = ASK(f, 0, "tree"), *node;
	json_int_t id = 0;
	size_t i;

	json_array_foreach(json_object_get(object, "nodes"), i, node)
	{
		json_t *first = json_array_get(json_object_get(node, "head"), 0);
		if (first && json_integer_value(first) == byte)
			id = integer(node, "id");
	}
	json_decref(object);
	return id;
}

void assert_error(json_t *object, int code)
{
	json_t *error = json_object_get(object, "error");

	assert_int_equal(integer(error, "code"), code);
	assert_true(json_string_length(json_object_get(error, "message")) > 0);
	json_decref(object);
}
