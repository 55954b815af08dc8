"""Arenas on a GPU, steps on torch's stream, and a graph of them; left out where there is no GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from harness import CHECKPOINT, DAEMON, GREEDY, await_socket

import coppice

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

N_LAYERS, N_HEADS, N_KV, DIM, N = 2, 8, 2, 64, 70


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("gpu") / "sock")
    command = [DAEMON, "--backend", "cuda", "--pool=1G", "--socket", path]
    daemon = subprocess.Popen(command)
    await_socket(path, daemon)
    yield path
    daemon.terminate()
    assert daemon.wait(20) == 0


class Scene:
    """A sequence of N tokens and one new row, whose arrays are torch's in a device arena."""

    def __init__(self, connection: coppice.Connection, salt: int) -> None:
        model = connection.model(
            "gpu",
            n_layers=N_LAYERS,
            n_q_heads=N_HEADS,
            n_kv_heads=N_KV,
            head_dim=DIM,
            dtype="bfloat16",
        )
        self.lane = connection.lane()
        self.arena = connection.arena(1 << 20, memory="device")
        self.q, self.o = (self.rows(N_HEADS) for _ in range(2))
        self.k, self.v = (self.rows(N_KV) for _ in range(2))
        self.seq = self.lane.open(model, range(1, N + 1), salt=salt)
        self.stream = torch.cuda.Stream()

    def rows(self, n_heads: int) -> Any:
        array = torch.from_dlpack(self.arena.tensor((N, n_heads, DIM), "bfloat16"))
        return array.normal_()

    def part(self, first: int, end: int) -> coppice.Part:
        cut = slice(first, end)
        return coppice.Part(self.seq, self.q[cut], self.k[cut], self.v[cut], self.o[cut])

    def prefill(self, n: int) -> None:
        torch.cuda.synchronize()
        self.seq.extend(range(1, n + 1))
        for layer in range(N_LAYERS):
            ticket = self.lane.step(layer, self.part(0, n), stream=self.stream)
            self.lane.wait_on_stream(ticket, self.stream)
        self.stream.synchronize()
        self.lane.wait(ticket)

    def check(self) -> None:
        q, k, v = (x.float().transpose(0, 1) for x in (self.q, self.k, self.v))
        k, v = (x.repeat_interleave(N_HEADS // N_KV, 0) for x in (k, v))
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert (self.o.float() - wanted.transpose(0, 1)).abs().max() < 0.03


def test_steps_on_a_stream(gpu: str) -> None:
    with coppice.connect(gpu) as connection:
        scene = Scene(connection, 1)
        assert scene.q.is_cuda and scene.arena.memory == "device"
        scene.prefill(N)
        scene.check()


def test_arrays_outlive_the_connection(gpu: str) -> None:
    with coppice.connect(gpu) as connection:
        scene = Scene(connection, 2)
    scene.q.fill_(2)
    assert scene.q.float().sum().item() == 2 * scene.q.numel()


def test_an_array_by_its_interface(gpu: str) -> None:
    """As cupy and numba take it; torch too, where there is nothing else to take."""
    with coppice.connect(gpu) as connection, connection.arena(1 << 16, memory="device") as arena:
        tensor = arena.tensor((2, 3))

        class Interface:
            __cuda_array_interface__ = tensor.__cuda_array_interface__

        array = torch.as_tensor(Interface(), device="cuda")
        assert array.data_ptr() == tensor.address
        array[1, 2] = 5
        assert torch.from_dlpack(tensor)[1, 2].item() == 5


def test_a_graph_of_steps(gpu: str) -> None:
    with coppice.connect(gpu) as connection:
        scene = Scene(connection, 3)
        scene.prefill(N - 1)
        last = scene.part(N - 1, N)
        with coppice.Capture(scene.lane, scene.stream) as capture:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=scene.stream):
                for layer in range(N_LAYERS):
                    parts = [last]
                    capture.step(layer, parts, scene.stream)
                    parts.clear()
                    capture.wait(scene.stream)
            scene.seq.extend([N])
            ticket = capture.submit()
            graph.replay()
            torch.cuda.synchronize()
            scene.lane.wait(ticket)
            scene.check()
            del graph


def test_a_stream_of_a_device_that_is_another(gpu: str) -> None:
    with coppice.connect(gpu) as connection:
        scene = Scene(connection, 4)

        class Elsewhere:
            cuda_stream = scene.stream.cuda_stream
            device_index = 7

        with pytest.raises(coppice.Invalid, match="stream is of GPU 7"):
            scene.lane.step(0, scene.part(0, N), stream=Elsewhere())


def test_tokens_by_the_gpu(gpu: str) -> None:
    prompt = list((GREEDY / "prompt.bin").read_bytes())
    with coppice.connect(gpu) as connection, connection.lane() as lane:
        seq = lane.open(coppice.load_model(connection, CHECKPOINT), prompt)
        [row] = seq.decode(prompt[seq.wait().cached :], logits=True).wait()
        assert row.ids[0] == (GREEDY / "greedy.bin").read_bytes()[0]
        assert row.logits is not None and len(row.logits.tolist()) == 256
