"""The engine's thread, and the way between it and the event loop.

The thread connects, loads the model and turns the engine; where the daemon goes, it ends what is
under way, and tries again until the daemon is back. Where the daemon is there and refuses, it says
so once, and tries again ever more seldom: a load reads all of the files. What became of streams
comes to the event loop at once, for all of them together. It has max_streams at a time: more
are refused.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Protocol

import coppice

from ..generation.checkpoint import Checkpoint
from ..generation.engine import Engine
from ..generation.request import Limits, leaders
from ..generation.stream import Event, Stream
from . import metrics
from .config import Config
from .ending import DRAIN_S
from .errors import busy, unavailable

RETRY_S = 0.25  # of a daemon that is not there
REFUSED_S = (1.0, 60.0)  # of one that refuses: at first, twice as much each time, at most
_CONNECT_S = 5.0
_TURN_S = 0.5  # the longest sleep, after which it looks whether it is to end

_NOTE_S = 1.0
SILENT_S = 10.0  # since a daemon has answered that hangs
_TELL_S = 1.0  # what the engine has not told by then of the server's end is told without it
_STOP_S = 5.0  # for an engine that is to close all it has

_GONE = (coppice.DaemonGone, coppice.NoDaemon, coppice.TimedOut)
_STAYS = (coppice.Unsupported, coppice.Invalid, coppice.NotFound, coppice.VersionMismatch)
_DRAINING = "the daemon drains: it takes no new sequences"
_SILENT = "the daemon does not answer"
_LATER = "come back later"
_ENDS = f"the server ends; {_LATER}"
_MEND = "whoever runs the server has to mend that"

log = logging.getLogger("coppice.serve")


class Job(Protocol):
    def put(self, event: Event) -> None: ...


class Worker:
    """Made and used in the event loop's thread, but for what begins with _run."""

    def __init__(self, config: Config, checkpoint: Checkpoint) -> None:
        self._config, self._checkpoint = config, checkpoint
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[Stream, Job] = {}
        self._noting = threading.Lock()
        self._noted = 0.0  # when the daemon has answered last
        self._lock = threading.Lock()  # of what follows
        self._engine: Engine | None = None
        self._connection: coppice.Connection | None = None
        self.limits: Limits | None = None  # of the model, once it has been loaded
        self.why = "starting"  # there is no engine
        self._draining = False  # the daemon, which has an engine go on with what it has
        self._what_to_do = _LATER
        self._said = ""  # of that, in the log
        self._refused_s = 0.0  # how long it was waited after the last refusal
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """The server is to end: what is under way then is told so."""
        self._loop.call_later(DRAIN_S, self._end)

    def _end(self) -> None:
        self._wake_to_end()
        self._loop.call_later(_TELL_S, self._tell_end)

    def _wake_to_end(self) -> None:
        self._over.set()
        with self._lock:
            if self._engine is not None:
                self._engine.wake()

    def _tell_end(self) -> None:
        """Where the daemon hangs the engine does. What it tells later nobody hears."""
        error = unavailable(_ENDS)
        self._deliver([Event(stream, error=error) for stream in self._jobs])

    def stop(self) -> None:
        """Blocks until the engine has closed all it had, if the daemon lets it."""
        self._wake_to_end()
        self._thread.join(timeout=_STOP_S)

    @property
    def _silent(self) -> bool:
        return time.monotonic() - self._noted > SILENT_S

    @property
    def ready(self) -> bool:
        return self._engine is not None and not self._draining and not self._silent

    @property
    def state(self) -> str:
        """Why it is not ready."""
        if self._engine is None:
            return self.why
        return _SILENT if self._silent else _DRAINING

    def model(self) -> Limits:
        """Raises why nothing can be computed now."""
        if self.limits is None or self._engine is None:
            raise unavailable(f"{self.why}; {self._what_to_do}")
        if self._silent:
            raise unavailable(f"{_SILENT}; {_LATER}")
        return self.limits

    def add(self, streams: list[Stream], job: Job) -> None:
        """Streams of one prompt, whose events the job is to have."""
        if len(self._jobs) + len(streams) > self._config.max_streams:
            raise busy(f"{len(self._jobs)} streams are under way here; come back later")
        with self._lock:
            if self._engine is None:
                raise unavailable(f"{self.why}; {self._what_to_do}")
            self._jobs.update((stream, job) for stream in streams)
            metrics.STREAMS.inc(len(streams))
            for leader in leaders(streams):
                self._engine.add(leader)

    def cancel(self, stream: Stream) -> None:
        """Its sequence is closed before its next token (Batch drops it, Engine closes it)."""
        stream.cancelled = True
        with self._lock:
            if self._engine is not None:
                self._engine.wake()

    def note(self) -> None:
        """Into /metrics, what the daemon counts of this worker; blocks. Where the daemon hangs, one
        thread waits for its answer, and others find that it is silent."""
        if not self._noting.acquire(timeout=_NOTE_S):
            metrics.READY.set(int(self.ready))
            return
        try:
            stats = self._stats()
            metrics.note(stats)
            self._draining = stats is not None and stats.draining
            self._noted = time.monotonic()
            metrics.READY.set(int(self.ready))
        finally:
            self._noting.release()

    async def noted(self) -> None:
        """After a note; where the daemon hangs, after a while. The thread is none that a process
        waits for at its end."""
        done = asyncio.Event()

        def note() -> None:
            self.note()
            with suppress(RuntimeError):  # the loop is over
                self._loop.call_soon_threadsafe(done.set)

        threading.Thread(target=note, name="note", daemon=True).start()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), 2 * _NOTE_S)

    def _stats(self) -> coppice.Stats | None:
        connection = self._connection
        try:
            return None if connection is None else connection.stats()
        except coppice.Error:
            return None  # it is gone just now

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            job = self._jobs.get(event.stream)
            if job is None:
                continue
            if event.finish or event.error:
                del self._jobs[event.stream]
                metrics.STREAMS.dec()
            job.put(event)

    # ---- the engine's thread ----------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._run_session()
            except coppice.Error as error:
                self._run_failed(error)
                self._over.wait(self._run_pause_s(error))
            except Exception as error:
                log.exception("the engine failed")
                self._run_failed(error)
                self._over.wait(self._run_pause_s(error))

    def _run_pause_s(self, error: Exception) -> float:
        if isinstance(error, _GONE):
            self._refused_s = 0
            return RETRY_S
        first, most = REFUSED_S
        self._refused_s = min(max(2 * self._refused_s, first), most)
        return self._refused_s

    def _run_failed(self, error: Exception) -> None:
        why = f"no daemon: {error.strerror}" if isinstance(error, _GONE) else str(error)
        if isinstance(error, coppice.DaemonGone):
            why = "no daemon: it is gone, and is looked for"  # the library would have us connect
        if why != self._said and not self._over.is_set():
            log.warning("%s", why)
        self.why = self._said = why
        self._what_to_do = _MEND if isinstance(error, _STAYS) else _LATER

    def _run_session(self) -> None:
        with coppice.connect(self._config.socket, timeout=_CONNECT_S) as connection:
            model = coppice.load_model(
                connection,
                self._checkpoint.path,
                max_positions=self._config.max_positions,
                progress=self._run_loading,
            )
            engine = Engine(connection, model, self._run_give)
            self._run_begin(connection, engine, model)
            try:
                self._run_turns(engine)
            except Exception as error:
                self._run_end(engine, error)
                raise
            self._run_end(engine, unavailable(_ENDS))

    def _run_turns(self, engine: Engine) -> None:
        """Another worker may be asked for /metrics, and tells what this one has noted."""
        next_note = time.monotonic()
        while not self._over.is_set():
            if time.monotonic() >= next_note:
                self.note()
                next_note = time.monotonic() + _NOTE_S
            engine.turn(_TURN_S)

    def _run_loading(self, progress: coppice.Progress) -> None:
        done = progress.n_done / progress.n_bytes if progress.n_bytes else 0
        self.why, self._what_to_do = f"weights are being loaded: {done:.0%}", _LATER

    def _run_begin(
        self, connection: coppice.Connection, engine: Engine, model: coppice.Model
    ) -> None:
        limits = Limits(model, self._checkpoint.eos_ids())
        with self._lock:
            self.limits = limits
            self._noted = time.monotonic()
            self._engine, self._connection = engine, connection
        metrics.READY.set(1)
        self.why = "ready"
        self._said = ""
        self._refused_s = 0
        log.info("ready: %s, %d tokens at most", self._checkpoint.path, model.max_positions)

    def _run_end(self, engine: Engine, error: Exception) -> None:
        with self._lock:
            self._engine = self._connection = None
            self._run_failed(error)
        metrics.READY.set(0)
        self.note()
        engine.close(error)

    def _run_give(self, events: list[Event]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, events)
        except RuntimeError:
            pass  # the loop is over, and with it whoever asked
