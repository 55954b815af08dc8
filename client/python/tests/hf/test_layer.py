"""What a layer of a pass of one token a row asks of torch: it is asked once a layer and token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import coppice
import coppice.hf
from coppice.hf._workspace import Workspace

IDS = tiny.draw(2, 12, seed=71)
SALTS = itertools.count(7000)


@pytest.fixture
def layers(connection: coppice.Connection) -> Iterator[Any]:
    """attend(layer), of one more token a row than IDS."""
    model = tiny.llama()
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared, torch.no_grad():
        with shared.cache(IDS) as cache:
            model(IDS, past_key_values=cache)
            cache.begin(dict(input_ids=torch.tensor([[7], [8]])))

            def attend(layer: int) -> torch.Tensor:
                q, k, v = (torch.randn(2, 1, n, 16).transpose(1, 2) for n in (4, 2, 2))
                k, v = cache.update(k, v, layer)
                module = model.model.layers[layer].self_attn
                o: torch.Tensor = coppice.hf.attention(module, q, k, v)[0]
                return o

            yield attend


class Counting(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_few_operations(layers: Any) -> None:
    """Q's, K's and V's copy by one, and O's; beside what makes the three here."""
    with Counting() as made:
        [torch.randn(2, 1, n, 16).transpose(1, 2) for n in (4, 2, 2)]
    layers(0)
    with Counting() as counting:
        layers(1)
    assert len(counting.names) - len(made.names) <= 2, counting.names


@pytest.mark.parametrize("name", tiny.MAKERS)
def test_copies_of_a_token_are_of_one_stride(
    connection: coppice.Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a GPU has a kernel for each: torch looks at all strides, that of one column too."""
    strides: list[tuple[Any, Any]] = []
    copy = torch._foreach_copy_

    def watched(to: Any, news: Any) -> None:
        if news[0].shape[2] == 1:
            strides.extend((at.stride(), new.stride()) for at, new in zip(to, news))
        copy(to, news)

    monkeypatch.setattr(torch, "_foreach_copy_", watched)
    model = tiny.model(name)
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared, torch.no_grad():
        with shared.cache(IDS) as cache:
            model.generate(IDS, past_key_values=cache, max_new_tokens=3, do_sample=False)
    assert len(strides) == 2 * 3 * model.config.num_hidden_layers
    assert all(at == new for at, new in strides), strides


def test_o_is_not_what_the_next_layer_writes(layers: Any) -> None:
    first = layers(0)
    before = first.clone()
    assert not torch.equal(layers(1), before)
    assert torch.equal(first, before)


class PlayedLane:
    """Of which streams steps and waits were."""

    def __init__(self) -> None:
        self.streams: list[Any] = []
        self.tickets = itertools.count()

    def step(self, layer: int, parts: Any, stream: Any) -> int:
        self.streams.append(stream)
        return next(self.tickets)

    def wait_on_stream(self, ticket: int, stream: Any) -> None:
        self.streams.append(stream)


def test_torchs_stream_by_its_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an object for it, which takes longer to make, and to ask, than a number."""
    handle = 0
    made: list[int] = []
    monkeypatch.setattr(torch.cuda, "current_stream", made.append)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: handle, raising=False)
    lane = PlayedLane()
    made_by: Any = SimpleNamespace(lane=lambda: lane)
    shape: Any = None
    workspace = Workspace(made_by, shape, torch.device("cuda:0"))
    for handle in (0, 0, 5, 5, 0):
        workspace.step(0, [])
    assert lane.streams == [0, 0, 0, 0, 5, 5, 5, 5, 0, 0]
    assert not made
