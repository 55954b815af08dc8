"""A continuation as who asked for it sees it: text, tokens, how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from .sampling import Logprob, Sampling
from .stream import Event
from .text import Pieces
from .tokenizer import Tokenizer


@dataclass
class Continuation:
    """finish: "stop" (by the model, or a stop text), "length" or "cancelled"; None: not yet."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    finish: str | None = None


@dataclass
class Piece:
    """What is new of a continuation; tokens whose text is held back come with a later one."""

    index: int  # of the prompt's n
    text: str
    tokens: list[int]
    logprobs: list[Logprob]
    finish: str | None


class Writer:
    """Turns a stream's events into pieces; over once a piece says how it ended."""

    def __init__(
        self, tokenizer: Tokenizer, sampling: Sampling, index: int = 0, each: bool = False
    ) -> None:
        """each: every token has a piece, with or without text; so has one that has no text."""
        self.index = index
        self._each = each or not tokenizer.has_text
        self.done = Continuation()
        self._pieces = Pieces(tokenizer.decoder(sampling.skips_special), sampling.stop)
        self._tokens: list[int] = []  # since the last piece
        self._logprobs: list[Logprob] = []
        self._news: list[Piece] = []
        self._error: Exception | None = None  # what the stream failed of

    def news(self) -> list[Piece]:
        """Pieces that have not been asked for yet."""
        news, self._news = self._news, []
        return news

    def take(self, event: Event) -> Piece | None:
        """None: nothing to be told yet, or it failed: check says of what."""
        if self.done.finish:
            return None  # it was stopped by a text; what came meanwhile is not wanted
        if event.error is not None:
            self.done.finish, self._error = "error", event.error
            return None
        text, finish = self._feed(event)
        if finish:
            text += self._pieces.rest()
        return self._piece(text, finish) if text or finish or self._each else None

    def check(self) -> None:
        """Raises what the stream failed of."""
        if self._error is not None:
            raise self._error

    def _feed(self, event: Event) -> tuple[str, str | None]:
        if event.token is None:
            return "", event.finish
        self._tokens.append(event.token)
        if event.logprob is not None:
            self._logprobs.append(event.logprob)
        if event.finish == "stop":
            return "", "stop"
        text, stopped = self._pieces.feed(event.token)
        return text, "stop" if stopped else event.finish

    def _piece(self, text: str, finish: str | None) -> Piece:
        piece = Piece(self.index, text, self._tokens, self._logprobs, finish)
        self._tokens, self._logprobs = [], []
        self.done.text += text
        self.done.tokens += piece.tokens
        self.done.logprobs += piece.logprobs
        self.done.finish = finish
        self._news.append(piece)
        return piece
