"""The same for asyncio: what would block is awaited, and the loop goes on.

Lanes of `aio.lane` have a descriptor, which the loop watches while somebody waits for an entry.
What is a message to the daemon and its answer is asked in a thread. To cancel a task ends its
wait and not the entry: who wants no more of a sequence closes it. Models, programs and arenas are
asked for once in a while: `asyncio.to_thread` does for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Sequence as Items
from typing import TYPE_CHECKING, Any, TypeVar

from . import _models
from ._coppice import (
    Arena,
    Connection,
    Decode,
    Lane,
    Match,
    Model,
    Progress,
    Row,
    Sequence,
    State,
    Stats,
    Weights,
)
from ._errors import Busy, Invalid, LaneFull, TimedOut

if TYPE_CHECKING:
    from ._coppice import Tokens

T = TypeVar("T")
_TICK_SECONDS = 0.2  # a daemon that has died rings no descriptor
_AGAIN_SECONDS = 0.001
_LOOK_SECONDS = 0.1  # of a thread, which a task that is cancelled leaves to its end


class _Bell:
    """Those of a loop that wait for one descriptor: each looks for itself when it rings."""

    def __init__(self, owner: Lane | Connection, fd: int) -> None:
        self.owner, self.fd = owner, fd
        self.loop = asyncio.get_running_loop()
        self.looks: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self.loop.add_reader(fd, self.ring)
        self.timer = self.loop.call_later(_TICK_SECONDS, self.tick)

    def arm(self) -> None:
        """While a thread is in a call on the lane the descriptor may stay readable: once more."""
        if isinstance(self.owner, Lane) and not self.owner.closed and not self.owner.arm():
            self.loop.remove_reader(self.fd)
            self.loop.call_later(_AGAIN_SECONDS, self.resume)

    def resume(self) -> None:
        if _bells.get((id(self.loop), self.fd)) is self:
            self.loop.add_reader(self.fd, self.ring)
            self.ring()

    def look(self, future: asyncio.Future[Any]) -> None:
        if future.done():
            return
        try:
            value = self.looks[future]()
        except Exception as error:
            future.set_exception(error)
            return
        if value is not None:
            future.set_result(value)

    def ring(self) -> None:
        self.arm()
        for future in list(self.looks):
            self.look(future)

    def tick(self) -> None:
        self.timer = self.loop.call_later(_TICK_SECONDS, self.tick)
        self.ring()

    def leave(self, future: asyncio.Future[Any]) -> None:
        del self.looks[future]
        if not self.looks:
            self.end()

    def end(self) -> None:
        self.timer.cancel()
        if _bells.get((id(self.loop), self.fd)) is self:
            self.loop.remove_reader(self.fd)
            del _bells[id(self.loop), self.fd]


_bells: dict[tuple[int, int], _Bell] = {}


def _bell_of(owner: Lane | Connection) -> _Bell:
    fd = owner.fileno()
    if fd < 0:
        raise Invalid(errno.EINVAL, "the lane has no descriptor: make it by coppice.aio.lane")
    key = id(asyncio.get_running_loop()), fd
    bell = _bells.get(key)
    if bell is not None and bell.owner is not owner:  # closed, and its descriptor another's
        bell.ring()
        bell.end()
        bell = None
    if bell is None:
        bell = _bells[key] = _Bell(owner, fd)
    return bell


async def _until(owner: Lane | Connection, look: Callable[[], T | None]) -> T:
    """Waits until look finds something; what it raises is raised."""
    value = look()
    if value is not None:
        return value
    bell = _bell_of(owner)
    future: asyncio.Future[T] = bell.loop.create_future()
    bell.looks[future] = look
    try:
        bell.arm()
        bell.look(future)
        return await future
    finally:
        bell.leave(future)


async def connect(path: str | None = None, timeout: float | None = 60.0) -> Connection:
    """A session with the daemon; see coppice.connect."""
    return await asyncio.to_thread(Connection, path, timeout)


async def lane(connection: Connection) -> Lane:
    """A lane that this module can wait for."""
    return await asyncio.to_thread(connection.lane, pollable=True)


async def stats(connection: Connection) -> Stats:
    """What the daemon has counted; see Connection.stats."""
    return await asyncio.to_thread(connection.stats)


async def open_weights(connection: Connection, folder: _models.PathLike) -> Weights:
    """See coppice.open_weights."""
    return await asyncio.to_thread(_models.open_weights, connection, folder)


async def loaded(
    weights: Weights,
    timeout: float | None = None,
    *,
    progress: Callable[[Progress], object] | None = None,
) -> Progress:
    """Until weights are there; see Weights.wait. progress is called now and then, and at the end.

    Raises TimedOut: not yet; or why they cannot be had.
    """
    loop = asyncio.get_running_loop()
    end = float("inf") if timeout is None else loop.time() + timeout
    while True:
        left = end - loop.time()
        try:
            told = await asyncio.to_thread(weights.wait, max(0.0, min(left, _LOOK_SECONDS)))
            break
        except TimedOut:
            if left <= _LOOK_SECONDS:
                raise
        if progress is not None:
            progress(await asyncio.to_thread(weights.progress))
    if progress is not None:
        progress(told)
    return told


async def load_model(
    connection: Connection,
    folder: _models.PathLike,
    *,
    max_positions: int = 0,
    dtype: str | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Model:
    """See coppice.load_model; progress is called in the loop's thread."""
    tell = None
    if progress is not None:
        loop, told = asyncio.get_running_loop(), progress

        def tell(p: Progress) -> object:
            return loop.call_soon_threadsafe(told, p)

    return await asyncio.to_thread(
        _models.load_model,
        connection,
        folder,
        max_positions=max_positions,
        dtype=dtype,
        progress=tell,
    )


