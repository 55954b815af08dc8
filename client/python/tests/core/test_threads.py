"""Threads: who waits holds nobody up, and what is closed under a call ends when the call does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import pytest
from harness import CHECKPOINT, Daemon, await_seqs

import coppice

T = TypeVar("T")


class InThread:
    """A call in another thread: what it returned or raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.result: object = None
        self.thread = threading.Thread(target=self.run, args=[call])
        self.thread.start()

    def run(self, call: Callable[[], object]) -> None:
        try:
            self.result = call()
        except coppice.Error as error:
            self.result = error

    def join(self) -> object:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.result


@pytest.fixture
def claimed(
    connection: coppice.Connection, small: coppice.Model
) -> Iterator[coppice.Sequence]:
    """A prompt that somebody else computes, and does not."""
    prompt = list(range(100))
    first = connection.lane().open(small, prompt, salt=50)
    second = connection.lane().open(small, prompt, salt=50)
    assert first.match.claimed and second.match.pending > 0
    yield second
    first.close()


def test_a_wait_lets_others_run(claimed: coppice.Sequence) -> None:
    waiting = InThread(lambda: claimed.wait(0.5))
    n, end = 0, time.monotonic() + 0.3
    while time.monotonic() < end:
        n += 1
    assert n > 1000
    assert isinstance(waiting.join(), coppice.TimedOut)
    assert claimed.match.pending > 0


class Blocking(NamedTuple):
    """What calls are asked of, while the daemon stands still."""

    daemon: Daemon
    connection: coppice.Connection
    lane: coppice.Lane
    arena: coppice.Arena
    model: coppice.Model
    weights: coppice.Weights
    program: coppice.Model
    seq: coppice.Sequence
    text: coppice.Sequence


def config() -> str:
    return str(CHECKPOINT / "config.json")


def shape(of: Blocking) -> object:
    return of.connection.model("other", n_layers=1, n_q_heads=2, n_kv_heads=1, head_dim=16)


BLOCKING: dict[str, Callable[[Blocking], object]] = {
    "connect": lambda of: coppice.connect(of.daemon.socket).close(),
    "stats": lambda of: of.connection.stats(),
    "lane": lambda of: of.connection.lane(),
    "arena": lambda of: of.connection.arena(4096),
    "weights": lambda of: coppice.open_weights(of.connection, CHECKPOINT),
    "model": shape,
    "program": lambda of: of.connection.program(of.weights, config(), max_positions=32),
    "unpin": lambda of: of.connection.unpin(1 << 40),
    "wait_weights": lambda of: of.weights.wait(),
    "progress": lambda of: of.weights.progress(),
    "map": lambda of: of.weights.map(),
    "open": lambda of: of.lane.open(of.model, [5]),
    "open_many": lambda of: of.lane.open_many([(of.model, [5]), (of.model, [6])]),
    "wait": lambda of: of.lane.wait(of.lane.nop()),
    "decode": lambda of: of.text.decode([1]).wait(),
    "state": lambda of: of.seq.state(),
    "fork": lambda of: of.seq.fork(),
    "pin": lambda of: of.seq.pin(1.0),
    "close": lambda of: of.seq.close(),
    "close_lane": lambda of: of.lane.close(),
    "close_arena": lambda of: of.arena.close(),
    "close_weights": lambda of: of.weights.close(),
}


@contextlib.contextmanager
def standing_still(daemon: Daemon) -> Iterator[None]:
    """Whoever would keep this thread from going on is found out: another process wakes the
    daemon at last."""
    wake = f"sleep 20; kill -CONT {daemon.process.pid}"
    rescue = subprocess.Popen(["sh", "-c", wake], start_new_session=True)
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)
    try:
        yield
        assert rescue.poll() is None, "nothing ran while a call waited for the daemon"
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        os.killpg(rescue.pid, signal.SIGKILL)
        rescue.wait()


@contextlib.contextmanager
def blocking(daemon: Daemon) -> Iterator[Blocking]:
    with coppice.connect(daemon.socket) as connection, connection.lane() as lane:
        weights = coppice.open_weights(connection, CHECKPOINT)
        weights.wait()
        program = connection.program(weights, config())
        model = connection.model("one", n_layers=1, n_q_heads=2, n_kv_heads=1, head_dim=16)
        seq, text = lane.open(model, [1, 2]), lane.open(program, [3])
        arena = connection.arena(4096)
        yield Blocking(daemon, connection, lane, arena, model, weights, program, seq, text)


