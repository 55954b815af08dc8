#!/usr/bin/env python3
"""packaging/demo.sh with the programs of a build, a short document and few tokens.

	demo_test.py BUILD
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path()


def demo(*options, **environment):
	command = [ROOT / "packaging" / "demo.sh", *options]
	env = {**os.environ, **environment}
	return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


class Demo(unittest.TestCase):
	def test_three_ways_say_the_same(self):
		with tempfile.TemporaryDirectory() as folder:
			document = pathlib.Path(folder) / "document.txt"
			document.write_text("And it came to pass in the days of the king. " * 8)
			left = pathlib.Path(folder) / "left"
			left.mkdir()
			options = ["--build", BUILD, "--document", document, "--tokens", "6"]
			run = demo(*options, TMPDIR=str(left))
			self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
			self.assertEqual(list(left.iterdir()), [])
		self.assertIn("\nelapsed  ", run.stdout)
		same = "Each of the 8 agents wrote the same tokens sharing as"
		self.assertIn(f"{same} each for itself.", run.stdout)
		self.assertIn(f"{same} alone.", run.stdout)

	def test_one_agent_alone(self):
		with tempfile.TemporaryDirectory() as folder:
			document = pathlib.Path(folder) / "document.txt"
			document.write_text("And it came to pass in the days of the king. " * 8)
			options = ["--build", BUILD, "--document", document, "--tokens", "6"]
			run = demo(*options, "--agents", "1")
		self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
		self.assertIn("One agent over one document", run.stdout)
		self.assertIn("Agent 1:", run.stdout)
		self.assertNotIn("Agent 2:", run.stdout)
		self.assertIn("\nelapsed  ", run.stdout)

	def test_bad_options_end_with_2(self):
		bad = ("--tokens", "0"), ("--tokens",), ("--token", "3"), ("more",)
		for options in *bad, ("--agents", "9"), ("--agents", "0"):
			run = demo(*options)
			self.assertEqual(run.returncode, 2, options)
			self.assertIn("usage: packaging/demo.sh", run.stderr)

	def test_what_fails_ends_with_1(self):
		self.assertEqual(demo("--document", "/no/such/document").returncode, 1)
		for option, why in ("--model", "is no model's folder"), ("--build", "is no build"):
			run = demo(option, "/no/such")
			self.assertEqual(run.returncode, 1)
			self.assertIn(f"demo: /no/such {why}", run.stderr)
		with tempfile.TemporaryDirectory() as model:
			(pathlib.Path(model) / "config.json").write_text("{}")
			run = demo("--build", BUILD, "--model", model, "--tokens", "6")
		self.assertEqual(run.returncode, 1)
		self.assertIn("demo: an agent failed", run.stderr)


if __name__ == "__main__":
	BUILD = pathlib.Path(sys.argv.pop())
	unittest.main()
