"""From tokens to text, a token at a time.

A token may be part of a character, and a stop text may begin in one token and end in another. What
may still turn out to be either is held back, so that text once given is never taken back.
"""

from __future__ import annotations

from typing import Sequence

from .tokenizer import Decoder


class Stops:
    """Finds the first of some texts in a text that comes in pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def feed(self, piece: str) -> tuple[str, bool]:
        """What may be given now, and whether a stop text has been found behind it."""
        if not self._stops:
            return piece, False
        text = self._held + piece
        found = [at for at in map(text.find, self._stops) if at >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        held = self._begun(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def _begun(self, text: str) -> int:
        """Length of the longest end of text that a stop text begins with."""
        for n in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-n:]) for stop in self._stops):
                return n
        return 0

    def rest(self) -> str:
        """What was held back and is text after all, as nothing follows."""
        held, self._held = self._held, ""
        return held


class Pieces:
    """The text of a continuation, in pieces."""

    def __init__(self, decoder: Decoder, stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._stops = Stops(stops)
        self._over = False

    def feed(self, token: int) -> tuple[str, bool]:
        """As Stops.feed."""
        text, self._over = self._stops.feed(self._decoder.feed(token))
        return text, self._over

    def rest(self) -> str:
        """What was held back, as no token follows."""
        if self._over:
            return ""
        text, over = self._stops.feed(self._decoder.rest())
        return text if over else text + self._stops.rest()
