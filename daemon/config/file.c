/*
 * file.c - the config file, by inih, a line at a time.
 *
 * Lines are counted here, as inih does not tell handlers its own number; all errors are said, not
 * only the first.
 */
#include "file.h"

#include "daemon/base/log.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

struct file {
	struct value_target *target; /* borrowed */
	FILE *stream;
	struct value_origin origin;
	uint32_t lines[KEYS_MAX]; /* on which each key stands; 0: on none so far */
	unsigned n_errors;
};

static char *file_line(char *text, int bytes, void *user)
{
	struct file *f = user;
	size_t length;
	int c;

	if (!fgets(text, bytes, f->stream))
		return NULL;
	f->origin.line++;
	length = strlen(text);
	if (length > 0 && text[length - 1] != '\n' && !feof(f->stream)) {
		log_error("%s:%u: the line is longer than %d bytes", f->origin.file, f->origin.line,
			  bytes - 2);
		f->n_errors++;
		while ((c = getc(f->stream)) != EOF && c != '\n')
			continue;
	}
	return text;
}

static int unknown_key(const struct file *f, const char *name)
{
	const char *nearest = key_nearest(name);

	if (nearest)
		log_error("%s:%u: no key %s: did you mean %s?", f->origin.file, f->origin.line,
			  name, nearest);
	else
		log_error("%s:%u: no key %s; accepted are those of coppiced --help, with _ for -",
			  f->origin.file, f->origin.line, name);
	return -EINVAL;
}

/* Of two values one would not be what somebody meant. */
static int stands_first(struct file *f, const struct key *key, const char *name)
{
	uint32_t *line = &f->lines[key - keys];

	if (*line) {
		log_error("%s:%u: %s: %s stands on line %u already", f->origin.file, f->origin.line,
			  name, key->name, *line);
		return -EINVAL;
	}
	*line = f->origin.line;
	return 0;
}

static int key_read(struct file *f, const char *name, const char *value)
{
	bool old;
	const struct key *key = key_find(name, &old);

	if (old)
		value_warn_old(&f->origin, name, key ? key->name : NULL);
	if (!key)
		return old ? 0 : unknown_key(f, name);
	if (stands_first(f, key, name) < 0)
		return -EINVAL;
	return value_read(f->target, key, value, &f->origin);
}

static void wrong_section(const struct file *f, const char *section, const char *name)
{
	const char *file = f->origin.file;
	uint32_t line = f->origin.line;

	if (section[0])
		log_error("%s:%u: %s stands in section [%s]; accepted: [coppiced]", file, line,
			  name, section);
	else
		log_error("%s:%u: %s stands in no section: write a line [coppiced] above it", file,
			  line, name);
}

static int file_value(void *user, const char *section, const char *name, const char *value)
{
	struct file *f = user;

	if (strcmp(section, "coppiced") != 0) {
		wrong_section(f, section, name);
		f->n_errors++;
	} else if (key_read(f, name, value) < 0) {
		f->n_errors++;
	}
	return 1;
}

int file_read(struct value_target *target, const char *path, bool must_exist)
{
	struct file f = {.target = target, .origin.file = path, .stream = fopen(path, "re")};
	int line;

	if (!f.stream) {
		if (errno == ENOENT && !must_exist)
			return 0;
		log_error("%s: cannot be read: %s", path, strerror(errno));
		return -EINVAL;
	}
	line = ini_parse_stream(file_line, &f, file_value, &f);
	if (ferror(f.stream)) {
		log_error("%s: cannot be read: %s", path, strerror(errno));
		f.n_errors++;
	} else if (line != 0) {
		log_error(
			"%s:%d: not understood; accepted: key = value, [coppiced], comments with #",
			path, line);
		f.n_errors++;
	}
	fclose(f.stream);
	return f.n_errors ? -EINVAL : 0;
}