async def open(lane: Lane, model: Model, tokens: Tokens, *, salt: int = 0) -> Sequence:
    """A sequence on a prompt; see Lane.open."""
    return await asyncio.to_thread(lane.open, model, tokens, salt=salt)


async def open_many(
    lane: Lane, prompts: Items[tuple[Model, Tokens] | tuple[Model, Tokens, int]]
) -> list[Sequence]:
    """Many, all or none; see Lane.open_many."""
    return await asyncio.to_thread(lane.open_many, prompts)


async def close(what: Sequence | Lane | Arena | Weights) -> None:
    """Gives it back; see Sequence.close, Lane.close, Arena.close, Weights.close."""
    await asyncio.to_thread(what.close)


@contextlib.asynccontextmanager
async def opened(
    lane: Lane, model: Model, tokens: Tokens, *, salt: int = 0
) -> AsyncIterator[Sequence]:
    """A sequence that is closed at the end, as `with` on it does, while the loop goes on."""
    seq = await open(lane, model, tokens, salt=salt)
    try:
        yield seq
    finally:
        await close(seq)


async def fork(seq: Sequence) -> Sequence:
    """A second sequence at the same place; see Sequence.fork."""
    return await asyncio.to_thread(seq.fork)


async def pin(seq: Sequence, seconds: float) -> int:
    """Keeps its tokens from eviction; the pin's number. See Sequence.pin."""
    return await asyncio.to_thread(seq.pin, seconds)


async def unpin(connection: Connection, pin: int) -> None:
    """Ends a pin; see Connection.unpin."""
    await asyncio.to_thread(connection.unpin, pin)


async def state(seq: Sequence) -> State:
    """What the daemon has of it; see Sequence.state."""
    return await asyncio.to_thread(seq.state)


async def settled(seq: Sequence, timeout: float | None = None) -> Match:
    """Until nothing of the prompt is pending any more; see Sequence.wait."""
    if seq.match.pending == 0:
        return seq.match
    while True:
        try:
            await asyncio.to_thread(seq.ask, timeout)  # a thread may be in a call on the lane
            break
        except Busy:  # asked by a task that was cancelled
            break
        except LaneFull:
            await asyncio.sleep(_AGAIN_SECONDS)
    return await _until(seq.lane.connection, seq.answer)


async def rows(decode: Decode) -> list[Row]:
    """What comes of a decode; raises how it failed."""
    await _until(decode.lane, lambda: decode.done() or None)
    if decode.failed:
        return await asyncio.to_thread(decode.wait, 0)  # a thread may be in a call on the lane
    return decode.wait(0)


async def ticket(on: Lane, number: int) -> None:
    """Until a ticket of the lane has completed; raises how it failed."""
    result = await _until(on, lambda: on.poll(number))
    if result.status != 0:
        await asyncio.to_thread(on.wait, number, 0)
