#!/usr/bin/env python3
"""check-pages.py - are the pages (*.md) in shape, and does what they name exist?

	packaging/check-pages.py [FOLDER]

Complains of
	- lines over 120 columns, and a README.md over 150 lines;
	- links and files that are not there;
	- options that a program does not have;
	- names in backticks that occur in no source;
	- C in README.md that no other page has: the tests compile that of client/README.md;
	- functions of the client's headers that libcoppice(3) lacks.
Exit status 1 if there is anything to complain of.
What a page says is not understood: a name is looked for as it stands.
"""

import fnmatch
import pathlib
import posixpath
import re
import subprocess
import sys

COLUMNS = 120
README_LINES = 150
SOURCES = {".c", ".h", ".cu", ".cuh", ".proto", ".py", ".sh", ".awk", ".json", ".conf", ".def",
	".txt", ".cmake", ".service", ".socket", ".in", ".1", ".3", ".5", ".8"}
ENDINGS = r"\.(?:c|h|cu|cuh|md|sh|awk|py|json|conf|proto|txt|cmake|service|socket)"
# Where the options of our programs stand.
PROGRAMS = {
	"coppiced": ["daemon/", "proto/cli/"],
	"coppicectl": ["client/ctl/", "proto/cli/"],
	"coppice-agent": ["client/agent/", "proto/cli/"],
	"coppice-bench": ["tests/bench/", "proto/cli/"],
}
# Of two words at least.
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+(\(\))?|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
PLACEHOLDER = re.compile(r"(^|[^A-Za-z])[A-Z]{2,}([^A-Za-z]|$)") # NAME_test.c
MANUAL = "packaging/man/libcoppice.3"
COMMON_OPTIONS = {"help", "version", "usage"} # argp's own


def tracked(root):
	"""Paths of the tree's files outside build folders, less those that git ignores."""
	command = ["git", "-C", root, "ls-files", "-co", "--exclude-standard"]
	run = subprocess.run(command, capture_output=True, text=True)
	if run.returncode == 0:
		names = run.stdout.splitlines()
	else:
		names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
	ours = [name for name in names if not re.search(r"(^|/)build[^/]*/", name)]
	return [name for name in ours if (root / name).is_file()]


def is_source(name):
	return pathlib.PurePath(name).suffix in SOURCES or name.endswith("CMakeLists.txt")


def read(path):
	return path.read_text(encoding="utf-8", errors="replace")


class Tree:
	def __init__(self, root):
		self.root = root
		self.files = tracked(root)
		paths = [pathlib.PurePath(name) for name in self.files]
		self.folders = {str(parent) for path in paths for parent in path.parents}
		self.pages = [name for name in self.files if name.endswith(".md")]
		self.texts = {name: read(root / name) for name in self.files if is_source(name)}
		self.words = set()
		for text in self.texts.values():
			self.words.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))

	def has_path(self, page, name):
		"""From the root, from the page's folder, or a file's name alone."""
		name = name.rstrip("/")
		beside = posixpath.normpath(posixpath.join(posixpath.dirname(page), name))
		if any(at in self.folders or at in self.files for at in (name, beside)):
			return True
		if "*" in name:
			return any(fnmatch.filter(self.files, at) for at in (name, beside))
		return any(at == name or at.endswith("/" + name) for at in self.files)

	def text_of(self, prefixes):
		begins = tuple(prefixes)
		names = [name for name in self.texts if name.startswith(begins)]
		return "\n".join(self.texts[name] for name in names)


