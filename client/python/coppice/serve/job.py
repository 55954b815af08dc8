"""The streams of one request, on the event loop's side."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Awaitable

from ..generation.answer import Continuation, Piece, Writer
from ..generation.sampling import Sampling
from ..generation.stream import Event, Stream
from ..generation.tokenizer import Tokenizer
from .worker import Worker

MOST_BEHIND = 65536  # tokens and logprobs that a client may leave unread, beside full sockets


@dataclass
class Usage:
    prompt: int = 0
    cached: int = 0
    generated: int = 0


class HungUp(Exception):
    """The client is gone, or does not read."""


def _weight(event: Event) -> int:
    return 1 + (len(event.logprob.top) if event.logprob else 0)


class Job:
    """Use it as a context: whatever happens, no stream outlives it."""

    def __init__(
        self, worker: Worker, tokenizer: Tokenizer, sampling: Sampling, each: bool = False
    ) -> None:
        """each: whether every token has a piece of its own."""
        self._worker, self._tokenizer, self._sampling = worker, tokenizer, sampling
        self._each = each
        self._writers: dict[Stream, Writer] = {}
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._behind = 0  # what the events weigh that wait for the client
        self._sending: asyncio.Task[None] | None = None  # while it waits for the client
        self._open: set[Stream] = set()
        self._begun = time.monotonic()
        self._prompts: list[Stream] = []  # the first stream of each
        self.first_s: float | None = None  # until the first token

    def add(self, streams: list[Stream]) -> None:
        """Of one more prompt. Raises where there is no room for them."""
        self._worker.add(streams, self)
        self._prompts.append(streams[0])
        for stream in streams:
            index = len(self._writers)
            writer = Writer(self._tokenizer, self._sampling, index, self._each)
            self._writers[stream] = writer
            self._open.add(stream)

    def put(self, event: Event) -> None:
        if self._behind > MOST_BEHIND and self._sending is not None:
            self._sending.cancel()
            return
        self._behind += _weight(event)
        self._events.put_nowait(event)

    def hang_up(self) -> None:
        self._events.put_nowait(None)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._open:
            self._worker.cancel(stream)

    async def sent(self, sending: Awaitable[None]) -> None:
        """What is sent. Raises where the client does not read it and leaves too much behind."""
        self._sending = asyncio.current_task()
        try:
            await sending
        except asyncio.CancelledError:
            if self._behind > MOST_BEHIND:
                raise HungUp from None
            raise
        finally:
            self._sending = None

    async def some(self) -> list[Piece]:
        """The next pieces, all that are there; none: all streams have ended."""
        pieces: list[Piece] = []
        while self._open and not pieces:
            self._take(await self._events.get(), pieces)
            while self._open and not self._events.empty():
                self._take(self._events.get_nowait(), pieces)
        return pieces

    def _take(self, event: Event | None, pieces: list[Piece]) -> None:
        if event is None:
            raise HungUp
        self._behind -= _weight(event)
        if self.first_s is None:
            self.first_s = time.monotonic() - self._begun
        if event.stream not in self._open:
            return
        writer = self._writers[event.stream]
        piece = writer.take(event)
        writer.check()
        if piece is None:
            return
        pieces.append(piece)
        if piece.finish:
            self._open.discard(event.stream)
            if not event.finish:  # by a stop text: the engine does not know
                self._worker.cancel(event.stream)

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt=sum(stream.n_prompt for stream in self._prompts),
            cached=sum(stream.cached for stream in self._prompts),
            generated=sum(len(writer.done.tokens) for writer in self._writers.values()),
        )

    def done(self) -> list[Continuation]:
        return [writer.done for writer in self._writers.values()]
