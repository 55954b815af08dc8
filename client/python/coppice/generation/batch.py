"""Streams of one lane, which go step by step together: each token of theirs is one entry.

What becomes of streams is appended to a list of events as it happens, so that nothing is lost where
a call in the middle says that the daemon is gone.
"""

from __future__ import annotations

from typing import Callable

from .._coppice import Decode, Lane, Model, Row
from .._errors import DaemonGone, Error, LaneFull, NoRoom
from .stream import Event, Stream

LANE_STREAMS = 16  # an entry of more tokens is a prompt to the daemon: not in every pass
CHUNK = 256  # tokens of prompts that go beside the others' tokens
CHUNK_ALONE = 1024  # where there are no others


class Batch:
    """close_stream: what is done with a stream's sequence at its end. keep_stream: with one that
    has come to its end by itself, before that is told; raises why it has failed all the same."""

    def __init__(
        self,
        lane: Lane,
        model: Model,
        events: list[Event],
        close_stream: Callable[[Stream], None],
        keep_stream: Callable[[Stream], None] = lambda stream: None,
        is_newest: Callable[[Stream], bool] = lambda stream: True,
    ) -> None:
        self.lane, self._model = lane, model
        self._events, self._close_stream = events, close_stream
        self._keep_stream, self._is_newest = keep_stream, is_newest
        self.streams: list[Stream] = []
        self._leaving: list[Stream] = []
        self._decode: Decode | None = None  # in flight
        self._parts: list[tuple[Stream, int]] = []  # of it: so many tokens of each
        self.is_full = False  # the lane took no entry, or the pool had no room: once more next turn

    @property
    def room(self) -> int:
        return LANE_STREAMS - sum(1 + len(stream.twins) for stream in self.streams)

    @property
    def there(self) -> list[Stream]:
        """Those that are to be closed included; twins come with the stream they are forked from."""
        return self.streams + self._leaving

    @property
    def n_asked(self) -> int:
        """Those that wait for what others compute."""
        return sum(stream.asked for stream in self.streams)

    def is_done(self) -> bool:
        return self._decode is not None and self._decode.done()

    @property
    def in_flight(self) -> bool:
        return self._decode is not None

    def hear(self) -> bool:
        """Streams whose answer may have come look for it; False: none waits for one."""
        asking = [stream for stream in self.streams if stream.asked]
        for stream in asking:
            self._try(stream, stream.hear)
        return bool(asking)

    @property
    def has_prompts(self) -> bool:
        return any(stream.n_left > 1 for stream in self.streams)

    def turn(self) -> None:
        self.advance()
        self.close_those_that_left()

    def advance(self) -> None:
        """Looks at the entry in flight; where it is over, the next one goes out."""
        if self._decode is not None:
            if self._decode.done():
                self._read(self._decode)
                if self.is_full:
                    self._decode = None
                    return
            elif not all(stream.cancelled for stream, _ in self._parts):
                return
        self._drop_cancelled()
        self._submit()

    def close_those_that_left(self) -> None:
        """It takes a message and its answer each, and can wait."""
        while self._leaving:
            self._close_stream(self._leaving.pop())

    # ---- the entry --------------------------------------------------------------------------

    def _plan(self) -> list[tuple[Stream, int]]:
        """How many tokens of each stream go now: one, or as many as there is room for."""
        parts, room = [], CHUNK if len(self.streams) > 1 else CHUNK_ALONE
        for stream in self.streams:
            if stream.asked:
                continue
            left = stream.n_left
            n = left if left == 1 else min(left, room)
            if n > 0:
                parts.append((stream, n))
                room -= n if left > 1 else 0
        return parts

    def _submit(self) -> None:
        self._parts = parts = self._plan()
        self._decode, self.is_full = None, False
        if not parts:
            return
        try:
            self._decode = self._decode_of(parts)
        except DaemonGone:
            raise
        except LaneFull:
            self.is_full = True
        except Error as error:
            self._mend(error)

    def _decode_of(self, parts: list[tuple[Stream, int]]) -> Decode:
        wanted = [stream for stream, n in parts if stream.n_done + n == len(stream.ids)]
        return self.lane.decode(
            [stream.part(n) for stream, n in parts],
            top=max((stream.sampling.n_top for stream in wanted), default=1),
            logits=any(stream.wants_all for stream in wanted),
        )

    def _read(self, decode: Decode) -> None:
        try:
            rows = iter(decode.wait(0))
        except DaemonGone:
            raise
        except Error as error:
            return self._mend(error)
        for stream, n in self._parts:
            stream.n_done += n
            if stream.n_done == len(stream.ids):
                self._take(stream, next(rows))

    def _take(self, stream: Stream, row: Row) -> None:
        while stream.twins:
            self._take_twin(stream.twins[-1], stream, row)
            stream.twins.pop()
        self._try(stream, self._choose, stream, row)

    def _take_twin(self, twin: Stream, of: Stream, row: Row) -> None:
        try:
            twin.fork(of)
        except DaemonGone:
            raise
        except Error as error:
            self._events.append(Event(twin, error=error))
            return
        self.streams.append(twin)
        self._try(twin, self._choose, twin, row)

    def _choose(self, stream: Stream, row: Row) -> None:
        event = stream.take(row, self._model.n_vocab)
        if event is None:
            return
        if event.finish:
            self._keep_stream(stream)
            self._leave(stream)
        self._events.append(event)

    # ---- ends -------------------------------------------------------------------------------

    def _leave(self, stream: Stream) -> None:
        self.streams.remove(stream)
        self._leaving.append(stream)

    def _drop_cancelled(self) -> None:
        for stream in [stream for stream in self.streams if stream.cancelled]:
            self._leave(stream)
            self._events += stream.ends("cancelled")

    def _mend(self, error: Error) -> None:
        """The entry failed. Where the pool is full the newest stream of all makes room for the
        others: until its own entry fails, these are tried again."""
        failed = [stream for stream, _ in self._parts]
        if isinstance(error, NoRoom):
            self.is_full = not self._is_newest(failed[-1])
            kept = failed if self.is_full else failed[:-1]
            for stream in kept:
                self._try(stream, stream.go_back_to_what_is_there)
            failed = failed[len(kept) :]
        for stream in failed:
            self._fail(stream, error)

    def _fail(self, stream: Stream, error: Error) -> None:
        self.streams.remove(stream)
        self._events += stream.ends(error)
        self._close_stream(stream)

    def _try(self, stream: Stream, call: Callable[..., None], *given: object) -> None:
        """A failure ends this stream and no other."""
        try:
            call(*given)
        except DaemonGone:
            raise
        except Error as error:
            self._fail(stream, error)
