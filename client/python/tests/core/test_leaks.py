"""Whatever goes wrong, done again and again: sequences, pages and descriptors, of both sides.

A page of the deep model's has 256 KiB, the pool's extents 2 MiB: of so many pages that were left
behind some extents more would be in use. Tokens are the same each time, so what is cached does not
grow.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import CHECKPOINT, Daemon, await_seqs, n_arena_maps, n_descriptors
from test_refusals import OnGpu, StreamOfGpu, config_with, connect_to_another_version, on_gpu
from test_steps import DIM, N_HEADS, N_KV, Layer

import coppice

N_LAYERS = 64
N_TIMES = 40
N_TIMES_PROGRAM = 60  # its pages have 80 KiB
N_BEFORE = 10  # what is in use for a moment has come near its most
N_PEAKS = 3  # extents that are lent stay so: one more for such a moment is none that is left behind


class Given(NamedTuple):
    socket: str
    connection: coppice.Connection
    lane: coppice.Lane
    deep: coppice.Model
    program: coppice.Model
    weights: coppice.Weights
    arena: coppice.Arena
    layer: Layer


class Counts(NamedTuple):
    n_seqs: int
    n_arenas: int
    n_lanes: int
    pool_used_bytes: int
    n_descriptors: int
    n_maps: int
    n_of_daemon: int


def counts(connection: coppice.Connection, daemon: Daemon) -> Counts:
    """The daemon answers before it has closed its own ends: it may be about to close some more."""
    gc.collect()
    await_seqs(connection, 0)
    stats = connection.stats()
    return Counts(
        stats.n_seqs,
        stats.n_arenas,
        stats.n_lanes,
        stats.pool_used_bytes,
        n_descriptors(),
        n_arena_maps(),
        len(os.listdir(f"/proc/{daemon.process.pid}/fd")),
    )


def await_at_most(most: Counts, count: Callable[[], Counts]) -> Counts:
    """What is counted then, or after some seconds."""
    deadline = time.monotonic() + 5
    now = count()
    while any(a > b for a, b in zip(now, most)) and time.monotonic() < deadline:
        time.sleep(0.01)
        now = count()
    return now


def deep_of(connection: coppice.Connection) -> coppice.Model:
    return connection.model(
        "deep", n_layers=N_LAYERS, n_q_heads=N_HEADS, n_kv_heads=N_KV, head_dim=DIM
    )


@contextlib.contextmanager
def opened(given: Given, n: int = 16) -> Iterator[coppice.Sequence]:
    """Its tokens have pages, and no KV."""
    with given.lane.open(given.deep, range(n), salt=900) as seq:
        seq.extend(range(n))
        yield seq


def no_daemon(given: Given) -> None:
    coppice.connect(given.socket + "x", timeout=0)


def a_daemon_of_another_version(given: Given) -> None:
    connect_to_another_version(given.socket + "y")


def an_arena_that_is_gone(given: Given) -> None:
    with opened(given, 2) as seq, given.connection.arena(1 << 16) as arena:
        part = Layer(arena, 2).part(seq)
        arena.close()
        given.lane.wait(given.lane.step(0, part))


def an_array_of_another_shape(given: Given) -> None:
    with opened(given, 2) as seq:
        layer = given.layer
        coppice.Part(seq, layer.k, layer.k, layer.v, layer.o)


def an_array_of_another_type(given: Given) -> None:
    with opened(given, 2) as seq, given.connection.arena(1 << 16) as arena:
        half = arena.tensor((2, N_HEADS, DIM), "bfloat16")
        coppice.Part(seq, half, given.layer.k, given.layer.v, given.layer.o)


def arrays_of_other_devices(given: Given) -> None:
    with opened(given, 2) as seq:
        on_gpu(seq, given.layer, 0, 1, 0, 0)


def an_array_of_a_stride(given: Given) -> None:
    numpy = pytest.importorskip("numpy")
    with opened(given, 2) as seq:
        layer = given.layer
        coppice.Part(seq, numpy.asarray(layer.q)[::-1], layer.k, layer.v, layer.o)


def an_array_of_a_device_that_is_not_known(given: Given) -> None:
    with opened(given, 2) as seq:
        layer = given.layer
        other = OnGpu(layer.q, 8, 0)
        coppice.Part(seq, other, layer.k, layer.v, layer.o)  # type: ignore[arg-type]


def a_stream_of_another_device(given: Given) -> None:
    with opened(given, 2) as seq:
        given.lane.step(0, on_gpu(seq, given.layer, 0, 0, 0, 0), stream=StreamOfGpu())


def a_closed_sequence(given: Given) -> None:
    with given.lane.open(given.deep, [1, 2], salt=906) as seq:
        seq.fork().close()
    seq.extend([1])


def a_sequence_closed_in_a_step(given: Given) -> None:
    """In the middle of its layers: its pages go back."""
    with opened(given, 2) as seq:
        ticket = given.lane.step(0, given.layer.part(seq))
    given.lane.wait(ticket)  # Canceled, where it was in flight still
    seq.state()


def a_draft_that_is_left(given: Given) -> None:
    with opened(given, 2) as seq:
        for number in range(N_LAYERS):
            given.lane.wait(given.lane.step(number, given.layer.part(seq)))
        seq.draft(range(40, 60))
    seq.accept([0])


def a_lane_closed_with_its_sequences(given: Given) -> None:
    with given.connection.lane() as lane:
        seq = lane.open(given.deep, range(16), salt=901)
        seq.extend(range(16))
    seq.state()


def a_connection_closed_with_all_it_had(given: Given) -> None:
    with coppice.connect(given.socket) as connection:
        lane, arena = connection.lane(), connection.arena(1 << 16)
        seq = lane.open(deep_of(connection), range(16), salt=902)
        seq.extend(range(16))
        Layer(arena, 2).part(seq)
    seq.state()


def a_prompt_that_is_too_long(given: Given) -> None:
    with given.lane.open(given.program, [1] * 100, salt=903) as seq:
        seq.decode([1] * 100).wait()


def a_token_that_is_none(given: Given) -> None:
    with given.lane.open(given.program, [1, 2], salt=904) as seq:
        seq.decode([1, 2, 300]).wait()


def a_model_that_is_not_supported(given: Given) -> None:
    given.connection.program(given.weights, config_with(hidden_act="tanh"))


def a_decode_that_nobody_waits_for(given: Given) -> None:
    with given.lane.open(given.program, [1, 2, 3], salt=905) as seq:
        seq.decode([1, 2, 3])
    seq.state()


def decodes_that_are_waited_for(given: Given) -> None:
    """What one that nobody waits for leaves cached where it is not canceled in time, behind nothing
    and behind what is cached."""
    for _ in range(2):
        with given.lane.open(given.program, [1, 2, 3], salt=905) as seq:
            seq.decode([1, 2, 3]).wait()


CASES: list[tuple[Callable[[Given], None], Any, int]] = [
    (no_daemon, coppice.NoDaemon, N_TIMES),
    (a_daemon_of_another_version, coppice.VersionMismatch, N_TIMES),
    (an_arena_that_is_gone, coppice.Invalid, N_TIMES),
    (an_array_of_another_shape, coppice.Invalid, N_TIMES),
    (an_array_of_another_type, coppice.Invalid, N_TIMES),
    (an_array_of_a_stride, coppice.Invalid, N_TIMES),
    (an_array_of_a_device_that_is_not_known, coppice.Invalid, N_TIMES),
    (arrays_of_other_devices, coppice.Invalid, N_TIMES),
    (a_stream_of_another_device, coppice.Invalid, N_TIMES),
    (a_closed_sequence, coppice.Closed, N_TIMES),
    (a_sequence_closed_in_a_step, (coppice.Closed, coppice.Canceled), N_TIMES),
    (a_draft_that_is_left, coppice.Closed, N_TIMES),
    (a_lane_closed_with_its_sequences, coppice.Closed, N_TIMES),
    (a_connection_closed_with_all_it_had, coppice.Closed, N_TIMES),
    (a_prompt_that_is_too_long, coppice.TooLong, N_TIMES_PROGRAM),
    (a_token_that_is_none, coppice.Error, N_TIMES_PROGRAM),
    (a_model_that_is_not_supported, coppice.Unsupported, N_TIMES),
    (a_decode_that_nobody_waits_for, coppice.Closed, N_TIMES_PROGRAM),
]


@pytest.fixture
def given(daemon: Daemon, connection: coppice.Connection) -> Given:
    weights = coppice.open_weights(connection, CHECKPOINT)
    weights.wait()
    program = connection.program(weights, str(Path(CHECKPOINT) / "config.json"), max_positions=64)
    arena = connection.arena(1 << 16)
    layer = Layer(arena, 2)
    lane, deep = connection.lane(), deep_of(connection)
    return Given(daemon.socket, connection, lane, deep, program, weights, arena, layer)


@pytest.mark.parametrize(("act", "error", "n"), CASES, ids=[case[0].__name__ for case in CASES])
def test_nothing_is_left(
    given: Given, daemon: Daemon, act: Callable[[Given], None], error: Any, n: int
) -> None:
    def again(n: int) -> None:
        for _ in range(n):
            with pytest.raises(error):
                act(given)

    decodes_that_are_waited_for(given)
    again(N_BEFORE)
    now = counts(given.connection, daemon)
    for _ in range(N_PEAKS):
        before = now
        again(n)
        now = await_at_most(before, lambda: counts(given.connection, daemon))
        used = now.pool_used_bytes - before.pool_used_bytes
        assert all(a <= b for a, b in zip(now._replace(pool_used_bytes=0), before)), (now, before)
        if used <= 0:
            return
    raise AssertionError(f"{used} bytes of the pool more each {n} times: {now}, {before}")
