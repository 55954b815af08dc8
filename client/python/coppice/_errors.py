"""Exceptions, by errno; each has the sentence that says what was wrong and what to do."""

from __future__ import annotations

import errno


class Error(OSError):
    """What the daemon or the library refuses. `errno`; `strerror` is the sentence."""

    __module__ = "coppice"  # where it is imported from, as a traceback has it

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = "coppice"

    def __str__(self) -> str:
        return str(self.strerror)


def sentence(error: BaseException) -> str:
    """What an exception says, on a command line: the file and not the number of an errno."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return str(error)


class NoDaemon(Error):
    """Nobody listens at the socket: start coppiced, or give the path of its socket."""


class VersionMismatch(Error):
    """The daemon speaks another version."""


class DaemonGone(Error):
    """The daemon has ended: close, connect and begin again."""


class ForkedChild(Error):
    """The connection is that of the process this one was forked from: connect anew."""


class Invalid(Error, ValueError):
    """A mistake in what was given."""


class TooLong(Error, ValueError):
    """More tokens, steps or bytes than are taken."""


class Unsupported(Error):
    """A model or an operation that is not computed here."""


class NotFound(Error, LookupError):
    """No file, tensor or pin of that name."""


class NoRoom(Error):
    """The pool, the arena, or a share of one is full: close sequences, or try again later."""


class LimitReached(Error):
    """As many sessions, sequences, pins or descriptors as there may be."""


class LaneFull(Error, BlockingIOError):
    """The lane has as much in flight as it takes: wait for an earlier ticket."""


class Busy(Error):
    """Layers are missing, or a question is open."""


class TimedOut(Error, TimeoutError):
    """Not yet: what was waited for goes on."""


class Draining(Error):
    """The daemon takes no new sequences."""


class Canceled(Error):
    """What the entry used was closed while it was in flight."""


class Closed(Error, ValueError):
    """A connection, lane, sequence, arena or weights that were closed."""


class NoDevice(Error):
    """There is no GPU for this process, or CUDA refuses."""


_CLASSES: dict[int, type[Error]] = {
    errno.ECONNRESET: DaemonGone,
    errno.EOWNERDEAD: ForkedChild,
    errno.EINVAL: Invalid,
    errno.E2BIG: TooLong,
    errno.EOPNOTSUPP: Unsupported,
    errno.ENOENT: NotFound,
    errno.ENOSPC: NoRoom,
    errno.EDQUOT: NoRoom,
    errno.EUSERS: LimitReached,
    errno.ETOOMANYREFS: LimitReached,
    errno.EAGAIN: LaneFull,
    errno.EBUSY: Busy,
    errno.ETIMEDOUT: TimedOut,
    errno.ESHUTDOWN: Draining,
    errno.ECANCELED: Canceled,
    errno.ESTALE: Closed,
    errno.EBADF: Closed,
    errno.ENODEV: NoDevice,
    errno.EIO: NoDevice,
}
_OF_CONNECT: dict[int, type[Error]] = {
    errno.ENOENT: NoDaemon,
    errno.ECONNREFUSED: NoDaemon,
    errno.EPROTO: VersionMismatch,
}


def error_of(number: int, sentence: str) -> Error:
    """The exception of a call that failed."""
    return _CLASSES.get(number, Error)(number, sentence)


def error_of_connect(number: int, sentence: str) -> Error:
    """The exception of a connection that did not come to be."""
    return _OF_CONNECT.get(number, _CLASSES.get(number, Error))(number, sentence)
