#!/usr/bin/env python3
"""A decode step's way through the daemon, as way_test has recorded it.

usage: way.py WAY_TEST [MAX_FILES MAX_VISITS [PAGE]]

Prints every call that crosses from one file into another, and how many files and such calls
(visits) there are; fails where there are more than the most, or where PAGE, which is
daemon/README.md, has another way or other numbers. A file and its header are one.
Functions of headers that are compiled into their callers are no calls. What the backend does is not
the daemon's."""
import os, re, subprocess, sys


def output_of(*command):
	"""Its lines."""
	run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
	return run.stdout.split("\n")


def places(program, addresses):
	"""Where each address' function is: its file without ending, from the root, and its name."""
	said = output_of("addr2line", "-f", "-e", program, *addresses)
	found = {}
	for i, address in enumerate(addresses):
		path = re.search(r"/((?:daemon|kvstore)/[^:]*)\.[ch]:", said[2 * i + 1])
		found[address] = (path.group(1) if path else said[2 * i + 1], said[2 * i])
	return found


def page_says(page):
	"""The functions of its list, one after the other; how many files and visits it names."""
	text = open(page).read().split("## A step's way")[1].split("## ")[0]
	said = re.search(r"(\d+) files of daemon and\s+store and goes (\d+) times", text)
	way = re.findall(r"^ {4,}(\w+) +\S+/\S+(?: |$)", text, re.M)
	return way, (int(said[1]), int(said[2]))


def main():
	program = sys.argv[1]
	calls = [line.split() for line in output_of(program) if line.startswith(("<", ">"))]
	found = places(program, sorted({call[1] for call in calls if call[0] == ">"}))
	stack, files, way = [], {}, []
	for call in calls:
		if call[0] == "<":
			stack.pop()
			continue
		file, function = found[call[1]]
		if stack and file != stack[-1]:
			way.append(function)
			depth = sum(1 for a, b in zip(stack, stack[1:]) if a != b)
			place = os.path.relpath(file, "daemon")
			print(f"{len(way):3} {'    ' * depth}{function}  ({place})")
		stack.append(file)
		files[file] = True
	print(f"{len(files)} files, {len(way)} visits")
	if len(sys.argv) > 3 and (len(files) > int(sys.argv[2]) or len(way) > int(sys.argv[3])):
		sys.exit(f"more than {sys.argv[2]} files or {sys.argv[3]} visits")
	if len(sys.argv) > 4 and page_says(sys.argv[4]) != (way, (len(files), len(way))):
		sys.exit(f"{sys.argv[4]} says otherwise: {page_says(sys.argv[4])}")


if __name__ == "__main__":
	main()
