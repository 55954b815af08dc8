#!/usr/bin/env python3
"""racecheck_test.py - what packaging/racecheck.py takes for passed.

It looks at racecheck.log, and at that log with one thing changed.
Neither a GPU nor CUDA is needed: stubs/cuobjdump tells of the code that the log names.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parent.parent / "packaging" / "racecheck.py"
LOG = (HERE / "racecheck.log").read_text()
ATTEND = "void attend_kernel<dtype_half, (unsigned int)128>(device_attend)"


def changed(*pairs):
	"""The log with texts in place of others, all of which it has."""
	log = LOG
	for old, new in pairs:
		assert old in log, old
		log = log.replace(old, new)
	return log


def run(log, path=f"{HERE / 'stubs'}:/usr/bin:/bin"):
	"""(exit status, what it said)"""
	with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
		file.write(log)
		file.flush()
		command = [sys.executable, SCRIPT, file.name, "no-module"]
		done = subprocess.run(command, env={"PATH": path}, text=True, capture_output=True,
			check=False)
	return done.returncode, done.stdout + done.stderr


class Racecheck(unittest.TestCase):
	def passes(self, log, *said):
		self.ends(0, log, *said)

	def fails(self, log, *said):
		self.ends(1, log, *said)

	def ends(self, status, log, *said):
		got, text = run(log)
		self.assertEqual(got, status, text)
		for part in said:
			self.assertIn(part, text)

	def test_argued_hazards_alone_pass(self):
		self.passes(LOG, "928 hazards that are none: a fetching warp",
			"32 hazards that are none: a bulk copy", "\n0 other hazards")

	def test_other_instructions_fail(self):
		self.fails(changed(("+0xaad0", "+0xb000")),
			"448 of Write 'STS.128 [R2], RZ ' and Read 'STS [R5], R6 '")

	def test_what_the_code_lacks_fails(self):
		self.fails(changed(("+0xaad0", "+0xaad8")), "and Read '?'")

	def test_argued_instructions_of_another_kernel_fail(self):
		mass = "mass_kernel(estimate_job)"
		log = changed((ATTEND + "+0x2480", mass + "+0x480"),
			(ATTEND + "+0xaa90 [480", mass + "+0xa90 [480"),
			(ATTEND + "+0xaad0 [448", mass + "+0xa90 [448"))
		self.fails(log, "928 of Write", "in mass_kernel(")

	def test_demanglers_may_spell_numbers_otherwise(self):
		self.passes(changed(("(unsigned int)128", "128u")), "\n0 other hazards")

	def test_a_failed_test_fails(self):
		failed = "[  PASSED  ] 0 test(s).\n[  FAILED  ] 1 test"
		self.fails(changed(("[  PASSED  ] 1 test", failed)), "a test failed")

	def test_tests_that_broke_off_fail(self):
		self.fails(changed(("[  PASSED  ] 1 test(s).\n", "")), "did not come to their end")

	def test_more_displayed_than_the_log_has_fails(self):
		self.fails(changed(("SUMMARY: 2", "SUMMARY: 3")),
			"3 hazards displayed, but 2 are in the log")

	def test_fewer_displayed_than_the_log_has_fails(self):
		self.fails(changed(("SUMMARY: 2", "SUMMARY: 1")),
			"1 hazards displayed, but 2 are in the log")

	def test_reports_in_other_words_fail(self):
		self.fails(changed(("Race reported between", "Race found by")),
			"something else than a race")
		self.fails(changed(("Error: Race reported between", "Race:")),
			"2 hazards displayed, but 0 are in the log")

	def test_accesses_in_other_words_fail(self):
		none, one = "of which 0 can be read", "of which 1 can be read"
		self.fails(changed(("between Write access", "between Atomic access")), none)
		self.fails(changed((f"Read access at {ATTEND}+0xaad0", "Read access")), one)
		self.fails(changed(("    and Read", "    with Read")), none)

	def test_a_log_without_a_summary_fails(self):
		self.fails(changed(("RACECHECK SUMMARY", "SUMMARY")), "0 summaries")

	def test_a_status_without_hazards_fails(self):
		head = LOG[:LOG.index("========= Error")]
		summary = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
		self.fails(f"{head}[  PASSED  ] 1 test(s).\n========= {summary}\n",
			"displayed no hazards")

	def test_an_error_that_is_no_race_fails(self):
		begin = "========= COMPUTE-SANITIZER\n"
		self.fails(changed((begin, begin + "========= Error: out of memory\n")),
			"something else than a race: Error: out of memory")

	def test_without_cuobjdump_nothing_is_known(self):
		with tempfile.TemporaryDirectory() as empty:
			status, text = run(LOG, empty)
		self.assertEqual(status, 2, text)
		self.assertIn("the module's code cannot be looked at", text)


if __name__ == "__main__":
	unittest.main()
