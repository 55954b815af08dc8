"""Integers that do not fit are refused, by what they are: none is cut to the words of C."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import CHECKPOINT
from test_refusals import StreamOfGpu, on_gpu
from test_steps import Layer

import coppice

SHAPE = {"n_layers": 2, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 16}
CONFIG = str(CHECKPOINT / "config.json")
Call = Callable[[int], object]


class Scene:
    """What calls are on."""

    def __init__(self, connection: coppice.Connection, small: coppice.Model) -> None:
        self.connection, self.small = connection, small
        self.lane = connection.lane()
        self.seq = self.lane.open(small, [1, 2, 3], salt=200)
        self.part = Layer(connection.arena(1 << 20), 2).part(self.seq)
        self.weights = coppice.open_weights(connection, CHECKPOINT)
        self.weights.wait()

    def model(self, **numbers: int) -> coppice.Model:
        return self.connection.model("numbers", **{**SHAPE, **numbers})  # type: ignore[arg-type]

    def program(self, **numbers: int) -> coppice.Model:
        return self.connection.program(self.weights, CONFIG, **numbers)  # type: ignore[arg-type]

    def sparse(self, **numbers: int) -> int:
        return self.seq.sparse(**numbers)


@pytest.fixture
def scene(connection: coppice.Connection, small: coppice.Model) -> Scene:
    return Scene(connection, small)


OF_32_BITS: dict[str, Callable[[Scene, int], object]] = {
    "model(n_layers)": lambda s, n: s.model(n_layers=n),
    "model(n_q_heads)": lambda s, n: s.model(n_q_heads=n),
    "model(n_kv_heads)": lambda s, n: s.model(n_kv_heads=n),
    "model(head_dim)": lambda s, n: s.model(head_dim=n),
    "model(page_tokens)": lambda s, n: s.model(page_tokens=n),
    "model(first_kv_head)": lambda s, n: s.model(first_kv_head=n),
    "model(own_kv_heads)": lambda s, n: s.model(own_kv_heads=n),
    "program(max_positions)": lambda s, n: s.program(max_positions=n),
    "program(page_tokens)": lambda s, n: s.program(page_tokens=n),
    "weights.tensor": lambda s, n: s.weights.tensor(n),
    "sparse(stride)": lambda s, n: s.sparse(stride=n),
    "sparse(block_tokens)": lambda s, n: s.sparse(block_tokens=n),
    "sparse(sink_blocks)": lambda s, n: s.sparse(sink_blocks=n),
    "sparse(recent_blocks)": lambda s, n: s.sparse(recent_blocks=n),
    "trim": lambda s, n: s.seq.trim(n),
    "step(layer)": lambda s, n: s.lane.step(n, s.part),
}
OF_64_BITS: dict[str, Callable[[Scene, int], object]] = {
    "model(weights_hash)": lambda s, n: s.model(weights_hash=n),
    "open(salt)": lambda s, n: s.lane.open(s.small, [1], salt=n),
    "open_many(salt)": lambda s, n: s.lane.open_many([(s.small, [1], n)]),
    "wait": lambda s, n: s.lane.wait(n),
    "poll": lambda s, n: s.lane.poll(n),
    "explain": lambda s, n: s.lane.explain(n),
    "wait_on_stream(ticket)": lambda s, n: s.lane.wait_on_stream(n, 1),
    "wait_on_stream(stream)": lambda s, n: s.lane.wait_on_stream(1, n),
    "step(stream)": lambda s, n: s.lane.step(0, s.part, stream=n),
    "unpin": lambda s, n: s.connection.unpin(n),
}
ALL = {**OF_32_BITS, **OF_64_BITS}
STREAMS = {"wait_on_stream(stream)", "step(stream)"}  # what is no int is asked for its handle


def check_refused(call: Call, most: int) -> None:
    """Numbers that were cut would be small ones, which most calls take."""
    for number in (most + 1, most + 2, most + 3, most + 17, 2**70 + 1, -1, -most, -(2**70)):
        with pytest.raises(coppice.Invalid, match=rf"^{number} is given where 0 to {most} are"):
            call(number)


@pytest.mark.parametrize("name", OF_32_BITS)
def test_numbers_beyond_32_bits(scene: Scene, name: str) -> None:
    check_refused(lambda number: OF_32_BITS[name](scene, number), 2**32 - 1)


@pytest.mark.parametrize("name", OF_64_BITS)
def test_numbers_beyond_64_bits(scene: Scene, name: str) -> None:
    check_refused(lambda number: OF_64_BITS[name](scene, number), 2**64 - 1)


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_integer(scene: Scene, name: str) -> None:
    for other in (True, False, 1.0, "1"):
        with pytest.raises(TypeError):
            ALL[name](scene, other)  # type: ignore[arg-type]


def test_a_number_of_as_many_bits_as_there_are(scene: Scene) -> None:
    most = 2**64 - 1
    scene.model(weights_hash=most)
    twins = [scene.lane.open(scene.small, [1], salt=salt) for salt in (most, most - 1)]
    twins += scene.lane.open_many([(scene.small, [1], most - 2)])
    assert [twin.cached for twin in twins] == [0, 0, 0]
    with pytest.raises(coppice.Invalid, match="not submitted"):
        scene.lane.poll(most)
    with pytest.raises(coppice.Invalid, match="layer"):
        scene.lane.wait(scene.lane.step(2**32 - 1, scene.part))


class Number:
    """An integer as numpy has them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        if self.number == 13:
            raise LookupError("thirteen")
        return self.number


def test_integers_of_other_types(scene: Scene) -> None:
    def given(number: int) -> int:
        return Number(number)  # type: ignore[return-value]

    assert scene.model(n_layers=given(3)).n_layers == 3
    assert scene.program(max_positions=given(77)).max_positions == 77
    scene.seq.extend([1, 2])
    scene.lane.wait(given(scene.lane.nop()))
    scene.lane.wait(scene.lane.step(given(0), scene.part))
    for name in ALL.keys() - STREAMS:
        with pytest.raises(LookupError, match="thirteen"):
            ALL[name](scene, given(13))
        with pytest.raises(coppice.Invalid, match="are taken"):
            ALL[name](scene, given(2**64))


def test_a_number_too_long_to_be_said(scene: Scene) -> None:
    """Python says no more than 4,300 digits."""
    for call in ALL.values():
        with pytest.raises(ValueError):
            call(scene, 10**5000)


class StreamOfNoGpu(StreamOfGpu):
    device_index = 2**32 + 1


def test_a_stream_of_no_device(scene: Scene) -> None:
    part = on_gpu(scene.seq, Layer(scene.connection.arena(1 << 20), 2), 1, 1, 1, 1)
    with pytest.raises(coppice.Invalid, match=f"device_index is {2**32 + 1}"):
        scene.lane.step(0, part, stream=StreamOfNoGpu())


def test_load_model_cuts_nothing(connection: coppice.Connection) -> None:
    with pytest.raises(coppice.Invalid, match=f"{2**32 + 7} is given"):
        coppice.load_model(connection, CHECKPOINT, max_positions=2**32 + 7)


def test_a_dimension_of_too_many(scene: Scene) -> None:
    with pytest.raises(coppice.Invalid, match=f"dimension 0 is {2**31}: 1 to {2**31 - 1}"):
        scene.connection.arena(4096).tensor(2**31)
