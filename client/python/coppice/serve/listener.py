"""The port that workers share: who has just taken a connection leaves the next to others.

An event loop takes all connections that are there when it wakes. Of many that come at once most
would go to one worker, whose streams are then late for every pass of the daemon's.
"""

from __future__ import annotations

import socket
import time
from multiprocessing import reduction
from typing import Any

OTHERS_S = 0.002


class Listener(socket.socket):
    """For a loop that takes connections by accept until there is none."""

    _not_before = 0.0  # others may have what is there until then

    @classmethod
    def of(cls, bound: socket.socket) -> Listener:
        """Takes its descriptor over."""
        return cls(bound.family, bound.type, bound.proto, bound.detach())

    def accept(self) -> tuple[socket.socket, Any]:
        if time.monotonic() < self._not_before:
            raise BlockingIOError
        taken = super().accept()
        self._not_before = time.monotonic() + OTHERS_S
        return taken

    def __reduce__(self) -> Any:
        return _received, (self.family, self.type, self.proto, reduction.DupFd(self.fileno()))


def _received(family: int, kind: int, proto: int, descriptor: Any) -> Listener:
    return Listener(family, kind, proto, descriptor.detach())
