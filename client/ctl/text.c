/*
 * text.c - numbers, times and tokens as people read them, and times as they write them.
 */
#include "text.h"

#include "proto/clock.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_NAME_BYTES 17

struct text text_count(uint64_t n)
{
	struct text digits = text_number(n), t;
	size_t len = strlen(digits.s), at = 0;

	for (size_t i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			t.s[at++] = ',';
		t.s[at++] = digits.s[i];
	}
	t.s[at] = '\0';
	return t;
}

struct text text_number(uint64_t n)
{
	struct text t;

	snprintf(t.s, sizeof(t.s), "%" PRIu64, n);
	return t;
}

struct text text_bytes(uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	struct text t;
	size_t u = 0;

	if (bytes < 1024) {
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " B", bytes);
		return t;
	}
	for (; value >= 1024 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
		value /= 1024;
	snprintf(t.s, sizeof(t.s), "%.1f %s", value, units[u]);
	return t;
}

struct text text_duration(uint64_t ns)
{
	uint64_t s = ns / NS_PER_S;
	struct text t;

	if (ns < 1000000)
		snprintf(t.s, sizeof(t.s), "%.1f us", (double)ns / 1e3);
	else if (s < 1)
		snprintf(t.s, sizeof(t.s), "%.1f ms", (double)ns / 1e6);
	else if (s < 60)
		snprintf(t.s, sizeof(t.s), "%.1f s", (double)ns / 1e9);
	else if (s < 3600)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return t;
}

struct text text_user(uint64_t uid)
{
	const struct passwd *user = uid <= UINT32_MAX ? getpwuid((uid_t)uid) : NULL;
	struct text t;

	if (!user)
		return text_number(uid);
	snprintf(t.s, sizeof(t.s), "%.39s", user->pw_name);
	return t;
}

/* 0xc0, 0xc1 and what is above 0xf4 stand nowhere in UTF-8 (RFC 3629). */
static bool is_text(uint32_t id)
{
	if (id < 0x80)
		return isprint((int)id) || id == '\n' || id == '\t' || id == '\r';
	return id < 0xf5 && id != 0xc0 && id != 0xc1;
}

bool text_is_text(const uint32_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!is_text(ids[i]))
			return false;
	return true;
}

/* The byte as it may stand in a quoted string on a terminal. */
static struct text quoted_byte(uint32_t byte)
{
	struct text t;

	if (byte == '\n')
		strcpy(t.s, "\\n");
	else if (byte == '"' || byte == '\\')
		snprintf(t.s, sizeof(t.s), "\\%c", (int)byte);
	else if (byte < 0x80 && isprint((int)byte))
		snprintf(t.s, sizeof(t.s), "%c", (int)byte);
	else
		snprintf(t.s, sizeof(t.s), "\\x%02" PRIx32, byte);
	return t;
}

char *text_tokens(char *ret, size_t bytes, const struct text_run *run)
{
	const char *quote = run->is_text ? "\"" : "";
	size_t at = (size_t)snprintf(ret, bytes, "%s", quote);
	struct text t;

	for (size_t i = 0; i < run->n; i++) {
		if (run->is_text)
			t = quoted_byte(run->ids[i]);
		else
			snprintf(t.s, sizeof(t.s), "%s%" PRIu32, i > 0 ? " " : "", run->ids[i]);
		if (at + strlen(t.s) + sizeof("\"...") > bytes)
			break;
		at += (size_t)snprintf(ret + at, bytes - at, "%s", t.s);
	}
	snprintf(ret + at, bytes - at, "%s%s", quote, run->goes_on ? "..." : "");
	return ret;
}

char *text_quoted(char *ret, size_t bytes, const char *s)
{
	size_t at = 0;

	ret[0] = '\0';
	for (; *s; s++) {
		struct text t = quoted_byte((unsigned char)*s);
		if (at + strlen(t.s) >= bytes)
			break;
		at += (size_t)snprintf(ret + at, bytes - at, "%s", t.s);
	}
	return ret;
}

struct text text_name(const char *s)
{
	struct text t;

	text_quoted(t.s, TEXT_NAME_BYTES, s);
	return t;
}

struct text text_short(struct text t, size_t bytes)
{
	if (strlen(t.s) > bytes)
		strcpy(t.s + bytes - 1, "+");
	return t;
}

int text_parse_u64(const char *s, uint64_t *ret)
{
	char *end;
	unsigned long long n;

	if (!isdigit((unsigned char)s[0]))
		return -EINVAL;
	errno = 0;
	n = strtoull(s, &end, 10);
	if (errno != 0 || *end != '\0')
		return -EINVAL;
	*ret = n;
	return 0;
}

int text_parse_duration(const char *s, uint64_t *ret_ns, uint64_t *ret_unit_ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"ms", 1000000},	     {"", NS_PER_S},	     {"s", NS_PER_S},
		     {"m", 60 * NS_PER_S},   {"min", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S},
		     {"d", 86400 * NS_PER_S}};
	size_t n_digits = strspn(s, "0123456789");
	char digits[24];
	uint64_t n;

	if (n_digits == 0 || n_digits >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, s, n_digits);
	digits[n_digits] = '\0';
	if (text_parse_u64(digits, &n) < 0)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(s + n_digits, units[i].name) != 0)
			continue;
		if (n == 0 || n > UINT64_MAX / units[i].ns)
			return -EINVAL;
		*ret_ns = n * units[i].ns;
		if (ret_unit_ns)
			*ret_unit_ns = units[i].ns;
		return 0;
	}
	return -EINVAL;
}
