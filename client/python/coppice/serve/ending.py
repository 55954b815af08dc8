"""How a server ends: who asks for it, and how long answers that are under way may take.

uvicorn breaks off what is under way without a word. So it is given more time than they have, and
the engine, which ends first, tells each of them why.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from types import FrameType
from typing import Callable

DRAIN_S = 10.0  # of answers that are under way when the server is to end
UVICORN_S = 15  # until it breaks off what is left


def when_asked(ends: Callable[[], object]) -> None:
    """ends: called within a signal, beside what uvicorn does about it. In the main thread."""

    def chained(number: signal.Signals, former: Callable[[int, FrameType | None], object]) -> None:
        def handle(got: int, frame: FrameType | None) -> None:
            ends()
            former(got, frame)

        signal.signal(number, handle)

    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        former = signal.getsignal(number)
        if callable(former):
            chained(number, former)


def with_parent() -> None:
    """A worker whose parent was killed has nobody left who would end it."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        assert parent is not None
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    if parent is not None:
        threading.Thread(target=wait, name="parent", daemon=True).start()
