#!/usr/bin/env python3
"""Sorts the hazards that compute-sanitizer's racecheck reports: those that are argued here, others.

	racecheck.py LOG MODULE

racecheck does not see the order that an mbarrier with a transaction count makes, and of bulk copies
to shared memory only some. So it reports pairs that such a barrier orders. Every access is looked
up in the module's machine code (cuobjdump); pairs that ARGUED names are counted apart, all others
are printed. Exit status 0 if there are no others, 1 if there are, 2 if the code cannot be read.

LOG is of a run that ended with the status which racecheck was given for hazards. That status hides
the program's own. So a log has status 1 as well if it does not say that all tests passed, or if its
hazards are not those that its summary counts.
"""

import collections
import re
import subprocess
import sys

# The kernel's name, patterns of the two instructions in either order, and why they are in order.
ARGUED = [
	(r"attend_kernel|bulk_kernel", r"UBLKCP", r"LDS",
		"a bulk copy is asked for once all readers have arrived at the slot's empty "
		"barrier, and completes its full barrier, which who reads the slot has waited "
		"for"),
	(r"attend_kernel", r"STS\S* .*, RZ", r"LDSM",
		"a fetching warp clears a KV tile's missing blocks, synchronises, and arrives at "
		"the tile's full barrier with the copies' transaction count; who reads the slot "
		"has waited for that barrier"),
	(r"attend_kernel", r"STS\.64 |STS\.128 .*, RZ", r"STS\.64 |STS\.128 .*, RZ|LDGSTS",
		"sums of a work tile on their way out, and Q of the next or of the same one on "
		"its way in: the warps that write sums have read their Q, and all warps arrive "
		"at the barrier that the fetching warps wait for once they are done"),
	(r"attend_kernel", r"LDGSTS", r"LDS\.128",
		"sums of a work tile's columns, read by the warps that add them up, and Q of the "
		"next work tile on its way to the same place: all warps arrive, once they have "
		"read, at the barrier that the fetching warps wait for"),
	# without predicates: those that write the sums have them, and those that read the addresses
	(r"attend_kernel", r"^STS\.64 \[R\d+\+0x", r"^LDS(\.64)? R\d+, \[R\d+\+0x",
		"maxima and sums of a work tile, read by the warps that add them up, and where Q "
		"of the next work tile lies, which is written to the same place: ordered by that "
		"same barrier"),
]
ACCESS = re.compile(r"(Read|Write) access at (.*)\+0x([0-9a-f]+)")
HAZARDS = re.compile(r"\[(\d+) hazards?\]")
REPORT = re.compile(r"^=+ .*Race reported between")
COMPLAINT = re.compile(r"^=+ (?!.*Race reported)(Error|Warning|Program hit|Internal)")
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")


def plain(name):
	"""A demangled name without what demanglers spell in different ways."""
	return re.sub(r"\(unsigned int\)|\s|(?<=\d)u\b", "", name)


def kernel(name):
	"""Of a plain name, which may begin with the type of what is returned."""
	return re.match(r"(?:void)?(\w*)", name)[1]


def output_of(command, given=None):
	run = subprocess.run(command, input=given, text=True, capture_output=True, check=True)
	return run.stdout


def demangle(names):
	return dict(zip(names, output_of(["c++filt"], "\n".join(names)).split("\n")))


def instructions(module):
	"""(plain name, offset) -> instruction, of the code for sm_90a."""
	out = output_of(["cuobjdump", "--dump-sass", "--gpu-architecture", "sm_90a", module])
	code, name = {}, None
	for line in out.split("\n"):
		function = re.match(r"\s*Function : (\S+)", line)
		at = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
		if function:
			name = function[1]
		elif at and name:
			code[(name, int(at[1], 16))] = at[2]
	names = demangle(sorted({name for name, _ in code}))
	return {(plain(names[name]), offset): text for (name, offset), text in code.items()}


def access_of(line):
	access = ACCESS.search(line)
	return (access[1], plain(access[2]), int(access[3], 16)) if access else None


def reports(lines):
	"""(access, [(access, how many)]) of each report: one access, and those that it is in a race
	with. An access is (kind, name, offset), None if it cannot be read."""
	found = []
	for line in lines:
		if REPORT.search(line):
			found.append((access_of(line), []))
		elif found and re.match(r"=+ +and ", line):
			n = HAZARDS.search(line)
			found[-1][1].append((access_of(line), int(n[1]) if n else 1))
	return found


def can_be_read(others):
	return bool(others) and all(other for other, _ in others)


def mismatch(lines, found):
	"""A sentence if the log is not one of hazards alone, all of which were found."""
	summary = [int(m[1]) for m in map(SUMMARY.search, lines) if m]
	complaint = next((line for line in lines if COMPLAINT.search(line)), None)
	n = sum(first is not None and can_be_read(others) for first, others in found)
	if any("[  FAILED  ]" in line for line in lines):
		return "a test failed under racecheck"
	if not any("[  PASSED  ]" in line for line in lines):
		return "the tests did not come to their end under racecheck"
	if complaint:
		return f"racecheck reports something else than a race: {complaint.strip('= ')}"
	if len(summary) != 1:
		return f"the log has {len(summary)} summaries of racecheck, not one"
	if summary[0] == 0:
		return "racecheck displayed no hazards: its status is for something else"
	if n != summary[0] or len(found) != summary[0]:
		in_log = f"{len(found)} are in the log, of which {n} can be read"
		return f"{summary[0]} hazards displayed, but {in_log}"
	return None


def argued(a, b, names):
	for where, one, other, why in ARGUED:
		if not all(re.fullmatch(where, kernel(name)) for name in names):
			continue
		if any(re.search(one, x) and re.search(other, y) for x, y in ((a, b), (b, a))):
			return why
	return None


def sort(found, code):
	"""How many hazards there are of each argument, and of each other pair."""
	known, others = collections.Counter(), collections.Counter()
	for a, pairs in found:
		for b, n in pairs:
			texts = [code.get((x[1], x[2]), "?") for x in (a, b)]
			why = argued(*texts, (a[1], b[1]))
			if why:
				known[why] += n
			else:
				others[(a[0], texts[0], b[0], texts[1], a[1])] += n
	return known, others


def main():
	with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
		lines = log.read().split("\n")
	found = reports(lines)
	wrong = mismatch(lines, found)
	if wrong:
		print(wrong)
		return 1
	try:
		code = instructions(sys.argv[2])
	except (OSError, subprocess.CalledProcessError) as e:
		print(f"the module's code cannot be looked at: {e}")
		return 2
	known, others = sort(found, code)
	for why, n in known.items():
		print(f"{n} hazards that are none: {why}")
	print(f"{sum(others.values())} other hazards")
	for (kind_a, a, kind_b, b, name), n in others.most_common(20):
		print(f"  {n} of {kind_a} '{a}' and {kind_b} '{b}' in {name}")
	return 1 if others else 0


if __name__ == "__main__":
	sys.exit(main())
