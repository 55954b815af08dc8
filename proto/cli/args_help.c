/*
 * args_help.c - a table of options for people.
 *
 *	 Headline
 *	  -s, --socket=PATH          what it is for, in lines that begin in one column
 *	      --a-longer-one=VALUE
 *	                             what that is for
 */
#include "proto/cli/args.h"

#include <string.h>

#define HELP_AT 29 /* the column in which explanations begin */
#define WIDTH 79

static void print_wrapped(FILE *to, const char *text)
{
	int at = HELP_AT;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (at > HELP_AT && at + 1 + length > WIDTH) {
			fprintf(to, "\n%*s", HELP_AT, "");
			at = HELP_AT;
		}
		at += fprintf(to, "%s%.*s", at > HELP_AT ? " " : "", length, text);
		text += length;
		text += *text == ' ';
	}
	putc('\n', to);
}

static void print_option(FILE *to, const struct args_option *option)
{
	int at;

	at = args_is_short(option) ? fprintf(to, "  -%c, ", option->key) : fprintf(to, "      ");
	at += fprintf(to, "--%s%s%s", option->name, option->arg ? "=" : "",
		      option->arg ? option->arg : "");
	if (at + 2 > HELP_AT)
		at = fprintf(to, "\n") - 1;
	fprintf(to, "%*s", HELP_AT - at, "");
	print_wrapped(to, option->help);
}

void args_print(FILE *to, const struct args_option *table)
{
	for (const struct args_option *option = table; option->name || option->help; option++) {
		if (option->name && option->help)
			print_option(to, option);
		else if (option->help)
			fprintf(to, "%s%s\n", option == table ? "" : "\n", option->help);
	}
}
