#!/usr/bin/env python3
"""Prints the demo's document: whole paragraphs of the text that the model did not train on.

	document.py N_BYTES
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "model"))
sys.dont_write_bytecode = True

import corpus  # noqa: E402


def main():
	_, held_out = corpus.load()
	end = held_out.index(b"\n\n", int(sys.argv[1])) + 2
	sys.stdout.buffer.write(held_out[:end])


if __name__ == "__main__":
	main()
