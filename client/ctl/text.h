/*
 * text.h - numbers, times and tokens as people read them.
 */
#ifndef CTL_TEXT_H
#define CTL_TEXT_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Short text by value: good until the end of the full expression. */
struct text {
	char s[40];
};

struct text text_count(uint64_t n); /* 4,096 */
struct text text_number(uint64_t n); /* 4096: a name, not how many */
struct text text_bytes(uint64_t bytes); /* 1.5 MiB */
struct text text_duration(uint64_t ns); /* 2 h 5 min */
struct text text_user(uint64_t uid); /* name, or the number where there is none */

struct text text_name(const char *s); /* its beginning, as text_quoted */
struct text text_short(struct text t, size_t bytes); /* so many at most, "+" where it goes on */

/* Some token ids. */
struct text_run {
	const uint32_t *ids; /* borrowed */
	size_t n;
	bool is_text; /* ids are bytes of text */
	bool goes_on; /* behind them are more */
};

/* True: each id may be a byte of text in UTF-8, control characters but tab and line ends aside. */
bool text_is_text(const uint32_t *ids, size_t n);
/* The run as quoted text or as numbers, "..." behind it where it goes on; what does not fit is left
 * off. TEXT_RUN_BYTES are enough for 24 ids. Returns ret. */
#define TEXT_RUN_BYTES 320
char *text_tokens(char *ret, size_t bytes, const struct text_run *run);

/* Another's string as it may stand between quotes on a terminal: what does not print is escaped,
 * what does not fit is left off. TEXT_QUOTED_BYTES are enough for a name of 127 bytes. Returns
 * ret. */
#define TEXT_QUOTED_BYTES 512
char *text_quoted(char *ret, size_t bytes, const char *s);

/* "90s", "10m", "2h", "1d", "250ms"; a bare number is seconds. 0, or -EINVAL (also for nothing and
 * for too long). ret_unit_ns may be NULL. */
MUST_CHECK int text_parse_duration(const char *s, uint64_t *ret_ns, uint64_t *ret_unit_ns);
/* A decimal number. 0 or -EINVAL. */
MUST_CHECK int text_parse_u64(const char *s, uint64_t *ret);

#endif
