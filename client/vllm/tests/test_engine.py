"""The engine without vLLM, against torch's attention: on a CPU, and on a GPU where there is one."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from coppice_vllm.engine import Engine, Span
from harness import DAEMON, await_socket

import coppice

N_LAYERS, N_HEADS, N_KV, DIM = 2, 4, 2, 64
NUMBERS = itertools.count(1)


@pytest.fixture(params=["cpu", "cuda"])
def place(request: Any, tmp_path: Any) -> Iterator[tuple[str, str]]:
    """A device, and the socket of a daemon that has it."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    path = str(tmp_path / "sock")
    command = [DAEMON, "--backend", request.param, "--pool=256M", "--socket", path]
    daemon = subprocess.Popen(command)
    try:
        await_socket(path, daemon)
        yield request.param, path
    finally:
        daemon.terminate()
        assert daemon.wait(20) == 0


def engine_on(device: str, socket: str) -> Engine:
    extra = dict(socket=socket, weights_hash=5)
    layer = SimpleNamespace(
        num_heads=N_HEADS, num_kv_heads=N_KV, head_size=DIM, impl=SimpleNamespace(scale=DIM**-0.5)
    )
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            engine_id=str(next(NUMBERS)), get_from_extra_config=extra.get
        ),
        device_config=SimpleNamespace(device=device),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=256),
        model_config=SimpleNamespace(
            dtype=torch.float16, architectures=["Llama"], model="m", quantization=None
        ),
    )
    return Engine(config, [layer] * N_LAYERS)


def request_of(name: str, tokens: list[int]) -> Any:
    return SimpleNamespace(
        request_id=name,
        all_token_ids=tokens,
        num_tokens=len(tokens),
        num_preemptions=0,
        skip_reading_prefix_cache=False,
        cache_salt=None,
    )


class Rows:
    """Q, K and V of a place in a text: the same wherever that text is computed."""

    def __init__(self, device: str, tokens: list[int]) -> None:
        self.device, self.tokens = device, tokens

    def of(self, layer: int, kind: int, n_heads: int, first: int, end: int) -> Any:
        def row(at: int) -> Any:
            by = torch.Generator().manual_seed(hash((layer, kind, tuple(self.tokens[: at + 1]))))
            return torch.randn(n_heads, DIM, generator=by)

        return torch.stack([row(at) for at in range(first, end)]).half().to(self.device)

    def wanted(self, layer: int, first: int, end: int) -> Any:
        q = self.of(layer, 0, N_HEADS, first, end).float().transpose(0, 1)
        k, v = (self.of(layer, i, N_KV, 0, end).float().transpose(0, 1) for i in (1, 2))
        k, v = (x.repeat_interleave(N_HEADS // N_KV, 0) for x in (k, v))
        mask = torch.ones(end - first, end, dtype=torch.bool, device=self.device).tril(first)
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, attn_mask=mask).transpose(0, 1)


def step(engine: Engine, spans: list[Span], rows: dict[str, Rows]) -> None:
    """All layers of a batch, held against torch's attention."""
    engine.begin(spans)
    ends = [(span.start, span.start + len(span.tokens)) for span in spans]
    outs = []
    for layer in range(N_LAYERS):
        q, k, v = (
            torch.cat([rows[x.request_id].of(layer, i, n, *ab) for x, ab in zip(spans, ends)])
            for i, n in enumerate((N_HEADS, N_KV, N_KV))
        )
        outs.append(torch.empty_like(q))
        engine.attend(layer, q, k, v, outs[-1])
    engine.check()
    for layer, out in enumerate(outs):
        wanted = [rows[x.request_id].wanted(layer, *ab) for x, ab in zip(spans, ends)]
        assert (out.float() - torch.cat(wanted)).abs().max() < 0.01


def test_batches_of_chunks_and_tokens(place: tuple[str, str]) -> None:
    device, socket = place
    texts = dict(a=list(range(40)), b=list(range(30)) + [90, 91, 92])
    rows = {name: Rows(device, tokens) for name, tokens in texts.items()}
    one = engine_on(device, socket)
    a, b = (request_of(name, tokens[:-1]) for name, tokens in texts.items())
    assert one.match(a) == 0
    step(one, [Span("a", 0, tuple(range(25)))], rows)
    assert one.match(b) is None  # of what a computes
    step(one, [Span("a", 25, tuple(range(25, 39)))], rows)
    assert one.match(b) == 30
    step(one, [Span("b", 30, (90, 91)), Span("a", 39, (39,))], rows)
    step(one, [Span("b", 32, (92,))], rows)
    one.close()
    assert not one.opened

    other = engine_on(device, socket)
    assert other.match(request_of("b", texts["b"])) == 32
    step(other, [Span("b", 32, (92,))], rows)
    other.match(request_of("a", texts["a"]))
    step(other, [Span("a", 20, tuple(range(20, 40)))], rows)  # from before what is there
    again = request_of("b", [*texts["b"], 93])
    again.num_preemptions = 1
    assert other.match(again) == 33
    connection = coppice.connect(socket)
    assert other.connection.stats().n_seqs == 2
    other.close()
    connection.close()
