/*
 * docs.c - docstrings, which are written in the stubs and nowhere else.
 *
 * The build makes a table of them (docs.py). Tables of methods, members and getters say none: they
 * are given theirs before a type is made of them.
 */
#include "docs.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64

static const struct doc {
	const char *name, *text;
} docs[] = {
#include "docs_table.h"
};

const char *docs_find(const char *name)
{
	for (size_t i = 0; i < sizeof(docs) / sizeof(*docs); i++) {
		if (strcmp(docs[i].name, name) == 0)
			return docs[i].text;
	}
	return NULL;
}

const char *docs_find_in(const char *kind, const char *name)
{
	char full[NAME_BYTES];

	snprintf(full, sizeof(full), "%s.%s", kind, name);
	return docs_find(full);
}

void docs_fill_functions(PyMethodDef *functions)
{
	for (; functions->ml_name; functions++)
		functions->ml_doc = docs_find(functions->ml_name);
}

static void fill_methods(const char *kind, PyMethodDef *methods)
{
	for (; methods->ml_name; methods++)
		methods->ml_doc = docs_find_in(kind, methods->ml_name);
}

static void fill_members(const char *kind, PyMemberDef *members)
{
	for (; members->name; members++)
		members->doc = docs_find_in(kind, members->name);
}

static void fill_getters(const char *kind, PyGetSetDef *getters)
{
	for (; getters->name; getters++)
		getters->doc = docs_find_in(kind, getters->name);
}

void docs_fill_type(const char *kind, PyType_Slot *slots)
{
	for (; slots->slot; slots++) {
		if (slots->slot == Py_tp_methods)
			fill_methods(kind, slots->pfunc);
		else if (slots->slot == Py_tp_members)
			fill_members(kind, slots->pfunc);
		else if (slots->slot == Py_tp_getset)
			fill_getters(kind, slots->pfunc);
		else if (slots->slot == Py_tp_doc)
			slots->pfunc = (void *)docs_find(kind);
	}
}
