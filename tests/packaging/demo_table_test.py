#!/usr/bin/env python3
"""The demo's table and its exit status, over reports made up here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TABLE = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "demo" / "table.py"
N = 2


def report(ids, computed, layers):
	return {
		"layers": layers,
		"weights_bytes": 1 << 20,
		"weights_bytes_read": 1 << (19 if layers == "daemon" else 21),
		"tokens_cached": 0,
		"tokens_waited": 10 - computed,
		"tokens_prefilled": computed,
		"tokens_generated": len(ids),
		"sequences": [{"prompt_tokens": 10, "ids": ids}],
	}


def status(read, held, evicted=0):
	return {
		"kv_bytes_read": read,
		"decode_kv_bytes_read": read // 2,
		"page_bytes": held,
		"pages_evicted": evicted,
	}


class Table(unittest.TestCase):
	def setUp(self):
		self.folder = tempfile.TemporaryDirectory()
		self.at = pathlib.Path(self.folder.name)
		self.way("shared", 2.0, 5, [[1, 2, 3], [4, 5, 6]], 1 << 20)
		self.way("layers", 3.0, 5, [[1, 2, 3], [4, 5, 6]], 1 << 20)
		self.way("private", 8.0, 10, [[1, 2, 3], [4, 5, 6]], 3 << 20)
		self.way("alone", 6.0, 10, [[1, 2, 3], [4, 5, 6]], 3 << 20)

	def tearDown(self):
		self.folder.cleanup()

	def write(self, name, what):
		(self.at / name).write_text(json.dumps(what))

	def way(self, name, seconds, computed, ids, read, evicted=0):
		layers = "daemon" if name == "shared" else "self"
		for i in range(N):
			self.write(f"{name}-{i}.json", report(ids[i], computed, layers))
		self.write(f"{name}-before.json", status(1 << 30, 0, 7))
		self.write(f"{name}-after.json", status((1 << 30) + read, read, 7 + evicted))
		(self.at / f"{name}-s").write_text(f"{seconds}\n")
		(self.at / f"{name}-cpu-s").write_text(f"{2 * seconds}\n")

	def run_table(self):
		command = [sys.executable, TABLE, self.at, str(N)]
		run = subprocess.run(command, capture_output=True, text=True, check=False)
		self.assertEqual(run.stderr, "")
		return run.returncode, run.stdout

	def row(self, out, title):
		lines = [line for line in out.splitlines() if line.startswith(title)]
		self.assertEqual(len(lines), 1, out)
		return lines[0][len(title):].split("  ")

	def cells(self, out, title):
		return [cell.strip() for cell in self.row(out, title) if cell.strip()]

	def assert_row(self, out, title, *cells):
		self.assertEqual(self.cells(out, title), list(cells))

	def test_ways_stand_side_by_side(self):
		code, out = self.run_table()
		self.assertEqual(code, 0)
		mib, three = "1.0 MiB", "3.0 MiB"
		self.assert_row(out, "elapsed", "2.0 s", "3.0 s", "8.0 s", "6.0 s")
		self.assert_row(out, "of the processor", "4.0 s", "6.0 s", "16.0 s", "12.0 s")
		self.assert_row(out, "tokens/s in sum", "3.0", "2.0", "0.8", "1.0")
		self.assert_row(out, "tokens computed", "16", "16", "26", "26")
		self.assert_row(out, "KV read by attention", mib, mib, three, three)
		self.assert_row(out, "  of it by decode steps",
			"-", "512.0 KiB", "1.5 MiB", "1.5 MiB")
		self.assert_row(out, "weights held",
			f"once {mib}", f"2 x {mib}", f"2 x {mib}", f"each {mib}")
		self.assert_row(out, "weights read a token", "256.0 KiB", mib, mib, mib)
		self.assertIn("Sharing was 1.5 times as fast as all at once, own layers.", out)
		self.assertIn("Sharing was 4.0 times as fast as all at once, each for itself.", out)
		self.assertIn("Sharing was 3.0 times as fast as one after the other.", out)
		same = "Each of the 2 agents wrote the same tokens sharing as"
		self.assertIn(f"{same} each for itself.", out)
		self.assertIn(f"{same} alone.", out)
		self.assertNotIn("evicted", out)
		self.assertLessEqual(max(map(len, out.splitlines())), 120)

	def test_other_tokens_are_a_failure(self):
		for way in "private", "alone":
			with self.subTest(way):
				for other in "private", "alone":
					last = [4, 9, 6] if other == way else [4, 5, 6]
					self.way(other, 8.0, 10, [[1, 2, 3], last], 3 << 20)
				code, out = self.run_table()
				self.assertEqual(code, 1)
				self.assertIn("Agent 2 wrote other tokens sharing than", out)
				self.assertIn("1 of the 2 agents wrote the same tokens", out)

	def test_fewer_tokens_are_a_failure(self):
		self.way("alone", 8.0, 10, [[1, 2, 3], [4, 5]], 3 << 20)
		self.assertEqual(self.run_table()[0], 1)

	def test_a_pool_that_was_too_small_is_said(self):
		self.way("private", 8.0, 10, [[1, 2, 3], [4, 5, 6]], 3 << 20, evicted=1)
		self.assertIn("Pages were evicted", self.run_table()[1])

	def logprobs(self, name, i, own, other):
		path = self.at / f"{name}-{i}.json"
		made = json.loads(path.read_text())
		made["sequences"][0]["logprobs"] = [[own, other[0], other[1]]] * 3
		path.write_text(json.dumps(made))

	def test_only_a_tie_excuses_other_tokens(self):
		for gap, expected in (0.01, 0), (0.2, 1):
			with self.subTest(gap):
				self.way("cpu", 9.0, 5, [[1, 2, 3], [9, 5, 6]], 1 << 20)
				self.logprobs("shared", 1, -1.0, (9, -1.0 - gap))
				self.logprobs("cpu", 1, -1.0, (4, -1.0 - gap))
				code, out = self.run_table()
				self.assertEqual(code, expected)
				self.assertIn("a tie" if expected == 0 else "NO TIE", out)


if __name__ == "__main__":
	unittest.main()
