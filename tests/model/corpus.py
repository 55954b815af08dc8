#!/usr/bin/env python3
"""The corpus: makes corpus.txt.xz from Debian's bible-kjv, and reads it for the other scripts.

	apt-get install bible-kjv && ./corpus.py

The text is printed one verse a line with its reference ("Ge1:1 In the beginning ..."). Here verses
lose their numbers and run together into paragraphs, under a heading a chapter ("Genesis 1").
"""

import lzma
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATH = HERE / "corpus.txt.xz"

BOOKS = """Genesis|Exodus|Leviticus|Numbers|Deuteronomy|Joshua|Judges|Ruth|1 Samuel|2 Samuel|
1 Kings|2 Kings|1 Chronicles|2 Chronicles|Ezra|Nehemiah|Esther|Job|Psalm|Proverbs|Ecclesiastes|
Song of Solomon|Isaiah|Jeremiah|Lamentations|Ezekiel|Daniel|Hosea|Joel|Amos|Obadiah|Jonah|Micah|
Nahum|Habakkuk|Zephaniah|Haggai|Zechariah|Malachi|
Matthew|Mark|Luke|John|Acts|Romans|1 Corinthians|2 Corinthians|Galatians|Ephesians|Philippians|
Colossians|1 Thessalonians|2 Thessalonians|1 Timothy|2 Timothy|Titus|Philemon|Hebrews|James|
1 Peter|2 Peter|1 John|2 John|3 John|Jude|Revelation""".replace("\n", "").split("|")

VERSES = 31102
# The held-out text starts at this heading and is this part of the corpus.
HELD_OUT = ("\nJeremiah 1\n", 0.05)


def make():
	command = ["bible", "-f", "Gen1:1-Rev22:21"]
	raw = subprocess.run(command, check=True, capture_output=True, text=True).stdout
	lines = raw.splitlines()
	if len(lines) != VERSES:
		sys.exit(f"{len(lines)} verses, not {VERSES}")
	out, paragraph, book, last, chapter = [], [], -1, None, None

	def flush():
		if paragraph:
			out.append(" ".join(paragraph) + "\n\n")
			paragraph.clear()

	for line in lines:
		name, c, text = re.fullmatch(r"(\d?[A-Za-z]+)(\d+):\d+ (.*)", line).groups()
		if name != last:
			book, last, chapter = book + 1, name, None
		if c != chapter:
			flush()
			out.append(f"{BOOKS[book]} {c}\n\n")
			chapter = c
		paragraph.append(" ".join(text.split()))
		if len(paragraph) >= 4 and text.rstrip()[-1] in ".?!)":
			flush()
	flush()
	if book + 1 != len(BOOKS):
		sys.exit(f"{book + 1} books, not {len(BOOKS)}")
	data = "".join(out).encode("ascii")
	PATH.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
	print(f"{len(data)} bytes, {PATH.stat().st_size} compressed")


def load():
	"""(the text to train on, the held-out text), as bytes."""
	data = lzma.decompress(PATH.read_bytes())
	start = data.index(HELD_OUT[0].encode()) + 1
	end = start + int(len(data) * HELD_OUT[1])
	return data[:start] + data[end:], data[start:end]


if __name__ == "__main__":
	make()
