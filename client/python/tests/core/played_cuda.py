"""Steps on streams and in graphs where no GPU is, by the driver that is played in tests/e2e: a case
by its name. Run by test_played_cuda.py, with that driver in front of any other.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable

import coppice

N_LAYERS = 128  # so that eight captures of them all have all words of a lane
N_CAPTURES = 8
driver = ctypes.CDLL("libcuda.so.1")


def call(name: str, *given: object) -> None:
    assert getattr(driver, name)(*given) == 0, name


def stream_new() -> int:
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)
    call("cuStreamCreate", ctypes.byref(stream), 0)
    assert stream.value
    return stream.value


class Scene:
    """A sequence of one token more each time."""

    def __init__(self, connection: coppice.Connection) -> None:
        self.stream = stream_new()
        self.lane, arena = connection.lane(), connection.arena(1 << 16)
        self.model = connection.model(
            "played", n_layers=N_LAYERS, n_q_heads=1, n_kv_heads=1, head_dim=16
        )
        self.seq = self.lane.open(self.model, [1], salt=7)
        q, k, v, o = (arena.tensor((1, 1, 16), "float32") for _ in range(4))
        self.part = coppice.Part(self.seq, q, k, v, o)

    def capture(self) -> tuple[coppice.Capture, ctypes.c_void_p]:
        """Of all layers."""
        capture, graph = coppice.Capture(self.lane, self.stream), ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.stream), 0)
        try:
            for layer in range(N_LAYERS):
                capture.step(layer, self.part, self.stream)
                capture.wait(self.stream)
        finally:
            call("cuStreamEndCapture", ctypes.c_void_p(self.stream), ctypes.byref(graph))
        return capture, graph

    def launch(self, graph: ctypes.c_void_p) -> None:
        call("cuGraphLaunch", graph, ctypes.c_void_p(self.stream))

    def captures(self) -> list[coppice.Capture]:
        """As many as the lane has words for."""
        return [self.capture()[0] for _ in range(N_CAPTURES)]

    def is_full(self) -> bool:
        try:
            self.capture()[0].close()
        except coppice.Error as error:
            assert "the lane has no word left" in str(error), error
            return True
        return False

    def submit(self) -> tuple[int, ctypes.c_void_p, coppice.Capture]:
        """A launch that is still to come: the lane waits for it."""
        capture, graph = self.capture()
        self.seq.extend([2])
        return capture.submit(), graph, capture


def launched(scene: Scene) -> None:
    ticket, graph, capture = scene.submit()
    for _ in range(2):
        scene.launch(graph)
        scene.lane.wait(ticket, 10)
        scene.seq.extend([3])
        ticket = capture.submit()
    scene.launch(graph)
    scene.lane.wait(ticket, 10)
    assert scene.seq.state().n_tokens == 3


def dropped(scene: Scene) -> None:
    """What is dropped or closed gives its words back at once."""
    captures = scene.captures()
    assert scene.is_full()
    captures.pop()
    assert not scene.is_full()
    captures.pop().close()
    captures += [scene.capture()[0] for _ in range(2)]
    assert scene.is_full()


def dropped_while_a_thread_waits(scene: Scene) -> None:
    """Nobody waits for him; when he goes the words are there."""
    ticket, graph, _ = submitted = scene.submit()
    captures = [scene.capture()[0] for _ in range(N_CAPTURES - 1)]
    waiter = threading.Thread(target=scene.lane.wait, args=(ticket, 20))
    waiter.start()
    time.sleep(0.2)
    begun = time.monotonic()
    captures.pop()
    captures.pop().close()
    assert time.monotonic() - begun < 5 and waiter.is_alive()
    scene.launch(graph)
    waiter.join()
    captures += [scene.capture()[0] for _ in range(2)]
    assert scene.is_full() and submitted


def dropped_in_a_signals_handler(scene: Scene) -> None:
    """In the middle of a call of this very thread's."""
    ticket, graph, _ = submitted = scene.submit()
    captures = [scene.capture()[0] for _ in range(N_CAPTURES - 1)]

    def drop(*_: object) -> None:
        captures.pop()
        captures.pop().close()
        scene.launch(graph)

    signal.signal(signal.SIGALRM, drop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    scene.lane.wait(ticket, 20)
    assert len(captures) == N_CAPTURES - 3
    captures += [scene.capture()[0] for _ in range(2)]
    assert scene.is_full() and submitted


def cuts_no_numbers(scene: Scene) -> None:
    """A layer of 32 bits, a stream of 64: others would be the first layer, and no stream."""
    capture = coppice.Capture(scene.lane, scene.stream)
    uses: list[tuple[int, Callable[[int], object]]] = [
        (2**32, lambda number: capture.step(number, scene.part, scene.stream)),
        (2**64, lambda number: capture.step(0, scene.part, number)),
        (2**64, capture.wait),
        (2**64, lambda number: coppice.Capture(scene.lane, number)),
    ]
    for n, use in uses:
        for number in (n, -n, -1):
            try:
                use(number)
                raise AssertionError(f"{number} was taken")
            except coppice.Invalid as error:
                assert str(error) == f"{number} is given where 0 to {n - 1} are taken"


def outlives_its_lane(scene: Scene) -> None:
    """And its connection: then it is closed."""
    (first, graph), (second, _) = scene.capture(), scene.capture()
    scene.lane.close()
    for use in (first.submit, first.close, lambda: first.wait(scene.stream)):
        try:
            use()
        except coppice.Closed:
            pass
    scene.model.connection.close()
    second.close()
    del first, second


CASES: list[Callable[[Scene], None]] = [
    launched,
    dropped,
    dropped_while_a_thread_waits,
    dropped_in_a_signals_handler,
    cuts_no_numbers,
    outlives_its_lane,
]

if __name__ == "__main__":
    [case] = [case for case in CASES if case.__name__ == sys.argv[1]]
    with coppice.connect() as connection:
        scene = Scene(connection)
        try:
            case(scene)
        finally:
            call("cuStreamSynchronize", ctypes.c_void_p(scene.stream))
