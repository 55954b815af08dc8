#!/usr/bin/env python3
"""What stands in for a library that is not there: it is found, has the symbols in their versions,
and says that there is no device."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "packaging" / "cuda-stand-ins.py"
MAP = "libcufake.so.3 { global: fake_count; };\nMORE { global: fake_more; };\n"
REAL = "int fake_count(int *n) { *n = 4; return 0; } int fake_more(void) { return 1; }"
OTHER = """int nvother_count(void) { return 2; }
const char *nvGetErrorString(int error) { return "an error"; }"""
USER = """int fake_count(int *n); int fake_more(void); int nvother_count(void); double cos(double);
int counted(void) { int n = -1; return fake_count(&n) * 1000 + fake_more() + nvother_count(); }
const char *nvGetErrorString(int error); const char *told(void) { return nvGetErrorString(1); }
double cosine(double x) { return cos(x); }"""
USES = """import ctypes, sys
user = ctypes.CDLL(sys.argv[1])
user.told.restype = ctypes.c_char_p
print(user.counted(), user.told().decode())"""


def link(path, code, *options):
	command = ["cc", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{path.name}", "-o", path]
	command += ["-xc", "-", "-xnone", *options]
	subprocess.run(command, input=code, text=True, check=True)


def counted(user):
	run = subprocess.run([sys.executable, "-c", USES, user], capture_output=True, text=True)
	return run.stdout.strip() or run.stderr


class StandIns(unittest.TestCase):
	def setUp(self):
		folder = tempfile.TemporaryDirectory()
		self.addCleanup(folder.cleanup)
		self.place = pathlib.Path(folder.name)
		script, libraries = self.place / "map", self.place / "torch" / "lib"
		script.write_text(MAP)
		libraries.mkdir(parents=True)
		self.real = self.place / "libcufake.so.3", self.place / "libnvother.so.1"
		self.user = libraries / "libuser.so"
		link(self.real[0], REAL, f"-Wl,--version-script={script}")
		link(self.real[1], OTHER)
		search = "-Wl,--no-as-needed,-rpath,$ORIGIN/../../nvidia/cu13/lib"
		link(self.user, USER, *self.real, "-lm", search)

	def test_it_fails_where_the_real_one_is_not(self):
		for real in self.real:
			real.unlink()
		self.assertIn("libcufake.so.3", counted(self.user))
		subprocess.run([SCRIPT, self.place / "torch"], check=True)
		self.assertIn("100200 no device", counted(self.user))

	def test_it_is_of_what_torch_lacks_and_of_nothing_else(self):
		subprocess.run([SCRIPT, self.place / "torch"], check=True)
		made = (self.place / "nvidia" / "cu13" / "lib").iterdir()
		wanted = {one.name for one in self.real}
		self.assertEqual({one.name for one in made}, wanted)


if __name__ == "__main__":
	unittest.main()
