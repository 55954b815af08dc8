/*
 * units.c - never rounds: what is said is what was meant, in as few digits as that allows.
 */
#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char units_of(const char *typed)
{
	size_t length = strspn(typed, "0123456789");

	if (length == 0)
		return 0;
	if (!typed[length])
		return 'B';
	return size_unit_shift(typed[length]) && !typed[length + 1] ? (char)(typed[length] & ~0x20)
								    : 0;
}

struct size_text units_time(uint64_t ns, uint64_t unit_ns)
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
	struct size_text t;
	size_t i = 0;

	while (i < n && (units[i].ns != unit_ns || ns % unit_ns))
		i++;
	if (i == n)
		for (i = 0; ns % units[i].ns || (ns == 0 && units[i].ns > UINT64_C(1000000000));)
			i++;
	snprintf(t.text, sizeof(t.text), "%" PRIu64 " %s", ns / units[i].ns, units[i].name);
	return t;
}
