#!/usr/bin/env python3
"""Scripts take options that are written in full, as the programs do, and before_after.py two
folders that are there."""

import ast
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parsers(path):
	"""The keywords that it makes its parsers with."""
	for node in ast.walk(ast.parse(path.read_text())):
		if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ArgumentParser"):
			yield {word.arg: ast.unparse(word.value) for word in node.keywords}


class Arguments(unittest.TestCase):
	def test_options_are_written_in_full(self):
		found = 0
		for folder in ("client", "packaging", "tests"):
			for path in (ROOT / folder).rglob("*.py"):
				for words in parsers(path):
					found += 1
					self.assertEqual(words.get("allow_abbrev"), "False", path)
		self.assertGreater(found, 8)

	def before_after(self, *words):
		command = [sys.executable, ROOT / "tests" / "bench" / "before_after.py", *words]
		return subprocess.run(command, capture_output=True, text=True)

	def test_folders_that_are_not_there(self):
		with tempfile.TemporaryDirectory() as build:
			for folders in (("/nope", build), (build, "/nope")):
				done = self.before_after(*folders)
				self.assertEqual((done.returncode, done.stdout), (2, ""))
				self.assertIn("there is no build folder /nope\n", done.stderr)
			done = self.before_after(build, build, "--sec", "1")
			self.assertEqual(done.returncode, 2)
			self.assertIn("unrecognized arguments: --sec", done.stderr)


if __name__ == "__main__":
	unittest.main()
