#!/usr/bin/env python3
"""Holds the sources against packaging/layers: no include and no call may leave its arrows or go up
a sub-folder, and no files of a folder may call each other in a circle. Nor may files include each
other in one, nor modules of Python import each other, be it for types alone.

usage: check-layers.py [--calls BUILD] [--matrix]

Includes are read from the sources. Calls are read from what `gcc -fcallgraph-info` left in BUILD
(-DCOPPICE_CALLGRAPH=ON); a call through a pointer is none, so callbacks are left aside. gcc leaves
nothing of functions that stand in headers, and sees no *.cu, nor what BUILD does not build, as
Python's extension: these are read from the sources, by the form that clang-format gives a
function. A file and its header are one; that one takes the types of another is no call. --calls
fails where BUILD has no call graph at all. --matrix prints, for each pair of sub-folders, how many
calls go from one to the other."""
import argparse, ast, collections, os, re, subprocess, sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"')
NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "([^"\\]*)\\n([^"]*?)"( shape : ellipse)?')
EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"')
# What is no code: comments, strings, characters, and lines of the preprocessor.
NO_CODE = re.compile(
	r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|"""
	r"""^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""", re.S | re.M)
FUNCTION = re.compile(r"^([^\s;{}][^;{}]*\)(?: const)?)\s\{\n(.*?)\n\}$", re.S | re.M)
CALL = re.compile(r"(?<![\w:])(\w+)[ \t]*(?:<[^;{}()]*>[ \t]*)?(?:\(|<<<)")
READERS = ("proto/cli/", "proto/safetensors/")  # of options, files


def read_rules(path):
	may, order = {}, {}
	text = re.sub(r"\n[ \t]+", " ", open(path).read())  # lines that are continued
	for line in text.split("\n"):
		line = line.split("#")[0].strip()
		if "<" in line:
			top, parts = line.split("<")
			order[top.strip()] = parts.split()
		elif ":" in line:
			top, parts = line.split(":")
			may[top.strip()] = parts.split()
	return may, order


class Layers:
	def __init__(self, may, order):
		self.may, self.order = may, order
		self.ground = set(may.pop("ground", ()))
		self.closed = may.pop("closed", ())

	def top(self, path):
		return path.split("/")[0]

	def place(self, path, top):
		"""The number of a file's sub-folder in an ordered folder that it is below; None: it
		has none."""
		parts = self.order[top]
		inside = path[len(top) + 1:]
		beside = "/" not in inside
		while inside and inside not in parts:
			inside = os.path.dirname(inside)
		name = inside or ("." if beside else None)
		return parts.index(name) if name in parts else None

	def goes_up(self, user, used):
		"""Why the order of a folder that both are below forbids it; None: none does."""
		for top in self.order:
			if not user.startswith(top + "/") or not used.startswith(top + "/"):
				continue
			i, j = self.place(user, top), self.place(used, top)
			if i is None or j is None:
				stray = user if i is None else used
				return (f"{stray} stands in a folder that packaging/layers does "
					"not name")
			if j > i:
				return "it stands higher"
		return None

	def shut(self, user, used):
		"""Why user may not include used, whatever it may call."""
		for folder in self.closed if self.top(user) in self.may else ():
			below = folder + "/"
			if used.startswith(below) and not user.startswith(below):
				return f"{folder} is closed"
		return None

	def complaint(self, user, used):
		"""Why user may not use used; None: it may."""
		a, b = self.top(user), self.top(used)
		if a not in self.may:
			return None
		# The one exception: coppice-agent's layers are computed by the arithmetic of the
		# CPU's backend, which is plain C over work.h and knows neither daemon nor pool. So
		# both yield the same bits.
		of_agent = user.startswith("client/agent/")
		if of_agent and used.startswith(("kernels/rows/", "kernels/work.h")):
			return None
		if user in self.ground and b in self.may and used not in self.ground:
			return "what is ground uses ground alone"
		if used in self.ground and (of_agent or "ground" in self.may[a]):
			return None
		if a != b and b not in self.may[a]:
			return f"{a} may not use {b}" if b in self.may else None
		if of_agent and b == "proto" and not used.startswith(READERS):
			return ("coppice-agent may use coppice.h alone, "
				"what reads options and files, and ground")
		return self.goes_up(user, used)


def sources(*ends):
	"""Where git does not know this tree, what stands in its folders."""
	command = ["git", "ls-files", *(f"*{end}" for end in ends)]
	out = subprocess.run(command, capture_output=True, text=True)
	names = out.stdout.split() if out.returncode == 0 else [
		os.path.normpath(os.path.join(folder, name))
		for folder, _, names in os.walk(".") for name in names
		if name.endswith(ends) and not os.path.normpath(folder).startswith("build")]
	return [f for f in names if os.path.exists(f)]


def included(path, target, known):
	beside = os.path.normpath(os.path.join(os.path.dirname(path), target))
	return beside if beside in known else target if target in known else None


def check_includes(layers, files):
	known, bad, arrows = set(files), [], set()
	for path in files:
		for n, line in enumerate(open(path, errors="replace"), 1):
			m = INCLUDE.match(line)
			used = m and included(path, m[1], known)
			why = used and (layers.complaint(path, used) or layers.shut(path, used))
			if why:
				bad.append(f"{path}:{n}: includes {used}: {why}")
			if used:
				arrows.add((path, used))
	for group in circles(arrows):
		bad.append(f"{len(group)} files include each other: {' '.join(group)}")
	return bad, arrows


def python_names(tree):
	"""(folders up, what is named with dots) of all that a module imports; 0: not relative."""
	for node in ast.walk(tree):
		if isinstance(node, ast.Import):
			for name in node.names:
				yield 0, name.name
		elif isinstance(node, ast.ImportFrom):
			of = [node.module] if node.module else []
			for name in node.names:
				yield node.level, ".".join(of + [name.name])


def imported(path, up, name, known):
	"""The file of a module, or of the one that it is a name in; None: of none here."""
	folder = os.path.dirname(path)
	for _ in range(up - 1):
		folder = os.path.dirname(folder)
	while up == 0 and os.path.join(folder, "__init__.py") in known:
		folder = os.path.dirname(folder)
	parts = name.split(".")
	for module in (parts, parts[:-1]):
		at = os.path.join(folder, *module)
		for file in (f"{at}.py", f"{at}.pyi", os.path.join(at, "__init__.py")):
			if file in known:
				return file
	return None


def check_python(files):
	"""A stub says what an extension has, and imports nothing: it is but imported."""
	known, arrows = set(files), set()
	for path in (f for f in files if f.endswith(".py")):
		for up, name in python_names(ast.parse(open(path).read(), path)):
			used = imported(path, up, name, known)
			if used and used != path:
				arrows.add((path, used))
	return [f"{len(group)} modules import each other: {' '.join(group)}"
		for group in circles(arrows)]


def stem(path):
	return os.path.splitext(path)[0]


class Calls:
	"""Which function of which file calls which of which other."""

	def __init__(self, build, root):
		self.defined = collections.defaultdict(set)  # name -> files
		self.raw = set()  # (file, caller, callee)
		self.files = set()  # whose functions gcc saw
		# Relative places are from where the compiler ran.
		self.build = os.path.abspath(build)
		for folder, _, names in os.walk(build):
			for name in names:
				if name.endswith(".ci"):
					self.read(os.path.join(folder, name), root)

	def place(self, label, root):
		"""The file of a node, from the root; None: none of ours."""
		name = label.split("\\n")[0].rsplit(":", 2)[0]
		at = os.path.relpath(os.path.join(self.build, name), root)
		ours = not at.startswith("..") and os.path.exists(os.path.join(root, at))
		return at if ours else None

	def read(self, path, root):
		inside, edges = {}, []
		for line in open(path, errors="replace"):
			if m := NODE.match(line):
				at = None if m[4] else self.place(m[3], root)
				if at:
					inside[m[1]] = (m[2], at)
			elif m := EDGE.match(line):
				edges.append((m[1], m[2]))
		self.files |= {at for _, at in inside.values()}
		for title, (name, at) in inside.items():
			if not at.endswith(".h") and ":" not in title:
				self.defined[name].add(at)
		for a, b in edges:
			if a in inside and b not in inside:
				self.raw.add((inside[a][1], inside[a][0], b.split(":")[-1]))

	def all(self, layers):
		for user, caller, callee in sorted(self.raw):
			if user.startswith("tests/"):
				continue
			all_homes = self.defined.get(callee, ())
			homes = [home for home in all_homes if not home.startswith("tests/")]
			home = nearest(user, homes)
			if home and stem(home) != stem(user):
				yield user, caller, callee, home


def nearest(user, homes):
	"""Of several files with a function of that name, the one that has most folders in common
	with its user; None: of none."""
	def distance(home):
		both = os.path.commonpath([os.path.dirname(user), os.path.dirname(home)])
		return -len(both), home
	return min(homes, key=distance, default=None)


def functions(text):
	"""(name, what stands before it, its body) of each that the text has."""
	for head, body in FUNCTION.findall(NO_CODE.sub(" ", text)):
		names = [n for n in CALL.findall(head) if not n.startswith("__")]
		if names:
			yield names[0], head, body


def candidates(user, homes):
	"""Headers, which may be included; of files that have the function, the nearest: programs
	that are not linked together have some names in common."""
	headers = [home for home in homes if home.endswith((".h", ".cuh"))]
	near = nearest(user, [home for home in homes if home not in headers])
	return headers + ([near] if near else [])


def is_for_others(path, head):
	"""May other files call a function of that file with that head?"""
	if path.endswith((".h", ".cuh")):
		return True
	return "static" not in head if path.endswith(".c") else head.startswith("extern")


def read_calls(layers, files, arrows, graph):
	"""Calls of what gcc did not see, and calls that it makes; as Calls.all."""
	inside = {f: list(functions(open(f, errors="replace").read())) for f in files}
	reached = reach(arrows)
	homes = collections.defaultdict(set, {name: set(at) for name, at in graph.defined.items()})
	for path, found in inside.items():
		if path not in graph.files:
			for name, head, _ in found:
				if is_for_others(path, head):
					homes[name].add(path)
	for user, found in inside.items():
		own = {name for name, _, _ in found}
		for caller, _, body in found:
			for callee in set(CALL.findall(body)) - own:
				for home in candidates(user, homes.get(callee, ())):
					if sees(user, home, layers, reached, graph.files):
						yield user, caller, callee, home


def reach(arrows):
	"""file -> all that it includes, and these do."""
	to, reached = collections.defaultdict(set), {}
	for a, b in arrows:
		to[a].add(b)
	for path in list(to):
		seen, work = set(), [path]
		while work:
			new = to.get(work.pop(), set()) - seen
			seen |= new
			work += new
		reached[path] = seen
	return reached


def sees(user, home, layers, reached, graph_files):
	"""May a call in user be to home's function of that name, unseen by gcc?"""
	if stem(user) == stem(home) or home.startswith("tests/"):
		return False
	if home.endswith((".h", ".cuh")):
		return home in reached.get(user, ())
	seen_by_gcc = user in graph_files and home in graph_files
	return not seen_by_gcc and layers.top(user) == layers.top(home)


def circles(edges):
	"""Sets of nodes that reach each other (Tarjan's algorithm, without recursion)."""
	graph = collections.defaultdict(set)
	for a, b in edges:
		graph[a].add(b)
	index, low, on, stack, found = {}, {}, set(), [], []
	for root in sorted(graph):
		if root in index:
			continue
		work = [(root, iter(sorted(graph[root])))]
		index[root] = low[root] = len(index)
		stack.append(root), on.add(root)
		while work:
			node, rest = work[-1]
			for other in rest:
				if other not in index:
					index[other] = low[other] = len(index)
					stack.append(other), on.add(other)
					work.append((other, iter(sorted(graph[other]))))
					break
				if other in on:
					low[node] = min(low[node], index[other])
			else:
				work.pop()
				if work:
					low[work[-1][0]] = min(low[work[-1][0]], low[node])
				if low[node] == index[node]:
					group = []
					while not group or group[-1] != node:
						group.append(stack.pop())
						on.discard(group[-1])
					if len(group) > 1:
						found.append(sorted(group))
	return found


def check_calls(layers, calls):
	bad, arrows = [], collections.defaultdict(list)
	for user, caller, callee, home in calls:
		why = layers.complaint(user, home)
		if why:
			bad.append(f"{user}: {caller} calls {callee} of {home}: {why}")
		if layers.top(user) == layers.top(home):
			arrows[stem(user), stem(home)].append(f"{caller} calls {callee}")
	for group in circles(arrows):
		bad.append(f"a circle of {len(group)} files: {' '.join(group)}")
		for (a, b), what in sorted(arrows.items()):
			if a in group and b in group:
				bad.append(f"    {a} -> {b}: {', '.join(sorted(set(what))[:4])}")
	return bad


def print_matrix(calls):
	ends = [(os.path.dirname(user), os.path.dirname(home)) for user, _, _, home in calls]
	for (a, b), n in sorted(collections.Counter(ends).items()):
		print(f"{n:5}  {a} -> {b}")


def main():
	args = argparse.ArgumentParser(
		description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
		allow_abbrev=False)
	args.add_argument("--calls", metavar="BUILD")
	args.add_argument("--matrix", action="store_true")
	options = args.parse_args()
	here = os.path.dirname(os.path.abspath(__file__))
	layers = Layers(*read_rules(os.path.join(here, "layers")))
	files = sources(".c", ".h", ".cu", ".cuh")
	if not files:
		sys.exit("check-layers.py: no sources here: run it in the project's root")
	bad, arrows = check_includes(layers, files)
	bad += check_python(sources(".py", ".pyi"))
	if options.calls:
		graph = Calls(options.calls, os.getcwd())
		calls = list(graph.all(layers))
		if not calls:
			how = "configure it with -DCOPPICE_CALLGRAPH=ON"
			bad.append(f"{options.calls} has no call graph: {how}")
		ours = [f for f in files if not f.startswith("tests/")]
		calls += read_calls(layers, ours, arrows, graph)
		bad += check_calls(layers, calls)
		if options.matrix:
			print_matrix(calls)
	for line in bad:
		print(line)
	print(f"{sum(not line.startswith('    ') for line in bad)} complaints")
	return 1 if bad else 0


if __name__ == "__main__":
	sys.exit(main())
