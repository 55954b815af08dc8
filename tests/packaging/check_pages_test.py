#!/usr/bin/env python3
"""check_pages_test.py - what packaging/check-pages.py complains of.

Each test looks at a small tree with one fault.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parent.parent / "packaging" / "check-pages.py"
PAGE = """# A tree

See [the other page](sub/OTHER.md#how-it-is) and `daemon/main.c`, `*.c` among others.
`pool_bytes` is set by `coppiced --pool=4G`; `/etc/coppice/coppiced.conf` is read, FILE is not.

    packaging/demo.sh --tokens N
    coppiced --pool=4G \\
            --check-config        # and some words

```c
int any_name_at_all;
```
"""


class Pages(unittest.TestCase):
	def setUp(self):
		folder = tempfile.TemporaryDirectory()
		self.addCleanup(folder.cleanup)
		self.root = pathlib.Path(folder.name)
		self.write("README.md", PAGE)
		self.write("sub/OTHER.md", "# How it is\n```c\nint any_name_at_all;\n```\n")
		self.write("daemon/main.c", 'int pool_bytes; /* "pool" "check-config" */\n')
		self.write("packaging/demo.sh", "case $1 in --tokens) ;; esac\n")

	def write(self, name, text):
		path = self.root / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text(text)

	def complaints(self):
		command = [sys.executable, SCRIPT, self.root]
		run = subprocess.run(command, capture_output=True, text=True)
		self.assertEqual(run.returncode, 1 if run.stdout else 0, run.stderr)
		return run.stdout

	def assert_found(self, old, new, complaint):
		"""What is said of README.md, with one text in place of another."""
		self.assertIn(old, PAGE)
		self.write("README.md", PAGE.replace(old, new))
		self.assertIn(f"README.md:{complaint}", self.complaints())

	def test_a_tree_in_order_passes(self):
		self.assertEqual(self.complaints(), "")

	def test_a_function_without_a_manual(self):
		self.write(
			"client/coppice.h",
			"/* as coppice_b() */\nint coppice_a(struct coppice *c);\n",
		)
		self.assertIn("coppice_a is not in packaging/man/libcoppice.3", self.complaints())
		self.write("packaging/man/libcoppice.3", '.It Fn coppice_a "struct coppice *c"\n')
		self.assertEqual(self.complaints(), "")

	def test_a_line_that_is_too_long(self):
		self.write("README.md", PAGE + "x" * 121 + "\n")
		self.assertIn("README.md:13: more than 120 columns", self.complaints())

	def test_columns_are_counted_in_letters(self):
		self.write("README.md", PAGE + "ä" * 120 + "\n")
		self.assertEqual(self.complaints(), "")

	def test_a_readme_that_is_too_long(self):
		self.write("README.md", PAGE + "x\n" * 140)
		self.assertIn("more than 150 lines", self.complaints())

	def test_a_link_to_no_file(self):
		self.assert_found("sub/OTHER.md", "sub/GONE.md", "3: no such file: sub/GONE.md")

	def test_a_link_to_no_heading(self):
		self.assert_found("#how-it-is", "#how-it-was",
			"3: no such heading: sub/OTHER.md#how-it-was")

	def test_a_file_that_is_gone(self):
		self.assert_found("daemon/main.c", "daemon/gone.c",
			"3: no such file: daemon/gone.c")

	def test_a_pattern_that_fits_nothing(self):
		self.assert_found("`*.c`", "`*.cu`", "3: no such file: *.cu")

	def test_a_name_that_is_in_no_source(self):
		self.assert_found("pool_bytes", "pond_bytes", "4: pond_bytes is in no source")

	def test_an_option_that_a_program_lacks(self):
		self.assert_found("coppiced --pool=4G`", "coppiced --pond=4G`",
			"4: coppiced has no option --pond")

	def test_an_option_behind_a_line_that_goes_on(self):
		self.assert_found("--check-config", "--check-pond",
			"7: coppiced has no option --check-pond")

	def test_an_option_that_a_script_lacks(self):
		self.assert_found("--tokens", "--token",
			"6: packaging/demo.sh has no option --token")

	def test_code_that_no_other_page_has(self):
		self.assert_found("int any_name", "long any_name",
			"10: no other page has this code")

	def test_a_script_that_is_gone(self):
		self.assert_found("packaging/demo.sh", "packaging/gone.sh",
			"6: no such file: packaging/gone.sh")


if __name__ == "__main__":
	unittest.main()
