#!/usr/bin/env python3
"""What coppice-bench says of an option's value that is none of those there are, of a number that is
none or out of range, and of a file that is not there: bench_words_test.py PROGRAM. Nothing has run
by then."""

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
# Behind "--NAME takes a whole number".
NUMBERS = (
	("agents --pairs=x", "from 0 to 1000"),
	("agents --seed=-1", "from 0 to 4294967295"),
	("agents --sleep-us=5ms", "from 0 to 60000000"),
	("agents --tokens=0", "from 1 to 16777216"),
	("attention --reps=1001", "from 1 to 1000"),
	("attention --backend=cuda --reps=1001", "from 1 to 1000"),
	("attention --threads=x", "from 1 to 1024"),
	("attention --threads=0", "from 1 to 1024"),
	("attention --explain=0", "from 1 to 4294967295"),
	("attention --random=4294967296", "from 1 to 4294967295"),
	("clients --clients=65", "from 1 to 64"),
	("clients --seqs=", "from 1 to 2048"),
	("clients --prefix=1", "from 2 to 16777216"),
	("clients --tokens=3", "from 4 to 100000"),
	("clients --layers=4x", "from 1 to 25000"),
	("clients --q-heads=+8", "from 1 to 1024"),
	("clients --kv-heads=0", "from 1 to 1024"),
	("clients --stagger-ms=3600001", "from 0 to 3600000"),
	("decode --seqs=65", "from 1 to 64"),
	("decode --document=1", "from 2 to 1048576"),
	("decode --tokens=131073", "from 4 to 131072"),
	("decode --layers=65", "from 1 to 64"),
	("decode --prompt=0", "from 1 to 1048576"),
	("decode --turn=x", "from 0 to 1048576"),
	("fit --multiprocessors=x", "from 1 to 4294967295"),
	("fit --reps=1001", "from 1 to 1000"),
	("multi --reps=1001", "from 1 to 1000"),
	("multi --most=x", "from 1 to 4294967295"),
	("multi --threads=1025", "from 1 to 1024"),
	("neighbours --lanes=16257", "from 1 to 16256"),
	("neighbours --sessions=128", "from 1 to 127"),
	("neighbours --ahead=65", "from 1 to 64"),
	("neighbours --seconds=x", "from 1 to 4294967295"),
	("neighbours --budget-ms=0", "from 1 to 60000"),
	("ring --reps=x", "from 1 to 4294967295"),
	("sparse --heads=1025", "from 1 to 1024"),
	("sparse --tokens=511", "from 512 to 16777216"),
	("sparse --queries=x", "from 16 to 4194304"),
	("sparse --windows=1001", "from 0 to 1000"),
	("sparse --block=65537", "from 8 to 65536"),
	("store --reps=0", "from 1 to 4294967295"),
	("tiers --tokens=x", "from 1 to 16777216"),
	("tiers --layers=1025", "from 1 to 1024"),
	("tiers --stage=4M", "from 1 to 16777216"),
	("tiers --bytes=31", "from 32 to 16777216"),
)
POOL = "--pool takes bytes, a number with K, M, G or T, or 1% to 100%, "
OTHERS = (
	("attention --dim=17", '--dim takes a multiple of 16 from 16 to 256, not "17"'),
	("attention --heads=64/0", 'and 128 to a KV head at most, not "64/0"'),
	("attention --heads=-8/1", 'and 128 to a KV head at most, not "-8/1"'),
	("attention --tflops=0", '--tflops takes a number above 0, not "0"'),
	("clients --dim=x", '--dim takes a multiple of 16 from 16 to 256, not "x"'),
	("clients --kernel-us=nan", '--kernel-us takes a number above 0, not "nan"'),
	("clients --pool=4X", POOL + 'not "4X"'),
	("clients -t 1000 -l 101", "--tokens by --layers are 100000 steps at most"),
	("decode --clients=8,0", 'numbers from 1 to 64, with commas between, not "8,0"'),
	("decode --flops=1e999", '--flops takes a number above 0, not "1e999"'),
	("decode --rate=x", '--rate takes a number above 0, not "x"'),
	("decode --pool=101%", POOL + 'not "101%"'),
	("multi --devices=33", 'numbers from 1 to 32, with commas between, not "33"'),
	("multi --tokens=1,,2", 'from 1 to 2147483647, with commas between, not "1,,2"'),
	("multi --batch=1,2,3,4,5,6,7,8,9", 'with commas between, not "1,2,3,4,5,6,7,8,9"'),
	("neighbours --pool=", POOL + 'not ""'),
	("sparse --stride=128", '--stride takes 8 or 16, not "128"'),
	("tiers --tau=1.5", '--tau takes a number from 0 to 1, not "1.5"'),
	("tiers --tau=x", '--tau takes a number from 0 to 1, not "x"'),
	("attention --clocks", "--clocks are of the GPU's backend: add --backend cuda"),
	("attention --wor=x", "--wor is no option: did you mean --workload?"),
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

	def test_numbers(self):
		for line, said in NUMBERS:
			name, value = line.rpartition(" --")[2].split("=")
			said = f'--{name} takes a whole number {said}, not "{value}"'
			self.refused(line, said, 2)
		for line, said in OTHERS:
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
