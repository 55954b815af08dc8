#!/usr/bin/env python3
"""coppicectl(1) explains every field of coppicectl status, by the name that --json gives it, and
every line that it prints."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def page_status():
	page = (ROOT / "packaging" / "man" / "coppicectl.1").read_text()
	return page[page.index("\n.Sh STATUS"):page.index("\n.Sh JSON")]


def fields(message):
	proto = (ROOT / "proto" / "control.proto").read_text()
	body = re.search(r"^message " + message + r" \{(.*?)^\}", proto, re.S | re.M).group(1)
	return set(re.findall(r"^\s*(?:required|optional|repeated) \w+ (\w+) =", body, re.M))


class Counters(unittest.TestCase):
	def check(self, message):
		explained = set(re.findall(r"\w+", page_status()))
		self.assertEqual(fields(message) - {"name"} - explained, set())

	def test_of_the_daemon_are_explained(self):
		self.assertIn("busy_ns", fields("StatusReply"))
		self.check("StatusReply")

	def test_of_a_tier_are_explained(self):
		self.assertIn("waited_ns", fields("TierStatus"))
		self.check("TierStatus")

	def test_each_line_is_explained(self):
		source = (ROOT / "client" / "ctl" / "status.c").read_text()
		# A line's name has ten columns; a tier's line has the tier's own.
		lines = {name.strip() for name in re.findall(r'"  ([A-Za-z].{9}) ', source)}
		lines.update(re.findall(r'print_kv_read\("([^"]+)"', source))
		self.assertLessEqual({"sessions", "yours", "under way", "KV"}, lines)
		items = re.findall(r"^\.It Li (.*)$", page_status(), re.M)
		explained = {word.strip() for item in items
			for word in item.replace('"', "").split(",")}
		self.assertEqual(lines - explained, set())


if __name__ == "__main__":
	unittest.main()
