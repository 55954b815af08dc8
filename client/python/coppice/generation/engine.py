"""Many continuations at once: the loop behind LLM and the server.

Streams share lanes, 16 at most to each, and join and leave between two of a lane's entries. A long
prompt has a lane of its own where there is one: what a lane's entry takes holds up no other lane.
Entries of all lanes, and of other processes, meet in the daemon's passes.

    add > a lane has room > opened > others compute part of it: asked > prompt > tokens > closed

One thread makes an engine, calls turn and closes it; any may call add and wake. What became
of the streams is handed to `give` while the daemon computes the next tokens.
"""

from __future__ import annotations

import os
import select
from collections import OrderedDict, deque
from typing import Callable

from .._coppice import Connection, Model, Sequence
from .._errors import DaemonGone, Error
from .batch import CHUNK, LANE_STREAMS, Batch
from .stream import Event, Stream

_OPENED_A_TURN = 8  # each takes a message and its answer, for which the others' tokens wait
_MOST_ASKED = 32  # who wait for others' tokens; of a session's 64 requests, calls want some
_FULL_S = 0.01  # until a lane that took no entry is tried once more
_SESSIONS = 1024  # whose pins are remembered

Give = Callable[[list[Event]], None]


def _place_of(batch: Batch) -> tuple[bool, bool, int]:
    """Of a stream that joins: the least."""
    return batch.has_prompts, bool(batch.streams), batch.room


