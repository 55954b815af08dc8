#!/usr/bin/env python3
"""What the picture of agents is drawn of, and that README.md's is of the figures beside it.

matplotlib is played: it notes what is drawn."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENTS = ROOT / "tests" / "bench" / "agents"
SCRIPT = AGENTS / "draw.py"
FILES = [AGENTS / "shared.json", AGENTS / "private.json"]


def load():
	spec = importlib.util.spec_from_file_location("draw", SCRIPT)
	module = importlib.util.module_from_spec(spec)
	spec.loader.exec_module(module)
	return module


def fact(case, metric, value):
	parts = {"bench": "decode", "case": case, "metric": metric, "value": value, "unit": "1/s"}
	return json.dumps(parts)


draw = load()


class Read(unittest.TestCase):
	def read(self, *lines):
		with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
			file.write("\n".join(lines))
			file.flush()
			return draw.read([file.name])

	def test_rounds(self):
		found = self.read(
			fact("llama-3.1-8b", "rate", 4450.0),
			fact("llama-3.1-8b_1x1_d32768", "token_p50", 5.5),
			fact("llama-3.1-8b_1x1_d32768", "tokens_s", 180.0),
			fact("llama-3.1-8b_8x1_d32768", "tokens_s", 1292.0),
			fact("llama-3.1-8b_8x1_d32768_private", "tokens_s", 615.0),
			fact("llama-3.1-8b_8x1_d32768_apart", "tokens_s", 280.0),
			fact("my_model_v2_4x8_d1024", "tokens_s", 3000.0),
		)
		self.assertEqual(found[None], {1: 180.0, 8: 1292.0, 32: 3000.0})
		self.assertEqual(found["private"], {8: 615.0})
		self.assertEqual(len(found), 2)

	def test_nothing_of_a_broken_line(self):
		with self.assertRaises(json.JSONDecodeError):
			self.read(fact("a_1x1_d8", "tokens_s", 1.0), "{")

	def test_files_together(self):
		found = draw.read(FILES)
		self.assertEqual(sorted(found[None]), [1, 2, 4, 8, 16, 32, 64])
		self.assertEqual(sorted(found["private"]), [1, 2, 4, 8])


class Matplotlib:
	"""Stands in for the package while a picture is drawn."""

	def __init__(self):
		self.axes, self.figure = mock.MagicMock(), mock.MagicMock()
		self.package = types.ModuleType("matplotlib")
		self.package.use, self.package.rcParams = mock.Mock(), {}
		self.package.pyplot = mock.Mock()
		self.package.pyplot.subplots.return_value = (self.figure, self.axes)
		self.package.ticker = mock.MagicMock()

	def draw(self, found, title="a title", out="out.svg"):
		with mock.patch.dict(sys.modules, {"matplotlib": self.package}):
			draw.draw(found, title, out)

	def lines(self):
		drawn = [call.args for call in self.axes.plot.call_args_list]
		return [(list(xs), list(ys)) for xs, ys in drawn]

	def labels(self):
		return [call.args[0] for call in self.axes.annotate.call_args_list]


class Draw(unittest.TestCase):
	def test_lines(self):
		stage = Matplotlib()
		stage.draw({None: {8: 1292.4, 1: 180.0, 2: 349.0}, "private": {1: 179.0}})
		self.assertEqual(stage.lines(),
			[([1, 2, 8], [180.0, 349.0, 1292.4]), ([1], [179.0])])
		self.assertEqual(stage.labels(),
			["one document for all", "1,292", "a document each", "179"])
		stage.axes.set_xticks.assert_called_once_with([1, 2, 8], ["1", "2", "8"])
		(low, high), _ = stage.axes.set_ylim.call_args
		self.assertEqual(low, 0)
		self.assertAlmostEqual(high, 1.12 * 1292.4)
		self.assertEqual(stage.axes.set_title.call_args.args, ("a title",))
		self.assertEqual(stage.figure.savefig.call_args.args, ("out.svg",))

	def test_a_line_without_points_is_left_out(self):
		stage = Matplotlib()
		stage.draw({None: {1: 180.0}, "private": {}})
		self.assertEqual(stage.labels(), ["one document for all", "180"])

	def test_the_same_each_time(self):
		"""No date, and ids by a salt of its own."""
		stage = Matplotlib()
		stage.draw({None: {1: 180.0}, "private": {}})
		self.assertEqual(stage.figure.savefig.call_args.kwargs,
			{"metadata": {"Date": None, "Creator": None}})
		self.assertEqual(stage.package.rcParams["svg.hashsalt"], "coppice")

	def test_no_files(self):
		command = [sys.executable, SCRIPT, "--out", "o", "--title", "t"]
		done = subprocess.run(command, capture_output=True, text=True)
		self.assertEqual(done.returncode, 2)
		self.assertIn("files", done.stderr)


class Kept(unittest.TestCase):
	"""The picture in README.md, and what it says of it, are of the figures that are kept."""

	def setUp(self):
		found = draw.read(FILES)
		self.counts = sorted(found[None])
		self.ends = [f"{found[how][max(found[how])]:,.0f}" for how in (None, "private")]

	def test_picture(self):
		picture = (AGENTS / "agents.svg").read_text()
		texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
		self.assertEqual(texts[: len(self.counts)], [str(n) for n in self.counts])
		for wanted in (*self.ends, "one document for all", "a document each",
				"agents, each a process"):
			self.assertIn(wanted, texts)

	def test_page(self):
		page = (ROOT / "README.md").read_text()
		[alt] = re.findall(r"!\[([^]]*)\]\(tests/bench/agents/agents\.svg\)", page)
		for wanted in self.ends:
			self.assertIn(wanted, alt)


if __name__ == "__main__":
	unittest.main()
