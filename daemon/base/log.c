/*
 * log.c - lines on stderr. A line is made whole and written at once, so that those of several
 * threads do not mix.
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool to_journal;
static enum log_level threshold = LOG_LEVEL_INFO;

bool log_is_journal(const char *journal_stream, int fd)
{
	unsigned long long device, inode;
	struct stat st;

	if (!journal_stream || sscanf(journal_stream, "%llu:%llu", &device, &inode) != 2 ||
	    fstat(fd, &st) < 0)
		return false;
	return st.st_dev == device && st.st_ino == inode;
}

void log_init(void)
{
	to_journal = log_is_journal(getenv("JOURNAL_STREAM"), STDERR_FILENO);
}

void log_level_set(enum log_level level)
{
	threshold = level;
}

int log_level_parse(const char *name, enum log_level *ret)
{
	static const struct {
		const char *name;
		enum log_level level;
	} levels[] = {{"error", LOG_LEVEL_ERROR},
		      {"warning", LOG_LEVEL_WARNING},
		      {"info", LOG_LEVEL_INFO},
		      {"debug", LOG_LEVEL_DEBUG}};

	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		if (strcmp(name, levels[i].name) == 0) {
			*ret = levels[i].level;
			return 0;
		}
	}
	return -EINVAL;
}

/* Control characters come from clients' names at worst: they must not forge a second line. */
static void flatten(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = ' ';
	}
}

void log_write(enum log_level level, const char *format, ...)
{
	char text[1024], line[sizeof(text) + 16];
	va_list args;
	int n;

	if (level > threshold)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	flatten(text);
	if (to_journal)
		n = snprintf(line, sizeof(line), "<%d>%s\n", level, text);
	else
		n = snprintf(line, sizeof(line), "coppiced: %s\n", text);
	if (n > 0 && write(STDERR_FILENO, line, n) < 0)
		return; /* nobody to tell */
}
