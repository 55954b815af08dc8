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

/* Lines that begin in a column, in which the first one is already. */
static void print_wrapped(FILE *to, const char *text, int column)
{
	int at = column;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (at > column && at + 1 + length > WIDTH) {
			fprintf(to, "\n%*s", column, "");
			at = column;
		}
		at += fprintf(to, "%s%.*s", at > column ? " " : "", length, text);
		text += length;
		text += *text == ' ';
	}
	putc('\n', to);
}

/* --name, --name=VALUE or --name[=VALUE]. */
static int print_name(FILE *to, const struct args_option *option)
{
	if (!option->arg)
		return fprintf(to, "--%s", option->name);
	if (option->arg[0] == '[')
		return fprintf(to, "--%s[=%s", option->name, option->arg + 1);
	return fprintf(to, "--%s=%s", option->name, option->arg);
}

static void print_option(FILE *to, const struct args_option *option)
{
	int at;

	at = args_is_short(option) ? fprintf(to, "  -%c, ", option->key) : fprintf(to, "      ");
	at += print_name(to, option);
	if (at + 2 > HELP_AT)
		at = fprintf(to, "\n") - 1;
	fprintf(to, "%*s", HELP_AT - at, "");
	print_wrapped(to, option->help, HELP_AT);
}

void args_print_text(FILE *to, const char *text)
{
	print_wrapped(to, text, 0);
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
