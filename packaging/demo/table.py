#!/usr/bin/env python3
"""Reads what a run of demo.sh left in a folder, prints its tables, and ends with 1 unless every
agent's tokens are the same in every way of running; but for ties, if the log probabilities were
recorded.

	table.py FOLDER N_AGENTS

FOLDER has, for each way, WAY-I.json (coppice-agent's reports), WAY-before.json and WAY-after.json
(coppicectl's status), WAY-s (how many seconds it took, from the first agent's start to the last
one's end) and WAY-cpu-s (of the processor, of agents and daemon). Ways: shared, layers (the
document shared, each process's layers its own), private, alone, and cpu if the agents ran over the
CPU's backend too.
"""

import json
import sys
from pathlib import Path

# fp16 rounds each attention output by up to 2^-11 of itself. This is how far that moves a log
# probability after five layers.
TIE_NATS = 0.03

WAYS = { # a column's heading, in two lines; how it is called in a sentence
	"shared": ("all at once,", "sharing", "sharing"),
	"layers": ("all at once,", "own layers", "with layers of their own"),
	"private": ("all at once,", "each for itself", "each for itself"),
	"alone": ("one after", "the other", "alone"),
	"cpu": ("all at once,", "on the CPU", "on the CPU"),
}


class Way:
	"""One way in which all the agents ran."""

	def __init__(self, folder, name, n):
		def load(what):
			return json.loads((folder / f"{name}-{what}.json").read_text())

		self.name = name
		self.reports = [load(i) for i in range(n)]
		self.before = load("before")
		self.after = load("after")
		self.seconds = float((folder / f"{name}-s").read_text())
		self.cpu_seconds = float((folder / f"{name}-cpu-s").read_text())

	def grown(self, key):
		return self.after[key] - self.before[key]

	def sum(self, key):
		return sum(report[key] for report in self.reports)

	def decode_read(self):
		"""Passes of programs have prompts beside decode."""
		if self.reports[0]["layers"] == "daemon":
			return "-"
		return size(self.grown("decode_kv_bytes_read"))

	def weights_held(self):
		"""By the daemon, or mapped by each process."""
		report = self.reports[0]
		each = size(report["weights_bytes"])
		if report["layers"] == "daemon":
			return f"once {each}"
		return f"{len(self.reports)} x {each}" if self.name != "alone" else f"each {each}"

	def weights_a_token(self):
		"""Read by decoding; what several tokens were computed from counts in parts."""
		n_decoded = self.sum("tokens_generated") - len(self.reports)
		return size(self.sum("weights_bytes_read") / max(n_decoded, 1))

	def computed(self):
		return self.sum("tokens_prefilled") + self.sum("tokens_generated")


def size(n):
	for unit in ("B", "KiB", "MiB", "GiB"):
		if n < 1024 or unit == "GiB":
			return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
		n /= 1024


def ids(report):
	return report["sequences"][0]["ids"]


# ---- are the tokens the same? --------------------------------------------------------------------

def as_text(token):
	return repr(bytes([token]).decode("latin-1")) if token < 256 else str(token)


def choice(report, at):
	"""Of the token at a place: its id and log probability, then those of the runner-up."""
	logprob, other, other_logprob = report["sequences"][0]["logprobs"][at]
	return ids(report)[at], logprob, other, other_logprob


def both_likeliest(token, logprob, other, other_logprob):
	return f"{as_text(token)} {logprob:.4f}, then {as_text(other)} {other_logprob:.4f}"


