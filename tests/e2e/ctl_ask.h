/*
 * ctl_ask.h - what coppicectl answers, as text and as JSON.
 */
#ifndef CTL_ASK_H
#define CTL_ASK_H

#include "ctl_fixture.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#define RUN(f, answer, ...) \
	ctl_run_as(getuid(), f, answer, (const char *const[]){__VA_ARGS__, NULL})

/* Runs coppicectl --json, which must end with status; the object is the caller's. */
#define ASK(f, expected, ...) \
	({ \
		static struct ctl_answer ask_answer; \
		json_t *ask_object; \
		RUN(f, &ask_answer, "--json", __VA_ARGS__); \
		assert_int_equal(ask_answer.status, expected); \
		ask_object = json_loads(ask_answer.out, 0, NULL); \
		assert_non_null(ask_object); \
		ask_object; \
	})

void assert_says(const char *text, const char *what);
json_int_t integer(json_t *object, const char *key); /* that is there, and one */
void assert_error(json_t *object, int code); /* {"error": ...} with code; takes the object */
/* The number of the node whose run begins with byte, 0: none. */
json_int_t find_node(struct ctl_fixture *f, char byte);

#endif
