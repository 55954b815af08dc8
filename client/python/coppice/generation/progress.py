"""A bar on a terminal, for what takes a while."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_EVERY_S = 0.1
_LEAST_S = 0.5  # what is done before that needs no bar


class Bar:
    """Drawn over itself at most ten times a second; gone when it is closed."""

    def __init__(self, what: str, on: bool | None = None, to: TextIO | None = None) -> None:
        """on None: where `to` (stderr) is a terminal."""
        self._to = to or sys.stderr
        self._on = self._to.isatty() if on is None else on
        self._what = what
        self._next = time.monotonic() + _LEAST_S
        self._drawn = 0

    def show(self, done: int, of: int, unit: str = "") -> None:
        now = time.monotonic()
        if not self._on or now < self._next or of <= 0:
            return
        self._next = now + _EVERY_S
        share = min(done / of, 1.0)
        full = "#" * int(share * _WIDTH)
        self._draw(f"{self._what} [{full:{_WIDTH}}] {share:4.0%} of {_short(of)}{unit}")

    def _draw(self, line: str) -> None:
        self._to.write(f"\r{line:{self._drawn}}")
        self._to.flush()
        self._drawn = len(line)

    def close(self) -> None:
        if self._drawn:
            self._to.write(f"\r{'':{self._drawn}}\r")
            self._to.flush()
            self._drawn = 0


def _short(n: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**4)):
        if n >= size:
            return f"{n / (1000 if unit == 'k' else size):.1f} {unit}"
    return f"{n} "
