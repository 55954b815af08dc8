#!/usr/bin/env python3
"""What packaging/check.sh --only runs: one test where it is given a test's name, else what matches.

CMake and CTest are stand-ins, which write down what they are asked for."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
TESTS = ("sparse_test", "sched_sparse_test", "loop_test")
CMAKE = """#!/bin/sh
echo "cmake $*" >>asked
case "$*" in *"--target help"*) echo "sparse_test: phony" ;; esac
"""
CTEST = """#!/bin/sh
echo "ctest $*" >>asked
case " $* " in *" -N "*) n=0; for t in {}; do n=$((n + 1)); echo "  Test   #$n: $t"; done ;; esac
"""


class Only(unittest.TestCase):
	def asked(self, *arguments):
		"""What CMake and CTest are asked for."""
		with tempfile.TemporaryDirectory() as folder:
			root = pathlib.Path(folder)
			(root / "packaging").mkdir()
			(root / "bin").mkdir()
			shutil.copy(PACKAGING / "check.sh", root / "packaging")
			programs = {"packaging/install-deps.sh": "#!/bin/sh\n", "bin/cmake": CMAKE,
				"bin/ctest": CTEST.format(" ".join(TESTS))}
			for name, text in programs.items():
				(root / name).write_text(text)
				(root / name).chmod(0o755)
			run = subprocess.run(["packaging/check.sh", "--only", *arguments], cwd=root,
				env={**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"},
				text=True, capture_output=True)
			self.assertEqual((run.returncode, run.stderr), (0, ""))
			return (root / "asked").read_text().splitlines()

	def test_a_tests_name_is_that_test_alone(self):
		asked = self.asked("sparse_test")
		self.assertIn(" -R ^sparse_test$", asked[-1])
		self.assertIn("--build build/check --target sparse_test", asked[-3])

	def test_what_is_no_name_is_an_expression(self):
		asked = self.asked("sparse")
		self.assertTrue(asked[-1].endswith(" -R sparse"), asked[-1])
		self.assertIn("--target all", asked[-3])

	def test_an_expression_that_is_like_a_target(self):
		asked = self.asked("sparse.*")
		self.assertTrue(asked[-1].endswith(" -R sparse.*"), asked[-1])
		self.assertIn("--target all", asked[-3])

	def test_a_name_with_a_sanitizer(self):
		asked = self.asked("loop_test", "--under", "thread")
		self.assertIn("--test-dir build/tsan ", asked[-1])
		self.assertIn(" -R ^loop_test$", asked[-1])


if __name__ == "__main__":
	unittest.main()
