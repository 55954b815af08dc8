#!/usr/bin/env python3
"""coppicectl(1) explains every number of coppicectl status, by the name that --json gives it."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Words, not numbers.
SAID_ELSEWHERE = {"version", "backend", "policy", "loop", "draining", "tier_error"}


def fields(message):
	proto = (ROOT / "proto" / "control.proto").read_text()
	body = re.search(r"^message " + message + r" \{(.*?)^\}", proto, re.S | re.M).group(1)
	return set(re.findall(r"^\s*(?:required|optional|repeated) \w+ (\w+) =", body, re.M))


class Counters(unittest.TestCase):
	def check(self, message):
		page = (ROOT / "packaging" / "man" / "coppicectl.1").read_text()
		status = page[page.index("\n.Sh STATUS"):page.index("\n.Sh JSON")]
		explained = set(re.findall(r"\w+", status))
		self.assertEqual(fields(message) - SAID_ELSEWHERE - {"name"} - explained, set())

	def test_of_the_daemon_are_explained(self):
		self.assertIn("busy_ns", fields("StatusReply"))
		self.check("StatusReply")

	def test_of_a_tier_are_explained(self):
		self.assertIn("waited_ns", fields("TierStatus"))
		self.check("TierStatus")


if __name__ == "__main__":
	unittest.main()
