#!/usr/bin/env python3
"""What packaging/check-sizes.awk complains of: lines and files at the limits, and beyond."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "check-sizes.awk"


def functions(*lines):
	"""Text with a function of each so many lines."""
	return "\n".join("struct some {\n\tint member;\n};\n\nstatic int\nf(int x)\n{\n"
		+ "\treturn x;\n" * (n - 4) + "}\n" for n in lines)


class Sizes(unittest.TestCase):
	def complaints(self, *texts, options=(), kind=""):
		"""What is said of files a, b... with these texts."""
		names = [chr(ord("a") + i) + kind for i in range(len(texts))]
		with tempfile.TemporaryDirectory() as folder:
			for name, text in zip(names, texts):
				(pathlib.Path(folder) / name).write_text(text)
			run = subprocess.run(["awk", *options, "-f", SCRIPT, *names], cwd=folder,
				text=True, capture_output=True,
				env={**os.environ, "LC_ALL": "C"})
		self.assertEqual(run.stderr, "")
		self.assertEqual(run.returncode, 1 if run.stdout else 0)
		return run.stdout.splitlines()

	def test_what_is_within_the_limits_passes(self):
		self.assertEqual(self.complaints("x" * 100 + "\n", "y\n" * 600), [])

	def test_a_line_that_is_too_long(self):
		self.assertEqual(self.complaints("x\n" + "x" * 101 + "\n"), ["a:2: 101 columns"])

	def test_a_tab_goes_to_the_next_eighth_column(self):
		self.assertEqual(self.complaints("\t\t" + "x" * 84 + "\n", "xyz\t" + "x" * 92), [])
		self.assertEqual(self.complaints("xyz\t" + "x" * 93), ["a:1: 101 columns"])

	def test_columns_are_counted_in_characters(self):
		self.assertEqual(self.complaints("ä" * 100 + "\n", "äöü→\t" + "x" * 92), [])
		self.assertEqual(self.complaints("ä" * 101), ["a:1: 101 columns"])

	def test_a_file_that_is_too_long(self):
		self.assertEqual(self.complaints("x\n" * 700, "x\n"), ["a:601: over 600 lines"])

	def test_each_file_that_is_too_long(self):
		said = self.complaints("x\n" * 601, "x\n" * 601)
		self.assertEqual(said, ["a:601: over 600 lines", "b:601: over 600 lines"])

	def test_a_head_that_only_names_the_header(self):
		said = self.complaints("/* a.c - see a.h. */\n", "/*\n * b.c - see b.h.\n */\n")
		self.assertEqual(said, ["a:1: a head that says nothing",
			"b:3: a head that says nothing"])

	def test_a_head_that_says_something(self):
		self.assertEqual(self.complaints("/* a.c - sums of rows; see a.h. */\n",
			"/*\n * b.c - see b.h. Sums are fp32.\n */\n",
			"/*\n * c.c - see c.h.\n *\n * Sums are fp32.\n */\n"), [])

	def test_functions_as_long_as_they_may_be(self):
		said = self.complaints(functions(*[11] * 5), functions(*[24] * 4, 90), kind=".c")
		self.assertEqual(said, [])

	def test_functions_that_are_too_long_in_the_middle(self):
		said = self.complaints(functions(*[11] * 4), functions(*[12] * 5), kind=".cu")
		self.assertEqual(said,
			["50 % of 9 functions have up to 12 lines, and should have 11"])

	def test_too_many_functions_that_are_too_long(self):
		said = self.complaints(functions(*[5] * 8), functions(25, 25), kind=".c")
		self.assertEqual(said,
			["90 % of 10 functions have up to 25 lines, and should have 24"])

	def test_functions_of_other_languages_are_not_counted(self):
		self.assertEqual(self.complaints(functions(50), kind=".txt"), [])

	def test_a_page_may_be_wider_and_longer(self):
		page = ("-v", "page=1")
		self.assertEqual(self.complaints("x" * 120 + "\n" * 700, options=page), [])
		self.assertEqual(self.complaints("x" * 121, options=page), ["a:1: 121 columns"])


if __name__ == "__main__":
	unittest.main()