@pytest.mark.parametrize("call", BLOCKING)
def test_whatever_waits_for_the_daemon_lets_others_run(
    own_daemon: Daemon, leaves_nothing: None, call: str
) -> None:
    with blocking(own_daemon) as of:
        with standing_still(own_daemon):
            waiting = InThread(lambda: BLOCKING[call](of))
            time.sleep(0.05)  # it is in the call, or soon
            assert waiting.thread.is_alive()
        result = waiting.join()
        assert not isinstance(result, coppice.Error) or call == "unpin", result


def in_wait(seq: coppice.Sequence) -> InThread:
    """Another thread that waits, and has the lane."""
    waiting = InThread(lambda: seq.wait(0.4))
    while seq.lane.arm():
        assert waiting.thread.is_alive()
        time.sleep(0.001)
    return waiting


def test_a_sequence_closed_under_a_wait(
    connection: coppice.Connection, claimed: coppice.Sequence
) -> None:
    waiting = in_wait(claimed)
    claimed.close()
    assert isinstance(waiting.join(), coppice.TimedOut)
    await_seqs(connection, 1)


def test_a_connection_closed_under_a_wait(
    connection: coppice.Connection, claimed: coppice.Sequence
) -> None:
    waiting = in_wait(claimed)
    connection.close()
    with pytest.raises(coppice.Closed):
        connection.stats()
    assert isinstance(waiting.join(), coppice.TimedOut)


def test_a_lane_closed_under_a_wait(claimed: coppice.Sequence) -> None:
    waiting = in_wait(claimed)
    claimed.lane.close()
    assert isinstance(waiting.join(), coppice.TimedOut)
    with pytest.raises(coppice.Closed):
        claimed.state()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that begins the tests in its background has them ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_ends_a_wait(claimed: coppice.Sequence) -> None:
    threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        claimed.wait()
    assert time.monotonic() - begin < 5
    assert claimed.state().n_tokens == 0


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except coppice.Busy as error:
        return str(error)
    return ""


def test_a_handler_asks_the_lane_that_waits(claimed: coppice.Sequence) -> None:
    """It would wait for itself."""
    lane = claimed.lane
    said: list[str] = []
    looked: list[object] = []

    def ask(*_: object) -> None:
        said.extend(map(refused, (lane.nop, claimed.state, lane.close)))
        looked.append(lane.poll(1))

    before = signal.signal(signal.SIGALRM, ask)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(coppice.TimedOut):
            claimed.wait(0.4)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(said) == 3 and all("handler" in sentence for sentence in said)
    assert looked == [None]
    lane.wait(lane.nop())


def test_a_fork_while_another_thread_waits(claimed: coppice.Sequence) -> None:
    """Nobody gives the lane back in the child."""
    waiting = in_wait(claimed)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            claimed.lane.nop()
        except coppice.ForkedChild:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert isinstance(waiting.join(), coppice.TimedOut)


class LooksBack:
    """A stream, and a sequence of parts, whose code asks the lane that they are given to."""

    device_index = 0

    def __init__(self, lane: coppice.Lane) -> None:
        self.lane, self.n_asked = lane, 0

    def ask(self) -> int:
        self.lane.wait(self.lane.nop())
        self.n_asked += 1
        return 0

    cuda_stream = property(ask)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> coppice.Part:
        self.ask()
        raise IndexError


def test_arguments_that_ask_the_lane(lane: coppice.Lane) -> None:
    asks = LooksBack(lane)
    with pytest.raises(coppice.Error):
        lane.step(0, asks, stream=asks)  # type: ignore[arg-type]
    assert asks.n_asked >= 2


def chat(lane: coppice.Lane, model: coppice.Model, salt: int, out: dict[int, list[int]]) -> None:
    text = list(b"And the man said")
    with lane.open(model, text, salt=salt) as seq:
        todo, said = text[seq.wait().cached :], []
        for _ in range(10):
            [row] = seq.decode(todo).wait()
            todo = [row.ids[0]]
            said += todo
    out[salt] = said


@pytest.mark.parametrize("n_lanes", [1, 4])
def test_threads_share_lanes(
    connection: coppice.Connection, model: coppice.Model, n_lanes: int
) -> None:
    lanes = [connection.lane() for _ in range(n_lanes)]
    out: dict[int, list[int]] = {}
    work = [
        threading.Thread(target=chat, args=[lanes[i % n_lanes], model, 200 + i, out])
        for i in range(8)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(out) == 8 and len({tuple(said) for said in out.values()}) == 1
    await_seqs(connection, 0)


def test_weights_closed_under_a_wait(daemon: Daemon, leaves_nothing: None) -> None:
    for _ in range(20):
        with coppice.connect(daemon.socket) as connection:
            weights = coppice.open_weights(connection, CHECKPOINT)
            waiting = InThread(lambda: weights.wait(5.0))
            weights.close()
            assert isinstance(waiting.join(), (coppice.Progress, coppice.Closed))
