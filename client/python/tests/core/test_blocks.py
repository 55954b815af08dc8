"""Calls by the hundred leave as many of Python's blocks as there were: no reference is lost."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest
from test_steps import Layer

import coppice

N_ROUNDS, N_SPARE = 50, 40


def n_blocks() -> int:
    """Without garbage, and the names that Python's cache of attributes keeps: one more for each
    place in memory that a name has had."""
    gc.collect()
    sys._clear_type_cache()
    return sys.getallocatedblocks()


def n_grown(call: Callable[[], object]) -> int:
    before = n_blocks()
    for _ in range(N_ROUNDS):
        call()
    return n_blocks() - before


def keeps_none(call: Callable[[], object]) -> bool:
    """Fewer blocks than calls are kept, at least the third time, as caches fill."""
    return any(n_grown(call) < N_SPARE for _ in range(3))


def refused(call: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        with pytest.raises((coppice.Error, TypeError)):
            call()

    return run


def test_tokens(lane: coppice.Lane, model: coppice.Model) -> None:
    seq = lane.open(model, [1, 2])

    def decode() -> None:
        seq.decode([1, 2], 2, top=3, logits=True, hidden=True, score=True).wait()
        seq.decode([3])
        lane.wait(seq.trim(0))

    assert keeps_none(decode)
    assert keeps_none(lambda: lane.open(model, range(20)).close())
    assert keeps_none(lambda: lane.open_many([(model, [1]), (model, (2, 3), 5)]))
    assert keeps_none(lambda: (seq.state(), seq.match, seq.fork(), lane.poll(lane.nop())))


def test_steps_and_arrays(
    connection: coppice.Connection, lane: coppice.Lane, small: coppice.Model
) -> None:
    arena = connection.arena(1 << 20)
    layer, seq = Layer(arena, 1), lane.open(small, [1])

    def step() -> None:
        seq.extend([1])
        lane.wait(lane.step(0, [layer.part(seq)]))
        lane.wait(lane.step(1, layer.part(seq)))
        lane.wait(seq.trim(0))

    assert keeps_none(step)
    assert keeps_none(lambda: layer.q.__dlpack__(max_version=(1, 0)))
    assert keeps_none(lambda: (layer.q.__dlpack__(), layer.q.__array_interface__))
    assert keeps_none(lambda: connection.arena(4096).tensor((2, 2)).tolist())
    assert keeps_none(lambda: coppice.Part(seq, FromDlpack(layer.q), *others(layer)))


class FromDlpack:
    def __init__(self, tensor: coppice.Tensor) -> None:
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


def others(layer: Layer) -> tuple[coppice.Tensor, coppice.Tensor, coppice.Tensor]:
    return layer.k, layer.v, layer.o


def test_refusals(connection: coppice.Connection, lane: coppice.Lane, small: coppice.Model) -> None:
    layer, seq = Layer(connection.arena(1 << 20), 1), lane.open(small, [1])
    calls: list[Callable[[], object]] = [
        lambda: lane.open(small, [-1]),
        lambda: lane.open_many([(small, [1]), (small, ["a"])]),  # type: ignore[list-item]
        lambda: coppice.Part(seq, layer.k, *others(layer)),
        lambda: seq.decode([1]),
        lambda: lane.decode([(seq, [1]), (seq, [2], 5)]),
        lambda: lane.step(0, [layer.part(seq), None]),  # type: ignore[list-item]
        lambda: lane.wait(lane.step(9, layer.part(seq))),
        lambda: lane.wait(1 << 40),
        lambda: seq.draft([1, 2], [0]),
        lambda: lane.wait(seq.accept([0])),
        lambda: coppice.connect("/no/such/socket"),
        lambda: connection.model("odd", n_layers=1, n_q_heads=3, n_kv_heads=2, head_dim=64),
        lambda: connection.arena(1 << 20).tensor((1 << 20, 9)),
        lambda: connection.unpin(99),
    ]
    for call in calls:
        assert keeps_none(refused(call))
