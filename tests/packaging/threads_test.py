#!/usr/bin/env python3
"""What tests/bench/threads.py tells of threads that spin, sleep, and share a core."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "bench" / "threads.py"


def load():
	spec = importlib.util.spec_from_file_location("threads", SCRIPT)
	module = importlib.util.module_from_spec(spec)
	sys.modules["threads"] = module  # as dataclasses want it
	spec.loader.exec_module(module)
	return module


threads = load()
CORE = min(os.sched_getaffinity(0))
SPIN = "while True: pass"


def other(code):
	"""On the core that this process is put on."""
	process = subprocess.Popen([sys.executable, "-c", code])
	os.sched_setaffinity(process.pid, {CORE})
	return process


def work(seconds):
	"""So much of the processor's time."""
	begun = time.thread_time()
	while time.thread_time() - begun < seconds:
		pass


class Tells(unittest.TestCase):
	def setUp(self):
		self.cores = os.sched_getaffinity(0)

	def tearDown(self):
		os.sched_setaffinity(0, self.cores)

	def watched(self, processes, n=10):
		watch = threads.Watch({"own": os.getpid(), **processes})
		watch.begin()
		for _ in range(n):
			work(0.02)
			watch.look()
		watch.end()
		return watch

	def test_who_works_is_on_a_core_and_who_sleeps_is_not(self):
		end = threading.Event()
		sleeper = threading.Thread(target=end.wait)
		sleeper.start()
		watch = self.watched({})
		end.set()
		sleeper.join()
		count = watch.counts[watch.first]
		self.assertGreaterEqual(count.on_core, 190)
		self.assertLessEqual(count.on_core + count.waiting, watch.ms * 1.05 + 5)
		self.assertEqual(watch.busy_threads(), [watch.first])
		self.assertEqual(len(watch.counts), 2)

	def test_who_spins_on_the_same_core_is_named(self):
		spinner = other(SPIN)
		os.sched_setaffinity(0, {CORE})
		try:
			watch = self.watched({"spinner": spinner.pid})
		finally:
			spinner.kill()
			spinner.wait()
		thread = threads.Thread("spinner", spinner.pid, spinner.pid)
		self.assertIn(thread, watch.busy_threads())
		self.assertGreater(watch.beside[thread], 0)
		self.assertGreater(watch.counts[watch.first].waiting, 0)
		told = watch.told("turn", 10)
		self.assertIn("in 10 looks: spinner: python", told)
		self.assertEqual(told.count("\n| "), 3)

	def test_who_has_ended_is_left_out(self):
		ended = other("pass")
		watch = threads.Watch({"own": os.getpid(), "ended": ended.pid})
		watch.begin()
		ended.wait()
		watch.look()
		watch.end()
		self.assertEqual([t.of for t in watch.counts], ["own"])
		self.assertIn("nobody of these", watch.told("turn", 1))

	def test_processes_by_their_programs(self):
		sleeper = subprocess.Popen(["sleep", "60"])
		try:
			while sleeper.pid not in threads.pids_of("sleep"):
				self.assertIsNone(sleeper.poll())
		finally:
			sleeper.kill()
			sleeper.wait()
		self.assertEqual(threads.pids_of("no such program"), [])

	def test_siblings_have_the_core_itself(self):
		self.assertIn(CORE, threads.siblings_of(CORE))
		self.assertEqual(threads.siblings_of(10**6), {10**6})

	def test_a_loop_takes_time(self):
		self.assertGreater(threads.loop_ms(), 0.1)


if __name__ == "__main__":
	unittest.main()
