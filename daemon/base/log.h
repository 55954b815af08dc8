/*
 * log.h - what the daemon says, all of it on stderr, one line a message.
 *
 * Under a journal (JOURNAL_STREAM names stderr) lines begin with <N>, the syslog level; elsewhere
 * with "coppiced: ". Any thread.
 */
#ifndef COPPICED_LOG_H
#define COPPICED_LOG_H

#include "proto/must_check.h"

#include <stdbool.h>

/* Values are syslog's. */
enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

/* Finds out where stderr goes. Until then: a terminal, level info. */
void log_init(void);
void log_level_set(enum log_level level);
/* "error" "warning" "info" "debug". 0 or -EINVAL. */
MUST_CHECK int log_level_parse(const char *name, enum log_level *ret);
/* Does stderr lead where JOURNAL_STREAM ("device:inode") says? NULL: no. */
bool log_is_journal(const char *journal_stream, int fd);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