class Page:
	def __init__(self, tree, name):
		self.tree = tree
		self.name = name
		self.lines = read(tree.root / name).split("\n")
		self.complaints = []

	def complain(self, line, why):
		self.complaints.append(f"{self.name}:{line}: {why}")

	def check(self):
		n_lines = len(self.lines) - (self.lines[-1] == "")
		if self.name == "README.md" and n_lines > README_LINES:
			self.complain(n_lines, f"more than {README_LINES} lines")
		for number, line in enumerate(self.lines, 1):
			if len(line.expandtabs(8)) > COLUMNS:
				self.complain(number, f"more than {COLUMNS} columns")
		if self.name == "README.md":
			self.check_c_blocks()
		for number, line, code in self.prose():
			if code:
				self.check_command(number, line)
				continue
			for target in re.findall(r"\]\(([^)\s]+)\)", line):
				self.check_link(number, target)
			for quoted in re.findall(r"`([^`]+)`", line):
				self.check_quoted(number, quoted)
		return self.complaints

	def check_c_blocks(self):
		tree, text = self.tree, "\n".join(self.lines)
		others = [read(tree.root / name) for name in tree.pages if name != self.name]
		for block in re.finditer(r"^```c\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
			if not any(block.group(1) in other for other in others):
				line = 1 + text.count("\n", 0, block.start())
				self.complain(line, "no other page has this code")

	def prose(self):
		"""Lines with their numbers; True where one is code. Of a fence in another language
		than the shell's there are none. A command that goes on behind a backslash is one
		line."""
		fence = None
		whole, begin = "", 0
		for number, line in enumerate(self.lines, 1):
			mark = re.match(r"\s*```(\w*)", line)
			if mark:
				fence = None if fence is not None else mark.group(1)
				continue
			indented = re.match(r"(    |\t)\s*\S", line) is not None
			code = whole != "" or fence is not None or indented
			if fence not in (None, "", "sh", "bash", "console"):
				continue
			if code and line.endswith("\\"):
				whole, begin = whole + line[:-1], begin or number
				continue
			yield begin or number, whole + line, code
			whole, begin = "", 0

	def check_link(self, number, target):
		if re.match(r"[a-z]+:", target):
			return
		path, _, anchor = target.partition("#")
		beside = posixpath.join(posixpath.dirname(self.name), path)
		at = posixpath.normpath(beside) if path else self.name
		if at not in self.tree.files and at not in self.tree.folders:
			self.complain(number, f"no such file: {target}")
		elif anchor and anchor not in anchors(read(self.tree.root / at)):
			self.complain(number, f"no such heading: {target}")

	def check_quoted(self, number, quoted):
		if self.check_command(number, quoted):
			return
		for word in quoted.split():
			word = word.rstrip(",;.")
			if is_path(word):
				self.check_path(number, word)
			elif NAME.fullmatch(word):
				self.check_name(number, word)

	def check_name(self, number, word):
		if word.removesuffix("()") not in self.tree.words:
			self.complain(number, f"{word} is in no source")

	def check_path(self, number, word):
		"""A path of this tree: its first folder is ours, or it ends as files of ours do."""
		first = word.split("/")[0]
		ours = first in self.tree.folders or re.search(ENDINGS + "$", word)
		ending_alone = re.fullmatch(ENDINGS, word)
		if not ours or first == "build" or ending_alone or stands_for_another(word):
			return
		if not self.tree.has_path(self.name, word):
			self.complain(number, f"no such file: {word}")

	def check_command(self, number, line):
		"""True: the line is a command, of a program of ours."""
		words = re.sub(r"\s#.*|\[|\]", " ", line).split()
		while words and re.fullmatch(r"sudo|\.\.\.|[A-Z_]+=\S*", words[0]):
			words.pop(0)
		if not words:
			return False
		program = words[0]
		for folder in "./", "build/check/", "tests/":
			program = program.removeprefix(folder)
		if re.fullmatch(r"(packaging|tests)/\S+\.(sh|py)", program):
			if program not in self.tree.files:
				self.complain(number, f"no such file: {program}")
				return True
			# a script's parts have its options too
			text = self.tree.text_of([program, "packaging/check"])
		elif program in PROGRAMS:
			text = self.tree.text_of(PROGRAMS[program])
		else:
			return False
		self.check_options(number, program, words[1:], text)
		return True

	def check_options(self, number, program, words, text):
		command = re.fullmatch(r"[a-z]+", words[0]) if words else None
		if program == "coppice-bench" and command and f'"{command.group()}"' not in text:
			self.complain(number, f"coppice-bench has no command {command.group()}")
		for word in words:
			option = re.match(r"--([a-z][a-z0-9-]*)", word)
			if option and not has_option(text, option.group(1)):
				self.complain(number, f"{program} has no option {option.group()}")


def is_path(word):
	return re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", word) and re.search(ENDINGS + "$|/", word)


def stands_for_another(word):
	"""A name in capitals stands for any; but pages and the licence have such names too."""
	placeholder = any(PLACEHOLDER.search(part) for part in word.split("/"))
	return placeholder and not re.search(r"\.md$|LICENSE$", word)


def has_option(text, name):
	key = name.replace("-", "_")
	if name in COMMON_OPTIONS or f'"{name}"' in text or f'"{key}"' in text:
		return True
	in_script, in_table = rf"--{name}(?![a-z-])", rf"^[A-Z_]+\((?:[A-Z_]+, )?{key},"
	return re.search(f"{in_script}|{in_table}", text, re.MULTILINE) is not None


def anchors(text):
	"""Headings as links name them."""
	headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
	letters = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
	return {heading.strip().replace(" ", "-") for heading in letters}


def functions_without_manual(tree):
	"""Of what the headers declare."""
	headers = ["client/coppice.h", "client/coppice_program.h", "client/model/coppice_hf.h"]
	manual = tree.texts.get(MANUAL, "")
	for header in headers:
		code = re.sub(r"/\*.*?\*/", "", tree.texts.get(header, ""), flags=re.DOTALL)
		for name in dict.fromkeys(re.findall(r"\b(coppice_[a-z0-9_]+)\(", code)):
			if f".It Fn {name} " not in manual:
				yield f"{header}: {name} is not in {MANUAL}"


def main():
	own = pathlib.Path(__file__).resolve().parent.parent
	tree = Tree(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else own)
	complaints = [complaint for name in tree.pages for complaint in Page(tree, name).check()]
	complaints += functions_without_manual(tree)
	for complaint in complaints:
		print(complaint)
	return 1 if complaints else 0


if __name__ == "__main__":
	sys.exit(main())
