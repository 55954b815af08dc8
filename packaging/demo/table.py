#!/usr/bin/env python3
"""Reads what a run of demo.sh left in a folder, prints its tables, and ends with 1 unless every agent's tokens are the
same together and alone, and on the CPU where that ran too; but for ties, if the log probabilities were recorded.

	table.py FOLDER N_AGENTS

FOLDER has together-I.json, alone-I.json and, if the agents ran on the CPU too, cpu-I.json (coppice-agent's reports),
status-J.json (coppicectl's status: 0 before all, 1 after the agents together, 2 ... after each alone) and together-s (how
many seconds the agents took together).
"""

import json
import sys
from pathlib import Path

# fp16 rounds each attention output by up to 2^-11 of itself; what that leaves of a log probability after five layers.
TIE_NATS = 0.03


def read(folder, name):
	return json.loads((folder / name).read_text())


def grown(before, after, key):
	return after[key] - before[key]


def size(n):
	for unit in ("B", "KiB", "MiB", "GiB"):
		if n < 1024 or unit == "GiB":
			return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
		n /= 1024


def times(more, less):
	return f"{more / less:.1f} times" if less else "-"


def mean_sessions(before, after):
	jobs = grown(before, after, "decode_jobs")
	return grown(before, after, "decode_sessions") / jobs if jobs else 0


def ids(report):
	return report["sequences"][0]["ids"]


def as_text(token):
	return repr(bytes([token]).decode("latin-1")) if token < 256 else str(token)


def choice(report, at):
	"""Of the token at a place: its id and log probability, then those of the runner-up."""
	logprob, other, other_logprob = report["sequences"][0]["logprobs"][at]
	return ids(report)[at], logprob, other, other_logprob


def compare(i, one, name_one, other, name_other):
	"""True where two reports have the same tokens, or part at a tie; that is printed."""
	if ids(one) == ids(other):
		return True
	at = next(k for k, pair in enumerate(zip(ids(one), ids(other))) if pair[0] != pair[1])
	if "logprobs" not in one["sequences"][0]:
		print(f"Agent {i + 1} wrote other tokens {name_one} than {name_other}, from token {at + 1} on.")
		return False
	a, b = choice(one, at), choice(other, at)
	tie = a[0] == b[2] and a[2] == b[0] and max(a[1] - a[3], b[1] - b[3]) <= TIE_NATS
	print(f"Agent {i + 1}, token {at + 1}, {'a tie' if tie else 'NO TIE'}: {name_one} {as_text(a[0])} {a[1]:.4f}, "
		f"then {as_text(a[2])} {a[3]:.4f}; {name_other} {as_text(b[0])} {b[1]:.4f}, then {as_text(b[2])} {b[3]:.4f}")
	return tie


def print_agents(together, alone, same):
	print(f"{'agent':>5} {'prompt':>7} {'prefilled':>9} {'reused':>7} {'generated':>9}   tokens/s: {'together':>8} "
		f"{'alone':>6}   tokens")
	for i, (t, a) in enumerate(zip(together, alone)):
		reused = t["tokens_cached"] + t["tokens_waited"]
		print(f"{i + 1:>5} {t['sequences'][0]['prompt_tokens']:>7} {t['tokens_prefilled']:>9} {reused:>7} "
			f"{t['tokens_generated']:>9}   {'':9} {t['decode_tokens_per_s']:>8.1f} {a['decode_tokens_per_s']:>6.1f}   "
			f"{'the same' if same[i] else 'DIFFER'}")
	print(f"  all {sum(t['sequences'][0]['prompt_tokens'] for t in together):>7} "
		f"{sum(t['tokens_prefilled'] for t in together):>9} "
		f"{sum(t['tokens_cached'] + t['tokens_waited'] for t in together):>7} "
		f"{sum(t['tokens_generated'] for t in together):>9}   {'':9} "
		f"{sum(t['decode_tokens_per_s'] for t in together):>8.1f}")


def print_bytes(status):
	begin, end, last = status[0], status[1], status[-1]
	held = grown(begin, end, "page_bytes")
	held_alone = grown(end, last, "page_bytes")
	read_kv = grown(begin, end, "decode_kv_bytes_read")
	read_alone = grown(begin, end, "decode_kv_bytes_alone")
	measured = grown(end, last, "decode_kv_bytes_read")
	print(f"{'':34} {'with sharing':>13} {'without':>13}")
	print(f"{'KV held':34} {size(held):>13} {size(held_alone):>13}   {times(held_alone, held)} as much")
	print(f"{'KV read by attention in decoding':34} {size(read_kv):>13} {size(read_alone):>13}   "
		f"{times(read_alone, read_kv)} as much ({size(measured)} in the runs alone)")
	print(f"{'sessions a decode batch, mean':34} {mean_sessions(begin, end):>13.2f} {mean_sessions(end, last):>13.2f}")


def main():
	folder, n = Path(sys.argv[1]), int(sys.argv[2])
	together = [read(folder, f"together-{i}.json") for i in range(n)]
	alone = [read(folder, f"alone-{i}.json") for i in range(n)]
	status = [read(folder, f"status-{j}.json") for j in range(n + 2)]
	seconds = float((folder / "together-s").read_text())
	same = [ids(t) == ids(a) for t, a in zip(together, alone)]
	generated = sum(t["tokens_generated"] for t in together)

	print_agents(together, alone, same)
	print()
	print_bytes(status)
	print(f"\nTogether: {generated} tokens in {seconds:.1f} s, prefill included: {generated / seconds:.1f} tokens/s.")
	if sum(grown(status[0], s, "pages_evicted") for s in status[-1:]):
		print("Pages were evicted: the pool is too small for these figures to mean much.")
	fine = [compare(i, t, "together", a, "alone") for i, (t, a) in enumerate(zip(together, alone))]
	if all(same):
		print(f"Each of the {n} agents wrote the same tokens together as alone.")
	if (folder / "cpu-0.json").exists():
		cpu = [read(folder, f"cpu-{i}.json") for i in range(n)]
		fine += [compare(i, t, "GPU", c, "CPU") for i, (t, c) in enumerate(zip(together, cpu))]
		n_same = sum(ids(t) == ids(c) for t, c in zip(together, cpu))
		print(f"{n_same} of the {n} agents wrote the same tokens on the GPU as on the CPU"
			f"{', the others but for ties' if all(fine) and n_same < n else ''}.")
	return 0 if all(fine) else 1


if __name__ == "__main__":
	sys.exit(main())
