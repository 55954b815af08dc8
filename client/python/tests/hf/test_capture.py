"""Which passes become graphs: on a CPU, where what a launch would do is the model's own pass."""

from __future__ import annotations

import contextlib
import copy
import errno
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch

import coppice
import coppice.hf
from coppice.hf import _capture, _fuse

SALTS = itertools.count(9000)
Graph: Any = _capture.Graph


class Played:
    """A graph that is a launch of the pass it was made of."""

    def __init__(self, forward: Any, cache: Any, batch: Any, positions: torch.Tensor) -> None:
        self.forward = forward
        self.made_at: int = batch.forward.n_tokens
        MADE_AT.append(self.made_at)

    def is_for(self, begun: Any) -> bool:
        """As if the mask had a window."""
        n_tokens: int = begun.n_tokens
        return n_tokens <= N_MOST or self.made_at > N_MOST

    def replay(self, begun: Any, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        assert begun.layout.n == len(ids)
        [cache] = CACHES
        fed = dict(input_ids=ids, position_ids=positions, past_key_values=cache)
        logits: torch.Tensor = self.forward(**fed).logits
        return logits

    def close(self) -> None:
        """There is nothing."""


CACHES: list[Any] = []  # of the pass
MADE_AT: list[int] = []  # of graphs: how long the longest row was
N_MOST = 100


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fuse, "BACKEND", "eager")  # which compiles nothing
    monkeypatch.setattr(_capture, "check_device", lambda model: None)
    monkeypatch.setattr(_capture, "Graph", Played)


@pytest.fixture
def model(played: None) -> Iterator[Any]:
    """Captured, but for the GPU."""
    model = tiny.llama()
    with torch.no_grad(), coppice.hf.capture(model):
        yield model


@pytest.fixture
def shared(connection: coppice.Connection, model: Any) -> Iterator[coppice.hf.SharedKV]:
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        yield shared


@contextlib.contextmanager
def cache_of(shared: coppice.hf.SharedKV, *text: torch.Tensor) -> Iterator[Any]:
    with shared.cache(*text) as cache:
        CACHES[:] = [cache]
        yield cache
    CACHES.clear()


def graphs(shared: coppice.hf.SharedKV) -> list[int]:
    [workspace] = shared._idle
    return list(workspace.graphs)


def by_tokens(model: Any, cache: Any, ids: torch.Tensor) -> list[Any]:
    """A pass of each column that is not there yet."""
    first = cache.get_seq_length()
    return [
        model(input_ids=ids[:, i : i + 1], past_key_values=cache)
        for i in range(first, ids.shape[1])
    ]


def test_rows_whose_token_is_there_already(shared: coppice.hf.SharedKV, model: Any) -> None:
    ids = tiny.draw(2, 12, seed=70)
    with cache_of(shared, ids[:1]) as cache:
        model(input_ids=ids[:1], past_key_values=cache)
    with cache_of(shared, ids) as cache:
        assert cache.n_cached == [11, 0]
        got = by_tokens(model, cache, ids)
    assert graphs(shared) == []
    want = tiny.llama()(ids).logits[:, -1:]
    assert torch.allclose(got[-1].logits, want, rtol=1e-3, atol=1e-3)


def test_generate(shared: coppice.hf.SharedKV, model: Any) -> None:
    ids, mask = tiny.draw(3, 16, seed=71), torch.ones(3, 16, dtype=torch.int64)
    mask[0, :5] = 0
    ids[mask == 0] = 0
    fixed = dict(attention_mask=mask, max_new_tokens=12, do_sample=False)
    own = tiny.llama()
    for options, numbers in (({}, [3]), (dict(num_beams=3), [3, 9])):
        with cache_of(shared, ids, mask) as cache:
            got = model.generate(ids, past_key_values=cache, **fixed, **options)
        assert torch.equal(got, own.generate(ids, **fixed, **options))
        assert graphs(shared) == numbers


