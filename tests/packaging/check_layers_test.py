#!/usr/bin/env python3
"""check_layers_test.py - what packaging/check-layers.py complains of.

Each test looks at a small tree, most with one fault, and gives it a call graph as gcc leaves it.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parent.parent / "packaging" / "check-layers.py"
RULES = "kernels:\ndaemon: kernels\n\ndaemon < base sched\nkernels/cuda < device program\n"
GROUND = ("ground: proto/clock.h proto/wait.h\nproto:\n"
	+ RULES.replace("kernels:\n", "kernels: ground\n"))
NESTED = RULES + "kernels < . plan cuda\n"
CLIENT = RULES + "client:\nclosed: client/lib\nclient < . lib ctl example.c\n"
WHOLE = '#include "daemon/sched/part.h"\nint whole_begin(void)\n{\n\treturn part_begin();\n}\n'


def graph(path, caller, callee):
	"""One call out of a file."""
	return (f'node: {{ title: "{caller}" label: "{caller}\\n{path}:1:1" }}\n'
		f'edge: {{ sourcename: "{caller}" targetname: "{callee}" }}\n')


class Layers(unittest.TestCase):
	def setUp(self):
		folder = tempfile.TemporaryDirectory()
		self.addCleanup(folder.cleanup)
		self.root = pathlib.Path(folder.name)
		self.write("packaging/layers", RULES)
		shutil.copy(SCRIPT, self.root / "packaging")
		self.write("daemon/base/log.h", "void log_say(void);\n")
		self.write("daemon/base/log.c", "void log_say(void)\n{\n\t(void)0;\n}\n")
		self.write("daemon/sched/part.h", "int part_begin(void);\n")
		self.write("daemon/sched/part.c", "int part_begin(void)\n{\n\treturn 0;\n}\n")
		self.write("daemon/sched/whole.h", "int whole_begin(void);\n")
		self.write("daemon/sched/whole.c", WHOLE)
		self.calls("daemon/sched/whole.c", "whole_begin", "part_begin")
		self.calls("daemon/sched/part.c", "part_begin", "log_say")
		self.calls("daemon/base/log.c", "log_say", "puts")

	def write(self, name, text):
		path = self.root / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text(text)

	def calls(self, path, caller, callee):
		name = f"build/{path.replace('/', '.')}.{callee}.ci"
		self.write(name, graph(self.root / path, caller, callee))

	def complaints(self, known=True):
		"""known: to git."""
		if known:
			subprocess.run(["git", "init", "-q", "."], cwd=self.root, check=True)
			subprocess.run(["git", "add", "."], cwd=self.root, check=True)
		command = [sys.executable, "packaging/check-layers.py", "--calls", "build"]
		run = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
		last = run.stdout.splitlines()[-1]
		self.assertEqual(run.returncode, 0 if last == "0 complaints" else 1, run.stderr)
		return run.stdout

	def test_what_goes_down_is_fine(self):
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_a_call_that_goes_up(self):
		self.calls("daemon/base/log.c", "log_say", "part_begin")
		self.assertIn("log_say calls part_begin of daemon/sched/part.c: it stands higher",
			self.complaints())

	def test_a_circle_of_calls(self):
		self.calls("daemon/sched/part.c", "part_begin", "whole_begin")
		self.assertIn("a circle of 2 files: daemon/sched/part daemon/sched/whole",
			self.complaints())

	def test_a_circle_through_a_function_of_a_header(self):
		self.write("daemon/sched/whole.h",
			"static inline int whole_n(const int *n)\n{\n\treturn *n;\n}\n")
		self.write("daemon/sched/part.c", '#include "whole.h"\n'
			"int part_begin(void)\n{\n\treturn whole_n(&(int){1});\n}\n")
		self.assertIn("part_begin calls whole_n", self.complaints())

	def test_a_circle_through_what_a_header_calls(self):
		self.write("daemon/sched/ground.h",
			"static inline int ground_begin(void)\n{\n\treturn part_begin();\n}\n"
			"static inline int ground_n(void)\n{\n\treturn 1;\n}\n")
		self.write("daemon/sched/part.c", '#include "ground.h"\n'
			"int part_begin(void)\n{\n\treturn ground_n();\n}\n")
		self.assertIn("ground_begin calls part_begin", self.complaints())

	def test_a_circle_through_a_function_whose_brace_is_on_its_line(self):
		self.write("daemon/sched/ground.h",
			"static inline int ground_begin(void) {\n\treturn part_begin();\n}\n"
			"static inline int ground_n(void)\n{\n\treturn 1;\n}\n")
		self.write("daemon/sched/part.c", '#include "ground.h"\n'
			"int part_begin(void)\n{\n\treturn ground_n();\n}\n")
		self.assertIn("ground_begin calls part_begin", self.complaints())

	def test_what_is_written_of_a_function_is_no_call(self):
		self.write("daemon/sched/whole.h",
			"static inline int whole_n(void)\n{\n\treturn 1;\n}\n")
		self.write("daemon/sched/part.c", '#include "whole.h"\n'
			"int part_begin(void)\n{\n\t/* as whole_n() */\n"
			'\treturn (int)sizeof("whole_n()");\n}\n')
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_a_namesake_that_is_not_included_is_no_call(self):
		self.write("daemon/sched/whole.h",
			"static inline int twice(void)\n{\n\treturn 1;\n}\n")
		self.write("daemon/sched/part.c", "int part_begin(void)\n{\n\treturn twice();\n}\n")
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_a_call_of_what_nvcc_compiles(self):
		self.write("kernels/cuda/program/few.cu",
			'extern "C" int few_launch(void)\n{\n\treturn 0;\n}\n')
		self.write("kernels/cuda/device/card.c",
			"int card_begin(void)\n{\n\treturn few_launch();\n}\n")
		self.assertIn("card_begin calls few_launch of kernels/cuda/program/few.cu: "
			"it stands higher", self.complaints())

	def test_a_circle_of_what_the_build_leaves_out(self):
		self.write("daemon/sched/one.c",
			"static int help(void)\n{\n\treturn 0;\n}\n\n"
			"int one(void)\n{\n\treturn two() + help();\n}\n")
		self.write("daemon/sched/two.c",
			"static int help(void)\n{\n\treturn 0;\n}\n\n"
			"int two(void)\n{\n\treturn one() + help();\n}\n")
		said = self.complaints()
		self.assertIn("a circle of 2 files: daemon/sched/one daemon/sched/two", said)
		self.assertNotIn("help", said)

	def test_a_call_up_of_what_the_build_leaves_out(self):
		self.write("daemon/base/odd.c", "int odd(void)\n{\n\treturn part_begin();\n}\n")
		self.assertIn("daemon/base/odd.c: odd calls part_begin of daemon/sched/part.c: "
			"it stands higher", self.complaints())

	def test_a_namesake_that_the_build_leaves_out_is_not_called(self):
		self.write("daemon/sched/python/part.c",
			"int part_begin(void)\n{\n\treturn whole_begin();\n}\n")
		self.write("packaging/layers",
			RULES.replace("base sched", "base sched sched/python"))
		self.assertNotIn("whole.c: whole_begin calls part_begin of daemon/sched/python",
			self.complaints())

	def test_headers_that_include_each_other(self):
		self.write("daemon/sched/part.h", '#include "whole.h"\n')
		self.write("daemon/sched/whole.h", '#include "part.h"\n')
		self.assertIn("2 files include each other: daemon/sched/part.h "
			"daemon/sched/whole.h", self.complaints())

	def test_modules_of_python_that_import_each_other(self):
		self.write("client/python/pack/__init__.py", "from .low import one\n")
		self.write("client/python/pack/low.py", "one = 1\n")
		self.write("client/python/pack/in/__init__.py", "from ..low import one\n")
		self.write("client/python/pack/in/high.py", "import os\nfrom .. import low\n")
		self.assertEqual(self.complaints(), "0 complaints\n")
		self.write("client/python/pack/low.py",
			"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pack\n")
		self.assertIn("2 modules import each other: client/python/pack/__init__.py "
			"client/python/pack/low.py", self.complaints())

	def test_a_tree_that_git_does_not_know(self):
		self.write("daemon/base/log.c", '#include "daemon/sched/part.h"\n')
		self.assertIn("it stands higher", self.complaints(known=False))

	def test_no_sources_at_all(self):
		shutil.rmtree(self.root / "daemon")
		subprocess.run(["git", "init", "-q", "."], cwd=self.root, check=True)
		run = subprocess.run([sys.executable, "packaging/check-layers.py"], cwd=self.root,
			capture_output=True, text=True)
		self.assertNotEqual(run.returncode, 0)
		self.assertIn("no sources here", run.stderr)

	def test_ground(self):
		self.write("packaging/layers", GROUND)
		self.write("proto/clock.h", "static inline int clock_ns(void)\n{\n\treturn 1;\n}\n")
		self.write("proto/wait.h", '#include "clock.h"\n')
		self.write("kernels/wait.c", '#include "proto/wait.h"\n'
			"int wait_ns(void)\n{\n\treturn clock_ns();\n}\n")
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_what_of_proto_is_not_ground(self):
		self.write("packaging/layers", GROUND)
		self.write("proto/ring.h", "int ring;\n")
		self.write("kernels/wait.c", '#include "proto/ring.h"\n')
		self.assertIn("kernels/wait.c:1: includes proto/ring.h: kernels may not use proto",
			self.complaints())

	def test_ground_that_uses_what_is_not(self):
		self.write("packaging/layers", GROUND)
		self.write("proto/ring.h", "int ring;\n")
		self.write("proto/clock.h", '#include "ring.h"\n')
		self.assertIn("includes proto/ring.h: what is ground uses ground alone",
			self.complaints())

	def test_what_the_agent_may_use(self):
		self.write("packaging/layers", GROUND + "client: proto\n")
		self.write("kernels/work.h", "struct work;\n")
		self.write("proto/clock.h", "int clock;\n")
		self.write("client/agent/run.c",
			'#include "kernels/work.h"\n#include "proto/clock.h"\n')
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_what_the_agent_may_not_use(self):
		self.write("packaging/layers", RULES + "proto:\nclient: proto\n")
		self.write("kernels/backend.h", "struct backend;\n")
		self.write("proto/ring.h", "int ring;\n")
		self.write("client/agent/run.c",
			'#include "kernels/backend.h"\n#include "proto/ring.h"\n')
		found = self.complaints()
		self.assertIn("client may not use kernels", found)
		self.assertIn("coppice-agent may use coppice.h alone", found)

	def test_an_order_around_another(self):
		self.write("packaging/layers", NESTED)
		self.write("kernels/cuda/device/card.h", "int card;\n")
		self.write("kernels/plan/cut.h", '#include "kernels/cuda/device/card.h"\n')
		self.assertIn("includes kernels/cuda/device/card.h: it stands higher",
			self.complaints())

	def test_an_order_inside_another(self):
		self.write("packaging/layers", NESTED)
		self.write("kernels/cuda/program/few.h", "int few;\n")
		self.write("kernels/cuda/device/card.h", '#include "kernels/cuda/program/few.h"\n')
		self.assertIn("includes kernels/cuda/program/few.h: it stands higher",
			self.complaints())

	def test_what_goes_down_in_both_orders_is_fine(self):
		self.write("packaging/layers", NESTED)
		self.write("kernels/work.h", "int work;\n")
		self.write("kernels/plan/cut.h", '#include "kernels/work.h"\n')
		self.write("kernels/cuda/device/card.h", '#include "kernels/plan/cut.h"\n')
		self.write("kernels/cuda/program/few.h", '#include "kernels/cuda/device/card.h"\n')
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_of_namesakes_the_nearest_is_called(self):
		self.write("packaging/layers", RULES + "kernels < . cpu cuda\n")
		for folder in "cpu", "cuda/device":
			path = f"kernels/{folder}/pool.c"
			self.write(path, "int pool_init(void)\n{\n\treturn 0;\n}\n")
			self.calls(path, "pool_init", "puts")
		self.write("kernels/cpu/open.c",
			"int open_it(void)\n{\n\treturn pool_init();\n}\n")
		self.calls("kernels/cpu/open.c", "open_it", "pool_init")
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_a_folder_that_an_order_does_not_name(self):
		self.write("packaging/layers", NESTED)
		self.write("kernels/odd/one.h", "int one;\n")
		self.write("kernels/plan/cut.h", '#include "kernels/odd/one.h"\n')
		self.assertIn("kernels/odd/one.h stands in a folder that packaging/layers does not "
			"name", self.complaints())

	def client(self):
		self.write("packaging/layers", CLIENT)
		self.write("client/coppice.h", "int coppice_open(void);\n")
		self.write("client/lib/open.h", "int open_it(void);\n")
		self.write("client/lib/open.c", "int coppice_open(void)\n{\n\treturn 0;\n}\n")
		self.calls("client/lib/open.c", "coppice_open", "puts")
		self.write("client/ctl/main.c", "int main(void)\n{\n\treturn coppice_open();\n}\n")
		self.calls("client/ctl/main.c", "main", "coppice_open")

	def test_a_closed_folder_may_be_called(self):
		self.client()
		self.assertEqual(self.complaints(), "0 complaints\n")

	def test_a_header_of_a_closed_folder(self):
		self.client()
		self.write("client/ctl/main.h", '#include "client/lib/open.h"\n')
		self.assertIn("client/ctl/main.h:1: includes client/lib/open.h: "
			"client/lib is closed", self.complaints())

	def test_a_file_with_a_place_of_its_own(self):
		self.client()
		self.write("client/example.c",
			"int example(void)\n{\n\treturn coppice_open();\n}\n")
		self.calls("client/example.c", "example", "coppice_open")
		self.assertEqual(self.complaints(), "0 complaints\n")
		self.write("client/other.c",
			"int other(void)\n{\n\treturn coppice_open();\n}\n")
		self.calls("client/other.c", "other", "coppice_open")
		self.assertIn("other calls coppice_open of client/lib/open.c: it stands higher",
			self.complaints())

	def test_a_build_without_a_call_graph(self):
		shutil.rmtree(self.root / "build")
		self.assertIn("build has no call graph", self.complaints())


if __name__ == "__main__":
	unittest.main()