def compare(i, one, name_one, other, name_other):
	"""True where two reports have the same tokens, or part at a tie; that is printed."""
	if ids(one) == ids(other):
		return True
	agent = f"Agent {i + 1}"
	at = next((k for k, (a, b) in enumerate(zip(ids(one), ids(other))) if a != b), None)
	if at is None:
		counts = f"{len(ids(one))} tokens {name_one}, {len(ids(other))} {name_other}"
		print(f"{agent} wrote {counts}.")
		return False
	if "logprobs" not in one["sequences"][0]:
		ways = f"{name_one} than {name_other}"
		print(f"{agent} wrote other tokens {ways}, from token {at + 1} on.")
		return False
	a, b = choice(one, at), choice(other, at)
	tie = a[0] == b[2] and a[2] == b[0] and max(a[1] - a[3], b[1] - b[3]) <= TIE_NATS
	print(f"{agent}, token {at + 1}, {'a tie' if tie else 'NO TIE'}: "
		f"{name_one} {both_likeliest(*a)}; {name_other} {both_likeliest(*b)}")
	return tie


def compare_all(shared, other):
	"""True where all agents wrote the same in both ways, but for ties; says how many did."""
	names = WAYS[shared.name][2], WAYS[other.name][2]
	pairs = list(zip(shared.reports, other.reports))
	fine = [compare(i, s, names[0], o, names[1]) for i, (s, o) in enumerate(pairs)]
	n_same = sum(ids(s) == ids(o) for s, o in pairs)
	n = len(shared.reports)
	if n_same == n:
		print(f"Each of the {n} agents wrote the same tokens {names[0]} as {names[1]}.")
	else:
		print(f"{n_same} of the {n} agents wrote the same tokens {names[0]} as {names[1]}"
			f"{', the others but for ties' if all(fine) else ''}.")
	return all(fine)


# ---- tables --------------------------------------------------------------------------------------

def print_agents(shared):
	print("Sharing, in tokens:")
	print(f"{'agent':>7} {'prompt':>7}   = {'found':>7} + {'awaited':>7} + {'computed':>8} "
		f"{'generated':>10}")
	for i, report in enumerate(shared.reports):
		n_prompt = report["sequences"][0]["prompt_tokens"]
		print(f"{i + 1:>7} {n_prompt:>7}     {report['tokens_cached']:>7}   "
			f"{report['tokens_waited']:>7}   {report['tokens_prefilled']:>8} "
			f"{report['tokens_generated']:>10}")


def print_ways(ways):
	def row(title, text):
		print(f"{title:24}" + "".join(f"{text(way):>18}" for way in ways))

	row("", lambda way: WAYS[way.name][0])
	row("", lambda way: WAYS[way.name][1])
	row("elapsed", lambda way: f"{way.seconds:.1f} s")
	row("of the processor", lambda way: f"{way.cpu_seconds:.1f} s")
	row("tokens/s in sum", lambda way: f"{way.sum('tokens_generated') / way.seconds:.1f}")
	row("tokens computed", lambda way: f"{way.computed():,}")
	row("KV read by attention", lambda way: size(way.grown("kv_bytes_read")))
	row("  of it by decode steps", lambda way: way.decode_read())
	row("KV held at the end", lambda way: size(way.after["page_bytes"]))
	row("weights held", lambda way: way.weights_held())
	row("weights read a token", lambda way: way.weights_a_token())


def print_notes(ways):
	shared = ways[0]
	print("\nElapsed: from the first agent's start to the last one's end, "
		"with loading the model and reading the document.")
	print("Of the processor: agents' and the daemon's time on all cores.")
	print("Weights held: by the daemon once; else mapped by each process, from one file.")
	for way in ways[1:4]:
		times = way.seconds / shared.seconds
		print(f"Sharing was {times:.1f} times as fast as {' '.join(WAYS[way.name][:2])}.")
	if any(way.grown("pages_evicted") for way in ways):
		print("Pages were evicted: the pool is too small for these figures to mean much.")


def main():
	folder, n = Path(sys.argv[1]), int(sys.argv[2])
	ways = [Way(folder, name, n) for name in WAYS if (folder / f"{name}-0.json").exists()]

	print_agents(ways[0])
	print()
	print_ways(ways)
	print_notes(ways)
	print()
	fine = [compare_all(ways[0], way) for way in ways[1:]]
	return 0 if all(fine) else 1


if __name__ == "__main__":
	sys.exit(main())
