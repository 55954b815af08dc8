#!/usr/bin/env python3
"""order_test.py - the order of memory in the kernels' code, as nvcc makes it for sm_90a.

No run on a device would show it for certain. What is looked at is PTX: the language in which the
order is promised. The build left it (kernels/cuda/CMakeLists.txt).
Usage: order_test.py PTX-FOLDER SOURCES
"""

import pathlib
import re
import sys
import unittest

PTX, SOURCES = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
CUDA = SOURCES / "kernels/cuda"


def ptx_of(name):
	"""{kernel: its lines}, of what nvcc compiled by that name"""
	text = (PTX / f"{name}.compute_90a.ptx").read_text()
	kernels = re.findall(r"\.entry (\w+)\(.*?\n\{\n(.*?)\n\}\n", text, re.S)
	return {name: body.splitlines() for name, body in kernels}


def blocks_of(lines):
	"""Basic blocks: [(lines, successors)], the first is the entry."""
	blocks, names, now = [[]], {}, None
	for line in lines:
		label = re.match(r"^(\$\w+):", line)
		if label:
			blocks.append([])
			names[label.group(1)] = len(blocks) - 1
			continue
		blocks[-1].append(line.strip())
		if re.search(r"\bbra(\.uni)?\s|\bbrx|^ret;|\bexit;", line.strip()):
			blocks.append([])
	targets = {}
	for line in lines:
		now = re.match(r"^(\$\w+): \.branchtargets", line) or now
	for i, block in enumerate(blocks):
		last = block[-1] if block else ""
		jump = re.search(r"\bbra(?:\.uni)?\s+(\$\w+)", last)
		ends = jump and not last.startswith("@") or re.match(r"(ret|exit);", last)
		targets[i] = [names[jump.group(1)]] if jump else []
		if not ends and i + 1 < len(blocks):
			targets[i].append(i + 1)
	return blocks, targets


def reached_before(lines, what, before):
	"""Lines with `what` that some path from the begin comes to without one with `before`."""
	blocks, targets = blocks_of(lines)
	found, seen, todo = [], set(), [0]
	while todo:
		i = todo.pop()
		if i in seen:
			continue
		seen.add(i)
		for line in blocks[i]:
			if before in line:
				break
			if re.search(what, line):
				found.append(line)
		else:
			todo += targets[i]
	return found


def matching(pattern, lines):
	return [line for line in lines if re.search(pattern, line)]


class Order(unittest.TestCase):
	def test_no_ticket_is_drawn_before_the_launch_before_has_ended(self):
		"""It might still be the one that deals the same tickets."""
		draw, wait = r"\batom\.global\.inc", "griddepcontrol.wait"
		all_kernels = ptx_of("attend")
		kernels = [name for name in all_kernels if "attend_kernel" in name]
		self.assertTrue(kernels)
		for name in kernels:
			lines = all_kernels[name]
			self.assertTrue(matching(draw, lines), name)
			self.assertEqual(reached_before(lines, draw, wait), [], name)

	def test_whoever_hears_a_call_acquires_what_was_written_before_it(self):
		heard, acquire = 0, r"ld\.acquire\.sys\.global\.b128"
		for name, lines in ptx_of("small").items():
			if "called_kernel" not in name and "listen_kernel" not in name:
				continue
			heard += 1
			self.assertTrue(matching(acquire, lines), name)
		self.assertEqual(heard, 2)

	def test_packets_are_single_accesses(self):
		"""A vector is several, which may be torn, and so is what is cleared by one."""
		torn = r"(ld|st)\.(volatile|relaxed)\S*\.v[24]"
		zeros = r"st\.global\.v4\.\w+ .*\{(%r\d+), \1, \1, \1\}"
		for source in ("small", "peer"):
			for name, lines in ptx_of(source).items():
				self.assertEqual(matching(torn, lines), [], name)
		for name, lines in ptx_of("peer").items():
			self.assertEqual(matching(zeros, lines), [], name)


class Sources(unittest.TestCase):
	def test_instructions_that_touch_memory_say_so(self):
		"""Else the compiler may move other accesses past them."""
		silent = []
		touches = r"\b(ld|st|atom|red)\.(volatile|relaxed|acquire|release)"
		for path in sorted([*CUDA.rglob("*.cu"), *CUDA.rglob("*.cuh")]):
			for asm in re.findall(r"asm volatile\((.*?)\);", path.read_text(), re.S):
				if re.search(touches, asm) and '"memory"' not in asm:
					silent.append(f"{path.name}: {asm.split()[0]}")
		self.assertEqual(silent, [])


if __name__ == "__main__":
	unittest.main(argv=sys.argv[:1])
