"""What is wrong is an exception that says what to do; and nothing is left behind."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import CHECKPOINT, Daemon, await_seqs
from test_steps import DIM, N_HEADS, N_KV, Layer

import coppice
from coppice._coppice import extremes


@pytest.fixture
def seq(lane: coppice.Lane, small: coppice.Model) -> coppice.Sequence:
    return lane.open(small, [1, 2, 3], salt=100)


@pytest.fixture
def arena(connection: coppice.Connection) -> coppice.Arena:
    return connection.arena(1 << 20)


# ---- daemons ---------------------------------------------------------------------------------


def test_no_daemon(tmp_path: Path, leaves_nothing: None) -> None:
    with pytest.raises(coppice.NoDaemon, match="start coppiced"):
        coppice.connect(str(tmp_path / "sock"))
    (tmp_path / "file").touch()
    with pytest.raises(coppice.NoDaemon):
        coppice.connect(str(tmp_path / "file"))


def test_exceptions_are_called_as_they_are_imported() -> None:
    kinds = [kind for kind in vars(coppice).values() if isinstance(kind, type)]
    errors = [kind for kind in kinds if issubclass(kind, coppice.Error)]
    assert len(errors) > 10 and {kind.__module__ for kind in errors} == {"coppice"}
    again = pickle.loads(pickle.dumps(coppice.NoRoom(28, "no room")))
    assert type(again) is coppice.NoRoom and (again.errno, str(again)) == (28, "no room")


def refuse(server: socket.socket) -> None:
    """What a daemon of another version answers: -EPROTO to the hello of id 1 to 127."""
    peer, _ = server.accept()
    with peer:
        hello = peer.recv(65536)
        why = b"the client speaks version 6, the daemon 99: install the same of both"
        peer.send(hello[:2] + b"\x10\x8d\x01\x1a" + bytes([len(why)]) + why)


def connect_to_another_version(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()
        other = threading.Thread(target=refuse, args=[server])
        other.start()
        try:
            coppice.connect(path)
        finally:
            other.join()
            os.unlink(path)


def test_a_daemon_of_another_version(tmp_path: Path, leaves_nothing: None) -> None:
    with pytest.raises(coppice.VersionMismatch, match="install the same"):
        connect_to_another_version(str(tmp_path / "sock"))


def test_nobody_answers_in_time(tmp_path: Path, leaves_nothing: None) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        with pytest.raises(coppice.TimedOut) as caught:
            coppice.connect(str(tmp_path / "sock"), 0.05)
        assert isinstance(caught.value, TimeoutError)


def test_the_daemon_dies(own_daemon: Daemon, leaves_nothing: None) -> None:
    connection = coppice.connect(own_daemon.socket)
    model = coppice.load_model(connection, CHECKPOINT)
    lane = connection.lane()
    seq = lane.open(model, [1, 2, 3])
    decode = seq.decode([1, 2, 3] * 1000)
    own_daemon.kill()
    with pytest.raises(coppice.DaemonGone):
        decode.wait(10.0)
    for call in (seq.state, connection.stats, lane.nop, lambda: lane.open(model, [1])):
        with pytest.raises(coppice.DaemonGone):
            call()
    connection.close()


def test_a_forked_child_is_told(connection: coppice.Connection) -> None:
    child = os.fork()
    if child == 0:
        try:
            connection.stats()
        except coppice.ForkedChild:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# ---- what was closed -------------------------------------------------------------------------


def test_a_closed_sequence(lane: coppice.Lane, small: coppice.Model) -> None:
    with lane.open(small, [1, 2]) as seq:
        pass
    calls = (seq.state, seq.fork, seq.wait, lambda: seq.extend([1]), lambda: seq.pin(1.0))
    for call in (*calls, lambda: seq.trim(0), lambda: seq.accept([]), lambda: seq.draft([1])):
        with pytest.raises(coppice.Closed, match="sequence"):
            call()
    assert seq.closed
    seq.close()


def test_a_closed_lane(connection: coppice.Connection, small: coppice.Model) -> None:
    with connection.lane() as lane:
        seq = lane.open(small, [1, 2])
    for call in (lane.nop, seq.state, seq.wait, lane.fileno, lane.arm, lambda: lane.wait(1)):
        with pytest.raises(coppice.Closed, match="lane"):
            call()
    assert seq.closed and lane.closed
    await_seqs(connection, 0)


def test_a_closed_connection(daemon: Daemon, leaves_nothing: None) -> None:
    with coppice.connect(daemon.socket) as connection:
        weights = coppice.open_weights(connection, CHECKPOINT)
        weights.wait()
        model = connection.program(weights, str(CHECKPOINT / "config.json"))
        lane, arena = connection.lane(), connection.arena(4096)
        seq = lane.open(model, [1, 2])
    for call in (connection.stats, weights.wait, lane.nop, seq.state, lambda: arena.tensor(1)):
        with pytest.raises(coppice.Closed):
            call()
    assert connection.closed and seq.closed and arena.closed
    seq.close()
    connection.close()


def test_an_arena_that_is_gone(
    lane: coppice.Lane, seq: coppice.Sequence, arena: coppice.Arena
) -> None:
    layer = Layer(arena, 2)
    part = layer.part(seq)
    seq.extend([1, 2])
    arena.close()
    with pytest.raises(coppice.Invalid, match="arena"):
        lane.wait(lane.step(0, part))
    with pytest.raises(coppice.Closed, match="arena"):
        arena.tensor(4)
    lane.wait(seq.trim(seq.state().n_tokens))


# ---- arrays ----------------------------------------------------------------------------------


def test_arrays_of_a_wrong_shape(seq: coppice.Sequence, arena: coppice.Arena) -> None:
    layer = Layer(arena, 2)
    for shape in ((2, N_HEADS), (2, N_HEADS + 1, DIM), (2, N_HEADS, DIM * 2)):
        with pytest.raises(coppice.Invalid, match=r"q has .* wanted: \[n_new, 4, 16\]"):
            coppice.Part(seq, arena.tensor(shape), layer.k, layer.v, layer.o)
    with pytest.raises(coppice.Invalid, match="k has 3 rows"):
        coppice.Part(seq, layer.q, arena.tensor((3, N_KV, DIM)), layer.v, layer.o)
    with pytest.raises(coppice.Invalid, match=r"lse .* \[n_new, 4\]"):
        coppice.Part(seq, layer.q, layer.k, layer.v, layer.o, layer.o)
    with pytest.raises(coppice.Invalid, match="q and o"):
        coppice.Part(seq, layer.q, layer.k, layer.v)


def test_arrays_of_a_wrong_type(seq: coppice.Sequence, arena: coppice.Arena) -> None:
    layer = Layer(arena, 2)
    half = arena.tensor((2, N_HEADS, DIM), "bfloat16")
    with pytest.raises(coppice.Invalid, match="q is of bfloat16, the model has float32"):
        coppice.Part(seq, half, layer.k, layer.v, layer.o)
    with pytest.raises(TypeError, match="q is no array"):
        coppice.Part(seq, [1.0], layer.k, layer.v, layer.o)  # type: ignore[arg-type]


def test_arrays_of_a_wrong_stride(seq: coppice.Sequence, arena: coppice.Arena) -> None:
    numpy = pytest.importorskip("numpy")
    layer = Layer(arena, 2)
    wide = numpy.asarray(arena.tensor((2, N_HEADS, 2 * DIM)))
    turned = numpy.asarray(arena.tensor((N_HEADS, 2, DIM))).swapaxes(0, 1)
    for q in (wide[:, :, ::2], turned, numpy.asarray(layer.q)[::-1]):
        with pytest.raises(coppice.Invalid, match="q has strides"):
            coppice.Part(seq, q, layer.k, layer.v, layer.o)


class OnGpu:
    """An array as torch hands it over, but on a GPU that this test does not need."""

    def __init__(self, array: coppice.Tensor, kind: int, number: int) -> None:
        self.array, self.device = array, (kind, number)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: object = None) -> object:
        import ctypes

        capsule = self.array.__dlpack__()
        point = ctypes.pythonapi.PyCapsule_GetPointer
        point.restype, point.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        at = point(capsule, b"dltensor")
        assert at is not None
        ctypes.c_int32.from_address(at + 8).value = self.device[0]
        ctypes.c_int32.from_address(at + 12).value = self.device[1]
        return capsule


def on_gpu(seq: coppice.Sequence, layer: Layer, *numbers: int, kind: int = 2) -> coppice.Part:
    tensors = (layer.q, layer.k, layer.v, layer.o)
    arrays = [OnGpu(t, kind, number) for t, number in zip(tensors, numbers)]
    return coppice.Part(seq, *arrays)  # type: ignore[arg-type]


def test_arrays_of_a_wrong_device(
    lane: coppice.Lane, seq: coppice.Sequence, arena: coppice.Arena
) -> None:
    layer = Layer(arena, 2)
    with pytest.raises(coppice.Invalid, match="k is on GPU 1, arrays before it on GPU 0"):
        on_gpu(seq, layer, 0, 1, 0, 0)
    with pytest.raises(coppice.Invalid, match="device of kind 8"):
        on_gpu(seq, layer, 0, 0, 0, 0, kind=8)
    numpy = pytest.importorskip("numpy")
    outside = numpy.zeros((2, N_HEADS, DIM), numpy.float32)
    seq.extend([1, 2])
    with pytest.raises(coppice.Invalid, match="arena"):
        lane.step(0, coppice.Part(seq, outside, layer.k, layer.v, layer.o))


class StreamOfGpu:
    cuda_stream = 0
    device_index = 1


def test_a_stream_of_another_device(
    lane: coppice.Lane, seq: coppice.Sequence, arena: coppice.Arena
) -> None:
    part = on_gpu(seq, Layer(arena, 2), 0, 0, 0, 0)
    with pytest.raises(coppice.Invalid, match="stream is of GPU 1, the arrays are on GPU 0"):
        lane.step(0, part, stream=StreamOfGpu())
    with pytest.raises(TypeError, match="a stream is"):
        lane.step(0, part, stream="main")
    with pytest.raises(coppice.Error):
        lane.step(0, part, stream=0)  # no driver here, or no such pointer


def test_arenas_that_cannot_be_had(connection: coppice.Connection) -> None:
    with pytest.raises(coppice.Error):
        connection.arena(1 << 20, memory="device")
    for bad in ({"n_bytes": 0}, {"n_bytes": 1, "memory": "disk"}, {"n_bytes": 1, "device": b"x"}):
        with pytest.raises(coppice.Invalid):
            connection.arena(**bad)
    arena = connection.arena(4096)
    for shape in ((0,), (1 << 30, 1 << 30, 1 << 30), (1, 1, 1, 1, 1)):
        with pytest.raises((coppice.Invalid, coppice.NoRoom)):
            arena.tensor(shape)
    with pytest.raises(coppice.Invalid, match="multiple"):
        arena.tensor(1, offset=3)


# ---- tokens and models -----------------------------------------------------------------------


def test_tokens_that_are_none(lane: coppice.Lane, small: coppice.Model) -> None:
    for bad in ([-1], [1 << 32], [2**70]):
        with pytest.raises(coppice.Invalid, match="token 0 is"):
            lane.open(small, bad)
    for worse in (["a"], [1.5], [[1]]):
        with pytest.raises(TypeError, match="integer"):
            lane.open(small, worse)  # type: ignore[arg-type]
    with pytest.raises(coppice.Error):
        lane.open(small, [])
    with pytest.raises(TypeError):
        lane.open(small, 5)  # type: ignore[arg-type]


def test_what_tokens_are_plain() -> None:
    for plain, ends in (([3], (3, 3)), ([7, -1, 2**62], (-1, 2**62)), ([0, 5, 1], (0, 5))):
        assert extremes(plain) == ends
    for other in ([], (1, 2), "12", None, [1, True], [1.0], [1, "2"], [2**63], [-(2**70)], [[1]]):
        assert extremes(other) is None


class Odd:
    """A token whose value takes code of its own."""

    def __init__(self, code: Callable[[], object]) -> None:
        self.code = code

    def __index__(self) -> int:
        self.code()
        return 1


def test_tokens_with_code_of_their_own(lane: coppice.Lane, small: coppice.Model) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lane.open(small, [Odd(interrupt)])  # type: ignore[list-item]
    tokens: list[Odd] = []
    tokens += [Odd(tokens.clear), Odd(tokens.clear)]
    with pytest.raises(IndexError):
        lane.open(small, tokens)  # type: ignore[arg-type]


def test_more_tokens_than_can_be_counted(lane: coppice.Lane, seq: coppice.Sequence) -> None:
    with pytest.raises(coppice.Invalid, match="not submitted"):
        lane.poll(1 << 40)
    with pytest.raises(coppice.Invalid, match="8589934592 is given"):
        seq.trim(1 << 33)


def test_a_prompt_that_is_too_long(lane: coppice.Lane, connection: coppice.Connection) -> None:
    model = coppice.load_model(connection, CHECKPOINT, max_positions=64)
    with lane.open(model, [1] * 100) as seq:
        decode = seq.decode([1] * 100)
        with pytest.raises(coppice.TooLong, match="than the program's max_positions"):
            decode.wait()


def config_with(**keys: object) -> bytes:
    config = json.loads((CHECKPOINT / "config.json").read_text())
    return json.dumps({**config, **keys}).encode()


def test_a_model_that_is_not_supported_is_told_by_key(connection: coppice.Connection) -> None:
    with coppice.open_weights(connection, CHECKPOINT) as weights:
        weights.wait()
        for key, value in (("model_type", "mamba"), ("sliding_window", 16), ("no_such_key", 3)):
            with pytest.raises(coppice.Unsupported, match=key):
                connection.program(weights, config_with(**{key: value}))
        with pytest.raises(coppice.Invalid):
            connection.program(weights, b"{")
        with pytest.raises(coppice.NotFound):
            connection.program(weights, "/no/such/config.json")
        with pytest.raises(coppice.NotFound, match="layers.5"):
            connection.program(weights, config_with(num_hidden_layers=6))


def test_tensors_of_weights_that_nobody_has_waited_for(connection: coppice.Connection) -> None:
    with coppice.open_weights(connection, CHECKPOINT) as weights:
        with pytest.raises(coppice.NotFound, match="tensors are known once"):
            weights.find("model.norm.weight")
        with pytest.raises(coppice.Invalid, match="tensors are known once"):
            weights.tensor(0)
        weights.wait()
        with pytest.raises(coppice.NotFound, match="no tensor x"):
            weights.find("x")
        assert weights.tensor(weights.find("model.norm.weight")).name == "model.norm.weight"


def test_weights_that_are_none(connection: coppice.Connection, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(coppice.Invalid):
        coppice.open_weights(connection, tmp_path).wait(30.0)
    with pytest.raises(coppice.Invalid, match="1 to 128 files"):
        connection.weights([])


def test_models_of_shapes_that_are_none(connection: coppice.Connection) -> None:
    shape = {"n_layers": 1, "n_q_heads": 3, "n_kv_heads": 2, "head_dim": 64}
    with pytest.raises(coppice.Invalid, match="n_q_heads"):
        connection.model("odd", **shape)  # type: ignore[arg-type]
    with pytest.raises(coppice.Invalid, match="float32"):
        connection.model("odd", **{**shape, "dtype": "int8"})  # type: ignore[arg-type]
    with pytest.raises(coppice.Invalid):
        connection.model("odd", **{**shape, "n_kv_heads": 0})  # type: ignore[arg-type]


def test_decodes_that_are_none(
    connection: coppice.Connection, lane: coppice.Lane, model: coppice.Model, small: coppice.Model
) -> None:
    seq, plain = lane.open(model, [1, 2]), lane.open(small, [1, 2])
    with pytest.raises(coppice.Invalid, match="no program"):
        plain.decode([1])
    with pytest.raises(coppice.Invalid, match="3 rows are wanted of 1"):
        seq.decode([1], 3)
    with pytest.raises(coppice.Invalid, match="top is 65"):
        seq.decode([1], top=65)
    with pytest.raises(coppice.Invalid, match="another lane"):
        connection.lane().decode([(seq, [1])])
    with pytest.raises(coppice.Invalid, match="one sequence or more"):
        lane.decode([])
    with pytest.raises(coppice.Error):
        seq.decode([])
    with pytest.raises(coppice.Error):
        seq.decode([300]).wait()  # the vocabulary has 256


def test_what_is_in_flight_has_a_bound(own_daemon: Daemon, leaves_nothing: None) -> None:
    with coppice.connect(own_daemon.socket) as connection, connection.lane() as lane:
        own_daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, own_daemon.process.pid, os.WSTOPPED)  # not at once
        try:
            tickets = [lane.nop() for _ in range(256)]
            with pytest.raises(coppice.LaneFull, match="256 entries in flight"):
                lane.nop()
        finally:
            own_daemon.process.send_signal(signal.SIGCONT)
        lane.wait(tickets[-1])
        lane.wait(lane.nop())


def test_a_pin_for_longer_than_is_allowed(seq: coppice.Sequence) -> None:
    """The most is told, and what was given."""
    for seconds, told in ((1e12, "ever.*1000000000000.0 sec"), (float("inf"), "ever.*inf sec")):
        with pytest.raises(coppice.Invalid, match=rf"at most 1 d \(max_pin_ms\), not for {told}"):
            seq.pin(seconds)
    with pytest.raises(coppice.Invalid, match=r"at most 1 d \(max_pin_ms\), not for 30 d"):
        seq.pin(30 * 86400)
    with pytest.raises(coppice.Invalid, match="no time"):
        seq.pin(0)
    for nonsense in (-1, float("nan")):
        with pytest.raises(ValueError, match="0 or more seconds"):
            seq.pin(nonsense)


def test_an_accept_without_a_draft(lane: coppice.Lane, seq: coppice.Sequence) -> None:
    for _ in range(2):
        ticket = seq.accept([0])
        with pytest.raises(coppice.Invalid, match="no live tokens"):
            lane.wait(ticket)


def test_refusals_leave_nothing_with_the_daemon(
    connection: coppice.Connection, small: coppice.Model
) -> None:
    lane = connection.lane()
    lane.open_many([(small, [1])])
    before = connection.stats()
    for _ in range(50):
        with pytest.raises(coppice.Invalid):
            lane.open_many([(small, [1]), (small, [-1])])
        with pytest.raises(coppice.Error):
            lane.open_many([(small, [1]), (small, [])])
        with pytest.raises(coppice.Invalid):
            coppice.Part(lane.open(small, [1]), None, None, None)  # type: ignore[arg-type]
    await_seqs(connection, 0)
    after = connection.stats()
    assert (after.n_arenas, after.n_lanes) == (before.n_arenas, before.n_lanes)
    assert after.pool_used_bytes == before.pool_used_bytes
