#!/usr/bin/env python3
"""Stands in for the libraries of CUDA that PyPI's torch is linked with, where there is no GPU.

    packaging/cuda-stand-ins.py FOLDER       of torch, as it is installed without what it needs

PyPI has one build of torch for x86-64, and its libraries of CUDA take 4 GB more. Without a GPU none
of their functions is called but those that ask what devices there are. So libraries of the same
names and symbols will do, whose functions fail: 100 is "no device" in CUDA's APIs. They are put
where torch looks for the real ones.
"""

import pathlib
import re
import subprocess
import sys
from collections import defaultdict

OF_CUDA = re.compile(r"lib(cu|nccl|nv)")
FAILS = "int {}(void)\n{{\n\treturn 100;\n}}\n"
TELLS = 'const char *{}(void)\n{{\n\treturn "no device: a stand-in for CUDA";\n}}\n'


def told(*command):
	return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
	return re.findall(r"\(NEEDED\).*\[(.*)\]", told("readelf", "-d", library))


def origins(library):
	"""By version of a symbol: the library that it is of."""
	found, origin = {}, None
	for line in told("readelf", "-V", "-W", library).splitlines():
		origin = (re.findall(r"File: (\S+)", line) or [origin])[0]
		found.update((version, origin) for version in re.findall(r"Name: (\S+) ", line))
	return found


def symbols(library, *options):
	"""Pairs of a name and its version, "" where it has none. Weak ones need not be there."""
	for line in told("nm", "-D", "--with-symbol-versions", *options, library).splitlines():
		*_, kind, symbol = line.split()
		name, _, version = symbol.partition("@")
		if kind not in "wv":
			yield name, version.lstrip("@")


def wanted_of(libraries):
	"""By library that is stood in for, and by version: the symbols that these ask it for."""
	there = {one.name for one in libraries}
	known = {name for one in libraries for name, _ in symbols(one, "--defined-only")}
	wanted = {}
	for one in libraries:
		lacking = [name for name in needed(one) if OF_CUDA.match(name)]
		lacking = [name for name in lacking if name not in there]
		for name in lacking:
			wanted.setdefault(name, defaultdict(set))
		origin_of = origins(one)
		for symbol, version in symbols(one, "--undefined-only"):
			origin = origin_of.get(version)
			if origin in lacking:
				wanted[origin][version].add(symbol)
			elif not version and lacking and symbol not in known:
				wanted[lacking[-1]][""].add(symbol)  # whosever it is, it is found
	return wanted


def code_of(symbol):
	"""What says in words how another failed says so."""
	return (TELLS if re.search("(Name|String)$", symbol) else FAILS).format(symbol)


def make(library, versions):
	script = library.with_suffix(".map")
	groups = [
		f"{version} {{ global: {'; '.join(sorted(names))}; }};\n"
		for version, names in sorted(versions.items())
		if version
	]
	script.write_text("".join(groups))
	command = ["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", "-o", library]
	command += [f"-Wl,--version-script={script}"] * bool(groups)
	code = "".join(map(code_of, sorted(set().union(*versions.values()))))
	subprocess.run([*command, "-xc", "-"], input=code, text=True, check=True)
	script.unlink()


def main():
	torch = pathlib.Path(sys.argv[1])
	place = torch.parent / "nvidia" / "cu13" / "lib"
	place.mkdir(parents=True, exist_ok=True)
	for name, versions in wanted_of(sorted(torch.glob("lib/*.so*"))).items():
		make(place / name, versions)


if __name__ == "__main__":
	main()