@pytest.mark.parametrize("key", ["output_hidden_states", "return_dict"])
def test_what_the_config_asks_for(shared: coppice.hf.SharedKV, model: Any, key: str) -> None:
    if key == "return_dict":
        model.model.config = copy.copy(model.config)  # its own outputs are no tuples
    setattr(model.config, key, key != "return_dict")
    ids = tiny.draw(1, 6, seed=72)
    with cache_of(shared, ids) as cache:
        outs = by_tokens(model, cache, ids)
    if key == "return_dict":
        assert all(isinstance(out, tuple) for out in outs)
    else:
        assert all(out.hidden_states for out in outs)
    assert graphs(shared) == []
    setattr(model.config, key, key == "return_dict")
    with cache_of(shared, ids + 1) as cache:
        by_tokens(model, cache, ids + 1)
    assert graphs(shared) == [1]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (RuntimeError("as the test wants it"), coppice.Unsupported),
        (coppice.LimitReached(errno.EDQUOT, "as the test wants it"), coppice.LimitReached),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_capture_that_fails_gives_all_back(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException]
) -> None:
    closed: list[str] = []

    class Part:
        """Of what a graph is made of."""

        def __init__(self, name: str) -> None:
            self.name = name
            self.wait_stream = self.reset = self.close = lambda *_: closed.append(name)

    def forward(**_: Any) -> None:
        raise failure

    cuda = SimpleNamespace(
        Stream=lambda device: Part("stream"),
        CUDAGraph=lambda: Part("graph"),
        current_stream=lambda device: None,
        synchronize=lambda device: None,
        graph=lambda *_, **__: contextlib.nullcontext(),
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(_capture, "Recording", lambda *_: Part("recording"))
    begun, cache = object(), SimpleNamespace()
    workspace = SimpleNamespace(device="cpu", pool=None)
    batch: Any = SimpleNamespace(forward=begun, rows=[None], opened=lambda: workspace)
    with pytest.raises(raised, match="as the test wants it|^$"):
        Graph(forward, cache, batch, torch.zeros(1, 1, dtype=torch.int64))
    assert closed == ["stream", "graph", "recording"] and batch.forward is begun


def test_a_window_ends_passes(connection: coppice.Connection, played: None) -> None:
    model, ids = tiny.mistral(window=16), tiny.draw(1, 10)
    with coppice.hf.attach(model, connection) as shared, coppice.hf.capture(model):
        with cache_of(shared, ids) as cache:
            with pytest.raises(coppice.Unsupported, match="sliding_window of the config is 16"):
                model.generate(ids, past_key_values=cache, max_new_tokens=12)
            assert cache.n_cached == [16]
        assert graphs(shared) == [1]


def test_a_window_of_a_mask_makes_another_graph(
    shared: coppice.hf.SharedKV, model: Any
) -> None:
    ids = tiny.draw(1, N_MOST + 6, seed=73)
    MADE_AT.clear()
    with cache_of(shared, ids) as cache:
        model(input_ids=ids[:, : N_MOST - 5], past_key_values=cache)
        by_tokens(model, cache, ids)
    assert graphs(shared) == [1]
    assert MADE_AT == [N_MOST - 3, N_MOST + 1]


def test_what_a_graph_knows_of_masks() -> None:
    """The narrowest window of one that was not made; those that were are no layer's."""
    recording = _capture.Recording.__new__(_capture.Recording)
    recording.n_tokens, recording.n_tokens_most = 10, None
    graph: Any = SimpleNamespace(recording=recording)
    assert Graph.is_for(graph, SimpleNamespace(n_tokens=1000))
    assert all(recording.is_within(n) for n in (20, 15, 10**6))
    assert not any(recording.is_within(n) for n in (0, 9))
    assert Graph.is_for(graph, SimpleNamespace(n_tokens=15))
    assert not Graph.is_for(graph, SimpleNamespace(n_tokens=16))


class Compiler:
    """What a model's functions are compiled by. It counts, by name, what it is given."""

    def __init__(self) -> None:
        self.n_runs: dict[str, int] = {}

    def __call__(self, function: Any, backend: str) -> Any:
        def run(*given: Any) -> Any:
            self.n_runs[function.__qualname__] = 1 + self.n_runs.get(function.__qualname__, 0)
            return function(*given)

        return run


@torch.no_grad()
@pytest.mark.parametrize("fuse", [True, False])
def test_norms_and_rotary_embeddings_are_compiled(
    connection: coppice.Connection, played: None, monkeypatch: pytest.MonkeyPatch, fuse: bool
) -> None:
    """For passes of one token a row, and for them alone."""
    compiler, model, ids = Compiler(), tiny.llama(), tiny.draw(1, 12, seed=81)
    monkeypatch.setattr(_fuse, "compiled", compiler)
    own = type(model.model.norm).forward
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with coppice.hf.capture(model, fuse=fuse), cache_of(shared, ids) as cache:
            model(input_ids=ids[:, :8], past_key_values=cache)
            assert not compiler.n_runs
            by_tokens(model, cache, ids)
    n_passes, n_layers = 4, model.config.num_hidden_layers
    norms, rotary = n_passes * (2 * n_layers + 1), n_passes * n_layers
    wanted = {own.__qualname__: norms, _fuse.ROTARY: rotary}
    assert compiler.n_runs == (wanted if fuse else {})
    assert not any("forward" in vars(module) for module in model.modules())
    assert _fuse.sources_of(model)[0].apply_rotary_pos_emb.__name__ == _fuse.ROTARY


DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


@torch.no_grad()
@pytest.mark.parametrize("device", DEVICES)
def test_what_is_compiled_rounds_where_the_model_does(device: str) -> None:
    """By torch's own compiler; at any other place one bit in four would be another."""
    model = tiny.llama().to(device, torch.bfloat16)
    norm, [source] = model.model.norm, _fuse.sources_of(model)
    norm.weight.normal_()
    rows = torch.randn(3, 1, norm.weight.shape[0]).to(norm.weight)
    q, k = (torch.randn(3, n_heads, 1, 32).to(rows) for n_heads in (4, 2))
    cos, sin = torch.randn(2, 3, 1, 32).to(rows)
    calls = (type(norm).forward, norm, rows), (source.apply_rotary_pos_emb, q, k, cos, sin)
    for own, *given in calls:
        got = _fuse.compiled(own, _fuse.BACKEND)(*given)
        for a, b in zip(got, own(*given)):
            assert torch.equal(a, b)


@torch.no_grad()
@pytest.mark.parametrize("device", DEVICES)
def test_a_compiled_norm_differs_by_the_order_of_its_sum(device: str) -> None:
    """A sum of n squares in float32 is right to n / 2^24 of it in any order, so its root, and the
    row, to half of that: 2^-13 for 4,096. Bfloat16 has steps of 2^-8 to 2^-7 of a value. So two
    rows are at most a step apart, 2^-7, and that at no more than 2^-13 / 2^-8 of the values, times
    two as both are off; and once they are multiplied and rounded again, 2^-6 apart."""
    norm = type(tiny.llama().model.norm)(4096).to(device, torch.bfloat16)
    norm.weight.normal_()
    own, n_values, n_others = type(norm).forward, 0, 0
    for _ in range(50):
        rows = torch.randn(8, 1, 4096).to(norm.weight)
        got, want = _fuse.compiled(own, _fuse.BACKEND)(norm, rows).double(), norm(rows).double()
        assert ((got - want).abs() <= want.abs() / 64).all()
        n_values += want.numel()
        n_others += int((got != want).sum())
    assert n_others <= n_values / 16


@torch.no_grad()
def test_a_function_that_cannot_be_compiled_runs_as_it_is(
    connection: coppice.Connection, played: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass goes on, and neither it nor a later one tries again."""
    n_tries = 0

    def compiled(function: Any, backend: Any) -> Any:
        def fail(*_: Any, **named: Any) -> Any:
            nonlocal n_tries
            n_tries += 1
            raise RuntimeError("not this one")

        return fail if function.__qualname__ == _fuse.ROTARY else function

    monkeypatch.setattr(_fuse, "compiled", compiled)
    model, ids = tiny.llama(), tiny.draw(2, 10, seed=83)
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with coppice.hf.capture(model, fuse=True), cache_of(shared, ids) as cache:
            model(input_ids=ids[:, :7], past_key_values=cache)
            with pytest.warns(UserWarning, match="not this one"):
                got = by_tokens(model, cache, ids)
    assert n_tries == 1
    want = tiny.llama()(ids).logits[:, -1:]
    assert torch.allclose(got[-1].logits, want, rtol=1e-3, atol=1e-3)


def test_what_a_fused_function_raises_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(value: int) -> int:
        raise ValueError(value)

    monkeypatch.setattr(_fuse, "compiled", lambda function, backend: function)
    model = tiny.llama()
    with pytest.raises(ValueError):
        _fuse.Fused(model)._fused(own)(3)


@torch.no_grad()
def test_no_compiler(
    connection: coppice.Connection, played: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no compiler is here")

    monkeypatch.setattr(_fuse, "BACKEND", fail)
    model, ids = tiny.qwen3(), tiny.draw(2, 10, seed=82)
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with coppice.hf.capture(model, fuse=True), cache_of(shared, ids) as cache:
            model(input_ids=ids[:, :7], past_key_values=cache)
            with pytest.warns(UserWarning, match="no compiler is here"):
                got = by_tokens(model, cache, ids)
    want = tiny.qwen3()(ids).logits[:, -1:]
    assert torch.allclose(got[-1].logits, want, rtol=1e-3, atol=1e-3)
