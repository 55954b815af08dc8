#!/usr/bin/env python3
"""What coppice-bench says of an option's value that is none of those there are, and of a file that
is not there: bench_words_test.py PROGRAM. Nothing has run by then."""

import subprocess
import sys
import tempfile
import unittest

BENCH = sys.argv.pop(1)


REFUSED = (
	("attention --policy=casc", '--policy takes no "casc": did you mean cascade?'),
	("attention --policy=x", "--policy takes auto, none, cascade, fasttree, deft, deft-node, "
		'deft-chunk or deft-flatten, not "x"'),
	("attention --policy=none,auto", ', not "none,auto"'),
	("attention --policy=all", ', not "all"'),
	("attention -p auto,non -b cuda", '"non": did you mean none?'),
	("attention -p auto, -b cuda", ', not ""'),
	("attention -p casc --explain", "did you mean cascade?"),
	("attention --backend=x", '--backend takes cpu or cuda, not "x"'),
	("attention --dtype=bf61", '--dtype takes no "bf61": did you mean bf16?'),
	("attention --page=x", '--page takes 16, 32 or 64, not "x"'),
	("clients --backend=x", '--backend takes auto, cpu or cuda, not "x"'),
	("clients --memory=hots", "did you mean host?"),
	("clients --batch-window=x", 'takes cost, always or never, not "x"'),
	("decode --backend=x", '--backend takes auto, cpu or cuda, not "x"'),
	("decode --model=tinny", '--model takes no "tinny": did you mean tiny?'),
	("decode --model=/nope", 'or config.json, not "/nope"'),
	("multi --split=x", '--split takes tokens or heads, not "x"'),
	("neighbours --backend=x", '--backend takes auto, cpu or cuda, not "x"'),
	("ring --only=x", 'spinning, asleep or asleep_unpinned, not "x"'),
	("sparse --backend=x", '--backend takes cpu or cuda, not "x"'),
	("tiers --backend=x", '--backend takes cpu or cuda, not "x"'),
	("tiers --only=recal", "did you mean recall?"),
)
READ = ("attention -w", "attention --explain -w", "attention --explain --costs", "multi -w",
	"fit -w", "fit --times")


class Words(unittest.TestCase):
	def refused(self, line, said, status):
		"""What it says of a command that this build has."""
		command = [BENCH, *line.split()]
		done = subprocess.run(command, capture_output=True, text=True, timeout=50)
		if "there is no command" in done.stderr:
			return
		self.assertEqual((done.returncode, done.stdout), (status, ""), line)
		self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
		self.assertTrue(done.stderr.endswith(said + "\n"), done.stderr)

	def test_values(self):
		for line, said in REFUSED:
			self.refused(line, said, 2)

	def test_files(self):
		said = "cannot open /nope: No such file or directory"
		for line in READ:
			self.refused(line + " /nope", said, 1)
		with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
			file.write("{}")
			file.flush()
			said = f"{file.name}: no array of workloads"
			self.refused(f"attention -w {file.name}", said, 1)


if __name__ == "__main__":
	unittest.main()
