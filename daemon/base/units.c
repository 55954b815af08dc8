/*
 * units.c - never rounds: what is said is what was meant, in as few digits as that allows.
 */
#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char size_units[] = "KMGT";

static unsigned shift_of(char unit)
{
	const char *at = unit ? strchr(size_units, unit & ~0x20) : NULL;

	return at ? 10 * (unsigned)(at - size_units + 1) : 0;
}

struct units_text units_size(uint64_t bytes, char unit)
{
	unsigned shift = shift_of(unit);
	struct units_text t;

	if (unit != 'B' && (shift == 0 || bytes & ((UINT64_C(1) << shift) - 1)))
		for (shift = 40; shift && bytes & ((UINT64_C(1) << shift) - 1);)
			shift -= 10;
	if (bytes == 0 || shift == 0)
		snprintf(t.text, sizeof(t.text), "%" PRIu64, bytes);
	else
		snprintf(t.text, sizeof(t.text), "%" PRIu64 "%c", bytes >> shift,
			 size_units[shift / 10 - 1]);
	return t;
}

char units_of(const char *typed)
{
	size_t length = strspn(typed, "0123456789");

	if (length == 0)
		return 0;
	if (!typed[length])
		return 'B';
	return shift_of(typed[length]) && !typed[length + 1] ? (char)(typed[length] & ~0x20) : 0;
}

struct units_text units_time(uint64_t ns, uint64_t unit_ns)
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = {{UINT64_C(86400000000000), "d"},
		     {UINT64_C(3600000000000), "h"},
		     {UINT64_C(60000000000), "min"},
		     {UINT64_C(1000000000), "s"},
		     {1000000, "ms"},
		     {1000, "us"},
		     {1, "ns"}};
	const size_t n = sizeof(units) / sizeof(units[0]);
	struct units_text t;
	size_t i = 0;

	while (i < n && (units[i].ns != unit_ns || ns % unit_ns))
		i++;
	if (i == n)
		for (i = 0; ns % units[i].ns || (ns == 0 && units[i].ns > UINT64_C(1000000000));)
			i++;
	snprintf(t.text, sizeof(t.text), "%" PRIu64 " %s", ns / units[i].ns, units[i].name);
	return t;
}
