"""Layers that the caller computes: rows in arenas, against attention by plain Python."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence as Items

import pytest

import coppice

N_HEADS, N_KV, DIM = 4, 2, 16
Rows = list[list[list[float]]]


def draw(n: int, n_heads: int, seed: int) -> Rows:
    rng = random.Random(seed)
    return [[[rng.uniform(-1, 1) for _ in range(DIM)] for _ in range(n_heads)] for _ in range(n)]


def packed(rows: Rows) -> bytes:
    flat = [x for row in rows for head in row for x in head]
    return struct.pack(f"<{len(flat)}f", *flat)


def attention(q: Items[float], keys: list[list[float]], values: list[list[float]]) -> list[float]:
    scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(DIM) for k in keys]
    weights = [math.exp(s) for s in scores]
    whole = sum(weights)
    return [sum(w * v[i] for w, v in zip(weights, values)) / whole for i in range(DIM)]


class Layer:
    """Tensors of n rows in an arena, with q, k and v drawn."""

    def __init__(self, arena: coppice.Arena, n: int, seed: int = 1) -> None:
        self.n = n
        self.rows = draw(n, N_HEADS, seed), draw(n, N_KV, seed + 1), draw(n, N_KV, seed + 2)
        self.q, self.o = (arena.tensor((n, N_HEADS, DIM)) for _ in range(2))
        self.k, self.v = (arena.tensor((n, N_KV, DIM)) for _ in range(2))
        self.lse = arena.tensor((n, N_HEADS))
        for tensor, rows in zip((self.q, self.k, self.v), self.rows):
            tensor.write(packed(rows))

    def part(self, seq: coppice.Sequence) -> coppice.Part:
        return coppice.Part(seq, self.q, self.k, self.v, self.o, self.lse)

    def expected(self, row: int, head: int, seen: Items[int]) -> list[float]:
        q, k, v = self.rows
        of = head * N_KV // N_HEADS
        keys, values = [k[i][of] for i in seen], [v[i][of] for i in seen]
        return attention(q[row][head], keys, values)

    def check(self, row: int, seen: Items[int]) -> None:
        out = self.o.tolist()
        for head in range(N_HEADS):
            at = (row * N_HEADS + head) * DIM
            assert out[at : at + DIM] == pytest.approx(self.expected(row, head, seen), abs=1e-5)


@pytest.fixture
def arena(connection: coppice.Connection) -> coppice.Arena:
    return connection.arena(1 << 20)


def test_layers_attend_to_what_was_given(
    lane: coppice.Lane, small: coppice.Model, arena: coppice.Arena
) -> None:
    ids = [11, 12, 13, 14, 15]
    layer = Layer(arena, 5)
    with lane.open(small, ids) as seq:
        seq.extend(ids)
        part = layer.part(seq)
        assert part.n_new == 5 and part.seq is seq
        for number in range(2):
            lane.wait(lane.step(number, part))
        for row in range(5):
            layer.check(row, range(row + 1))
        assert seq.state() == (5, 0)
    assert lane.open(small, ids).cached == 4


def test_a_draft_is_a_tree_and_a_path_of_it_stays(
    lane: coppice.Lane, small: coppice.Model, arena: coppice.Arena
) -> None:
    layer = Layer(arena, 4, seed=5)
    with lane.open(small, [1, 2], salt=1) as seq:
        base = Layer(arena, 2, seed=9)
        seq.extend([1, 2])
        for number in range(2):
            lane.wait(lane.step(number, base.part(seq)))
        seq.draft([7, 8, 9, 10], [-1, 0, 0, 1])
        for number in range(2):
            lane.wait(lane.step(number, [layer.part(seq)]))
        lane.wait(seq.accept([0, 2]))
        assert seq.state() == (4, 0)
        seq.draft([5])
        lane.wait(seq.accept([]))
        assert seq.state() == (4, 0)


def test_a_batch_is_a_list_of_parts(
    lane: coppice.Lane, small: coppice.Model, arena: coppice.Arena
) -> None:
    layers = [Layer(arena, 3, seed=20 + i) for i in range(20)]
    seqs = lane.open_many([(small, [50 + i, 60, 70]) for i in range(20)])
    for seq, i in zip(seqs, range(20)):
        seq.extend([50 + i, 60, 70])
    parts = [layer.part(seq) for layer, seq in zip(layers, seqs)]
    lane.wait(lane.step(0, parts))
    for layer in layers:
        layer.check(2, range(3))


def test_a_step_may_append_alone(
    lane: coppice.Lane, small: coppice.Model, arena: coppice.Arena
) -> None:
    layer = Layer(arena, 2)
    with lane.open(small, [1, 2, 3], salt=2) as seq:
        seq.extend([1, 2])
        part = coppice.Part(seq, None, layer.k, layer.v)
        for number in range(2):
            lane.wait(lane.step(number, part))
        assert seq.state() == (2, 0)


def test_tickets_end_in_order_and_tell_how(lane: coppice.Lane) -> None:
    first, second = lane.nop(), lane.nop()
    lane.wait(second, 5.0)
    result = lane.poll(first)
    assert result is not None and (result.ticket, result.status) == (first, 0)
    assert "has not failed" in lane.explain(first)


def test_rows_may_have_a_stride(
    lane: coppice.Lane, small: coppice.Model, arena: coppice.Arena
) -> None:
    numpy = pytest.importorskip("numpy")
    layer = Layer(arena, 3, seed=3)
    wide = numpy.asarray(arena.tensor((3, N_HEADS + 2 * N_KV, DIM)))
    q, k, v = wide[:, :N_HEADS], wide[:, N_HEADS : N_HEADS + N_KV], wide[:, N_HEADS + N_KV :]
    for view, tensor in zip((q, k, v), (layer.q, layer.k, layer.v)):
        view[:] = numpy.asarray(tensor)
    with lane.open(small, [4, 5, 6], salt=3) as seq:
        seq.extend([4, 5, 6])
        lane.wait(lane.step(0, coppice.Part(seq, q, k, v, layer.o)))
        layer.check(2, range(3))