class Engine:
    """n_lanes: streams that are served at once are 16 times as many at most."""

    def __init__(
        self, connection: Connection, model: Model, give: Give, n_lanes: int = 8
    ) -> None:
        self._connection, self._model, self._give = connection, model, give
        self._events: list[Event] = []
        self._batches = [
            self._batch(connection, model)
            for _ in range(n_lanes)
        ]
        self._added: deque[Stream] = deque()  # by any thread
        self._queue: list[Stream] = []
        self._pins: OrderedDict[str, int] = OrderedDict()
        self._n_joined = 0
        self.broken = False  # a turn was broken off among its books: nothing but close is left
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        for fd in (self._wake_read, connection.fileno()):
            self._poll.register(fd, select.POLLIN)
        self._by_descriptor = {batch.lane.fileno(): batch for batch in self._batches}
        for fd in self._by_descriptor:
            self._poll.register(fd, select.POLLIN)

    def _batch(self, connection: Connection, model: Model) -> Batch:
        lane = connection.lane(pollable=True)
        keep, is_newest = self._keep, self._is_newest
        return Batch(lane, model, self._events, self._close_stream, keep, is_newest)

    def _is_newest(self, stream: Stream) -> bool:
        """Of those that compute: who waits for others to do so makes no room."""
        there = (one for batch in self._batches for one in batch.streams if not one.asked)
        return stream.number >= max((one.number for one in there), default=0)

    # ---- any thread -------------------------------------------------------------------------

    def add(self, stream: Stream) -> None:
        """With its twins it fills one lane at most."""
        assert 1 + len(stream.twins) <= LANE_STREAMS
        self._added.append(stream)
        self.wake()

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except OSError:
            pass  # it is awake already, or closed: no descriptor has the number -1

    # ---- the engine's thread ----------------------------------------------------------------

    def turn(self, timeout: float | None = None) -> None:
        """Serves what is there; where nothing came of it, sleeps until there is more. Tokens are
        told before anybody is closed or opened: each waits for an answer. Raises DaemonGone."""
        self.broken = True  # until the books are right: a signal's handler may raise anywhere
        told = self._serve()
        self.broken = False
        if not told:
            self._sleep(timeout)

    def _serve(self) -> bool:
        """Whether anything came of it."""
        told = False
        try:
            for batch in self._batches:
                batch.advance()
            told = self._tell()
            for batch in self._batches:
                batch.close_those_that_left()
            self._place()
        finally:
            told |= self._tell()
        return told

    def _tell(self) -> bool:
        events = self._events.copy()
        self._events.clear()
        if events:
            self._give(events)
        return bool(events)

    def _place(self) -> None:
        """The first of the queue go where most room is."""
        while self._added:
            self._queue.append(self._added.popleft())
        for stream in [stream for stream in self._queue if stream.cancelled]:
            self._queue.remove(stream)
            self._events += stream.ends("cancelled")
        for stream in self._queue[:_OPENED_A_TURN]:
            batch = self._choose(1 + len(stream.twins))
            if batch is None:
                break
            self._join(batch, stream)
            self._queue.remove(stream)

    def _choose(self, n: int) -> Batch | None:
        """For n streams: one that is empty, as an entry that has a prompt is not in every pass,
        and tokens beside it wait. Else the fullest that has room, so that entries are few; of
        those in which nobody waits for a prompt, where there are such. None: there is no room, or
        so many wait for what others compute that the session has no request left for the next."""
        if sum(batch.n_asked for batch in self._batches) >= _MOST_ASKED:
            return None
        roomy = [batch for batch in self._batches if batch.room >= n]
        return min(roomy, key=_place_of, default=None)

    def _join(self, batch: Batch, stream: Stream) -> None:
        self._n_joined += 1
        stream.number = self._n_joined
        try:
            stream.open(batch.lane, self._model)
            if stream.pin_s > 0 and stream.seq is not None:
                self._hold(stream, stream.seq)  # refused before anything is computed for it
            if stream.n_left > CHUNK and batch.streams:
                batch = self._move(batch, stream)
        except DaemonGone:
            raise
        except Error as error:
            self._events += stream.ends(error)
            self._close_stream(stream)
        else:
            batch.streams.append(stream)
            batch.turn()

    def _move(self, batch: Batch, stream: Stream) -> Batch:
        """A long prompt holds up nobody where it is alone."""
        empty = next((one for one in self._batches if not one.streams), None)
        if empty is None or stream.seq is None:
            return batch
        seq, stream.seq = stream.seq, None
        seq.close()
        stream.open(empty.lane, self._model)
        return empty

    def _sleep(self, timeout: float | None) -> None:
        for batch in self._batches:
            if batch.in_flight:
                batch.lane.arm()
        if self._has_work():
            return
        if any(batch.is_full for batch in self._batches):
            timeout = _FULL_S if timeout is None else min(timeout, _FULL_S)
        for fd, _ in self._poll.poll(None if timeout is None else timeout * 1000):
            if fd == self._wake_read:
                os.read(fd, 4096)
            elif fd == self._connection.fileno():
                self.broken = True
                self._look_at_connection()
                self.broken = False
            elif not self._by_descriptor[fd].in_flight:
                self._by_descriptor[fd].lane.arm()  # or it would be readable for ever

    def _has_work(self) -> bool:
        placeable = self._queue and self._choose(1 + len(self._queue[0].twins))
        return bool(placeable) or any(batch.is_done() for batch in self._batches)

    def _look_at_connection(self) -> None:
        """An answer that a stream waits for has come; or the daemon is gone: this says so."""
        asking = [batch.hear() for batch in self._batches]
        if not any(asking):
            self._connection.stats()

    # ---- ends -------------------------------------------------------------------------------

    def has(self, streams: list[Stream]) -> bool:
        """Whether any of them is to be served still, or to be closed."""
        there = {*self._queue, *self._added}
        there.update(one for batch in self._batches for one in batch.there)
        return not there.isdisjoint(streams)

    def _close_stream(self, stream: Stream) -> None:
        seq, stream.seq = stream.seq, None
        if seq is None:
            return self._drop_pin(stream)
        if stream.pin_s > 0:
            self._keep_what_is_there(stream, seq)
        seq.close()

    def _hold(self, stream: Stream, seq: Sequence) -> None:
        """Pins what it has, in place of what it had. Raises why not; then it is not tried again."""
        seconds, stream.pin_s = stream.pin_s, 0.0
        before, stream.pin = stream.pin, seq.pin(seconds)
        stream.pin_s = seconds
        if before is not None:
            self._unpin(before)

    def _keep(self, stream: Stream) -> None:
        """In place of the session's pin before. Without a session it stays until its time is over.
        Raises why it cannot be; then nothing of it stays."""
        if stream.pin_s > 0 and stream.seq is not None:
            try:
                self._hold(stream, stream.seq)
            except Error:
                self._drop_pin(stream)
                raise
            stream.pin_s = 0.0
            self._note_pin(stream)

    def _keep_what_is_there(self, stream: Stream, seq: Sequence) -> None:
        """Of one that was broken off. Nobody is there to be told that it cannot be."""
        stream.seq = seq
        try:
            self._keep(stream)
        except DaemonGone:
            raise
        except Error:
            pass
        finally:
            stream.seq = None

    def _note_pin(self, stream: Stream) -> None:
        pin, stream.pin = stream.pin, None
        if not stream.session or pin is None:
            return
        before = self._pins.pop(stream.session, None)
        self._pins[stream.session] = pin
        if len(self._pins) > _SESSIONS:
            self._pins.popitem(last=False)
        if before is not None:
            self._unpin(before)

    def _drop_pin(self, stream: Stream) -> None:
        """By which it is kept so far."""
        pin, stream.pin = stream.pin, None
        if pin is not None:
            self._unpin(pin)

    def _unpin(self, pin: int) -> None:
        try:
            self._connection.unpin(pin)
        except DaemonGone:
            raise
        except Error:
            pass  # its time was over

    def close(self, why: str | Exception = "cancelled") -> None:
        """Streams that are there end so, and all sequences. Twice is fine."""
        there = [stream for batch in self._batches for stream in batch.streams]
        for stream in [*there, *self._queue, *self._added]:
            self._events += stream.ends(why)
        self._tell()
        for batch in self._batches:
            batch.lane.close()
        ends = self._wake_read, self._wake_write
        self._wake_read = self._wake_write = -1  # the numbers are soon somebody else's
        for fd in ends:
            if fd >= 0:
                os.close(fd)
