"""A handler of a signal that raises: which calls it ends, and what is left of those it does not."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Daemon, await_seqs, large_weights, standing_loader
from test_threads import BLOCKING, Blocking, blocking, standing_still

import coppice

SIGNAL_SECONDS, AWAKE_SECONDS = 0.15, 0.6
PROMPT = list(range(100))


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that begins the tests in its background has them ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(call: Callable[[], object]) -> float:
    """The seconds that it took then."""
    begin = time.monotonic()
    timer = threading.Timer(SIGNAL_SECONDS, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    timer.join()
    return time.monotonic() - begin


# ---- ended early -----------------------------------------------------------------------------


def wait(of: Blocking, other: coppice.Sequence) -> Callable[[], object]:
    ticket = of.lane.nop()
    return lambda: of.lane.wait(ticket)


def wait_for_rows(of: Blocking, other: coppice.Sequence) -> Callable[[], object]:
    return of.text.decode([1]).wait


def wait_for_others(of: Blocking, other: coppice.Sequence) -> Callable[[], object]:
    return other.wait


Begin = Callable[[Blocking, coppice.Sequence], Callable[[], object]]
EARLY: dict[Begin, float] = {wait: 0.2, wait_for_rows: 0.2, wait_for_others: 2.2}


@pytest.mark.parametrize("wait", EARLY)
def test_waits_end_while_the_daemon_stands_still(
    own_daemon: Daemon, leaves_nothing: None, wait: Begin
) -> None:
    with blocking(own_daemon) as of:
        owner, other = (of.connection.lane().open(of.model, PROMPT) for _ in range(2))
        assert other.match.pending > 0
        of.text.decode([1]).wait()
        with standing_still(own_daemon):
            seconds = interrupted(wait(of, other))
            assert SIGNAL_SECONDS <= seconds < SIGNAL_SECONDS + EARLY[wait] + 1.5
        owner.close()
        assert other.wait(10).pending == 0
        of.lane.wait(of.lane.nop())


def test_a_wait_goes_on_after_the_daemon_has_stood_still(
    own_daemon: Daemon, leaves_nothing: None
) -> None:
    """For longer than a question is waited for: the next one finds it there still."""
    with blocking(own_daemon) as of:
        owner, other = (of.connection.lane().open(of.model, PROMPT) for _ in range(2))
        wake = threading.Timer(2.6, own_daemon.process.send_signal, [signal.SIGCONT])
        closes = threading.Timer(3.0, owner.close)
        with standing_still(own_daemon):
            wake.start()
            closes.start()
            begin = time.monotonic()
            assert other.wait(15).pending == 0
            assert time.monotonic() - begin > 2.5
        closes.join()


def test_a_wait_for_weights_ends(
    own_daemon: Daemon, leaves_nothing: None, tmp_path: Path
) -> None:
    with coppice.connect(own_daemon.socket) as connection:
        weights = coppice.open_weights(connection, large_weights(tmp_path, 1 << 15))
        with standing_loader(own_daemon):
            assert interrupted(weights.wait) < SIGNAL_SECONDS + 1.7
            assert not weights.ready
        assert weights.wait(30.0).n_done > 0


# ---- ended by the answer ---------------------------------------------------------------------

LATE = [name for name in BLOCKING if name not in ("wait", "decode")]


@pytest.mark.parametrize("call", LATE)
def test_messages_end_with_their_answer(
    own_daemon: Daemon, leaves_nothing: None, call: str
) -> None:
    """And what they have made is gone again."""
    with blocking(own_daemon) as of:
        before = of.connection.stats()
        wake = threading.Timer(AWAKE_SECONDS, own_daemon.process.send_signal, [signal.SIGCONT])
        with standing_still(own_daemon):
            wake.start()
            assert interrupted(lambda: BLOCKING[call](of)) >= AWAKE_SECONDS - 0.1
        wake.join()
        closed = {"close": 1, "close_lane": 2}.get(call, 0)
        await_seqs(of.connection, before.n_seqs - closed)
        after = of.connection.stats()
        assert after.n_lanes == before.n_lanes - (call == "close_lane")
        assert after.n_arenas == before.n_arenas - (call == "close_arena")
