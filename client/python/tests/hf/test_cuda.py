"""The same on a GPU: steps go by torch's stream; left out where there is none.

Types are halves, whose rounding may turn a token where the best two are close. So logits are held
against those in float32, and may err twice as much as eager's own do; and a token that is chosen
may be below the best one in float32 by no more than two such logits can be apart. One that is
sampled of the ten likeliest may be as far below the tenth.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from harness import DAEMON, await_socket
from test_layer import Counting

import coppice
import coppice.hf
from coppice.hf._norm import LightNorms

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

OPTIONS = "--backend=cuda", "--pool=1G", "--lend-weights=1"
SIZES = dict(hidden_size=256, intermediate_size=128, head_dim=64)
N_NEW = 12
DTYPES = [torch.bfloat16, torch.float16]
FUSED = "llama", "gpt_oss"  # of whose graphs: to compile takes long
SAMPLED = 10  # of which one is taken
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": dict(do_sample=True, temperature=2.0, top_k=SAMPLED, num_return_sequences=3),
    "beams": dict(num_beams=3),
    "prompt_lookup": dict(prompt_lookup_num_tokens=4),
    "assistant": {},
    "poor_assistant": {},
}


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("gpu") / "sock")
    daemon = subprocess.Popen([DAEMON, *OPTIONS, "--socket", path])
    await_socket(path, daemon)
    torch.zeros(1, device="cuda")  # lanes are made where there is a context
    yield path
    daemon.terminate()
    assert daemon.wait(20) == 0


@pytest.fixture(scope="module")
def gpu(socket: str) -> Iterator[coppice.Connection]:
    with coppice.connect(socket) as connection:
        yield connection


class Twins:
    """A model in halves, and the same weights in float32."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.half = tiny.MAKERS[name](**SIZES).to("cuda", dtype)
        self.full = tiny.MAKERS[name](**SIZES).to("cuda")
        self.full.load_state_dict(self.half.state_dict())


def logits(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """float32 of all columns, without a cache."""
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    out = model(ids, attention_mask=mask, position_ids=positions, use_cache=False)
    result: torch.Tensor = out.logits.float()
    return result


def by_steps(cache: Any, model: Any, ids: torch.Tensor, mask: torch.Tensor, n: int) -> torch.Tensor:
    """Of the last n columns: a prompt, then a token at a time, all queued on torch's stream."""
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    parts, done = [], 0
    for end in range(ids.shape[1] - n + 1, ids.shape[1] + 1):
        fed = dict(attention_mask=mask[:, :end], position_ids=positions[:, done:end])
        out = model(ids[:, done:end], past_key_values=cache, **fed)
        parts.append(out.logits[:, -1:].float())
        done = end
    return torch.cat(parts, 1)


def batch(n_columns: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    """Three rows, two of them with padding on the left."""
    ids = tiny.draw(3, n_columns, seed=5).cuda()
    mask = torch.ones_like(ids)
    mask[0, :7] = mask[2, :1] = 0
    ids[mask == 0] = 0
    return ids, mask


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", tiny.MAKERS)
def test_logits(gpu: coppice.Connection, name: str, dtype: torch.dtype) -> None:
    twins, (ids, mask), n = Twins(name, dtype), batch(), 8
    want = logits(twins.full, ids, mask)[:, -n:]
    bound = 2 * (logits(twins.half, ids, mask)[:, -n:] - want).abs().max()
    with coppice.hf.attach(twins.half, gpu) as shared, shared.cache(ids, mask) as cache:
        got = by_steps(cache, twins.half, ids, mask, n)
    assert (got - want).abs().max() <= bound


def whole(mask: torch.Tensor | None, tokens: torch.Tensor) -> torch.Tensor:
    """The prompt's mask for a text that has grown."""
    grown = torch.ones_like(tokens)
    if mask is not None:
        grown[:, : mask.shape[1]] = mask
    return grown


class Judge:
    """What a model in float32 says of the last tokens of texts, and how far halves are from it."""

    def __init__(self, twins: Twins, tokens: torch.Tensor, mask: torch.Tensor | None) -> None:
        columns = slice(-N_NEW - 1, -1)
        self.full = logits(twins.full, tokens, whole(mask, tokens))[:, columns]
        half = logits(twins.half, tokens, whole(mask, tokens))[:, columns]
        self.error = (half - self.full).abs().max()
        self.chosen = tokens[:, -N_NEW:, None]

    def worst(self, n: int = 1) -> torch.Tensor:
        """By how much a chosen token is below the n-th best one, at most."""
        least = self.full.topk(n).values[..., -1]
        return (least - self.full.gather(2, self.chosen)[..., 0]).max()

    def score(self) -> torch.Tensor:
        """Of each row: the log-probability of its tokens."""
        return self.full.log_softmax(2).gather(2, self.chosen).sum((1, 2))


def generate(model: Any, ids: torch.Tensor, mask: Any, **options: Any) -> torch.Tensor:
    torch.manual_seed(7)
    fixed = dict(max_new_tokens=N_NEW, do_sample=False, pad_token_id=0, attention_mask=mask)
    tokens: torch.Tensor = model.generate(ids, **(fixed | options))
    return tokens


def options_of(mode: str, name: str) -> dict[str, Any]:
    """An assistant drafts what the model says itself, a poor one what it seldom does."""
    if not mode.endswith("assistant"):
        return MODES[mode]
    make = tiny.MAKERS[name] if mode == "assistant" else functools.partial(tiny.llama, seed=5)
    assistant = make(**SIZES).to("cuda", torch.bfloat16)
    assistant.generation_config.num_assistant_tokens = 3
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    return dict(assistant_model=assistant)


@torch.no_grad()
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", tiny.MAKERS)
def test_tokens(gpu: coppice.Connection, name: str, mode: str) -> None:
    twins, options = Twins(name, torch.bfloat16), options_of(mode, name)
    ids, mask = batch() if mode == "greedy" else (tiny.draw(1, 8, seed=9).repeat(1, 4).cuda(), None)
    want = generate(twins.half, ids, mask, **options)
    with coppice.hf.attach(twins.half, gpu) as shared, shared.cache(ids, mask) as cache:
        got = generate(twins.half, ids, mask, past_key_values=cache, **options)
    judged = Judge(twins, got, mask)
    if mode == "beams":
        expected = Judge(twins, want, mask)
        assert judged.score() >= expected.score() - 4 * N_NEW * expected.error
    else:
        assert judged.worst(SAMPLED if mode == "sampling" else 1) <= 4 * judged.error


@torch.no_grad()
def test_a_norm_is_two_kernels() -> None:
    """Its rows are as far from the model's as those of a norm that is compiled: test_capture.py."""
    model = tiny.llama().to("cuda", torch.bfloat16)
    norm = model.model.norm = type(model.model.norm)(4096).to("cuda", torch.bfloat16)
    norm.weight.normal_()
    rows = torch.randn(400, 1, 4096).to(norm.weight)
    want = norm(rows).double()
    norms = LightNorms(model)
    with Counting() as counting:
        light = norm(rows)
    norms.close()
    assert len(counting.names) == 2, counting.names
    got = light.double()
    assert ((got - want).abs() <= want.abs() / 64).all()
    assert int((got != want).sum()) <= want.numel() / 16


@torch.no_grad()
def test_what_is_cached_is_not_fed(gpu: coppice.Connection) -> None:
    model, ids = Twins("llama", torch.float16).half, tiny.draw(2, 40, seed=8).cuda()
    with coppice.hf.attach(model, gpu) as shared:
        with shared.cache(ids) as cache:
            want = model(ids, past_key_values=cache).logits[:, -1].float()
            cache.check()
        with shared.cache(ids) as cache:
            assert cache.n_cached == [39, 39]
            last = dict(past_key_values=cache, position_ids=torch.tensor([[39]]).cuda())
            got = model(ids[:, 39:], **last).logits[:, -1].float()
        assert (got - want).norm() < 0.02 * want.norm()


@torch.no_grad()
def test_passes_on_a_stream_of_ones_own(gpu: coppice.Connection) -> None:
    model, (ids, mask) = Twins("qwen3", torch.bfloat16).half, batch()
    with coppice.hf.attach(model, gpu, salt=1) as shared:
        with shared.cache(ids, mask) as cache:
            want = by_steps(cache, model, ids, mask, 6)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), coppice.hf.attach(model, gpu, salt=2) as shared:
        with shared.cache(ids, mask) as cache:
            got = by_steps(cache, model, ids, mask, 6)
    torch.cuda.synchronize()
    assert (got - want).norm() < 0.1 * want.norm()


@torch.no_grad()
@pytest.mark.parametrize("name", tiny.MAKERS)
def test_a_graph_of_each_number_of_rows(gpu: coppice.Connection, name: str) -> None:
    """The same by launches: of the rows that were captured, and of others after them."""
    model = Twins(name, torch.bfloat16).half
    ids, mask = batch()
    others = tiny.draw(3, 24, seed=6).cuda(), torch.ones_like(mask)
    alone = tiny.draw(1, 24, seed=7).cuda()
    texts = [(ids, mask), others, (alone, torch.ones_like(alone))]
    wanted, got = [], []
    with coppice.hf.attach(model, gpu, salt=3) as shared:
        for text in texts:
            with shared.cache(*text) as cache:
                wanted.append(by_steps(cache, model, *text, 10))
    capturing = coppice.hf.capture(model, fuse=name in FUSED)
    with coppice.hf.attach(model, gpu, salt=4) as shared, capturing:
        for text in texts:
            with shared.cache(*text) as cache:
                got.append(by_steps(cache, model, *text, 10))
            [workspace] = shared._idle
        assert list(workspace.graphs) == [3, 1]
    assert "forward" not in vars(model) and not workspace.graphs
    for a, b in zip(got, wanted):
        assert (a - b).norm() < 0.02 * b.norm()


@torch.no_grad()
def test_generate_by_graphs(gpu: coppice.Connection) -> None:
    twins, (ids, mask) = Twins("llama", torch.bfloat16), batch()
    with coppice.hf.attach(twins.half, gpu) as shared, coppice.hf.capture(twins.half):
        with shared.cache(ids, mask) as cache:
            got = generate(twins.half, ids, mask, past_key_values=cache)
        with shared.cache(ids, mask) as cache:
            beams = generate(twins.half, ids, mask, past_key_values=cache, num_beams=3)
        [workspace] = shared._idle
        assert list(workspace.graphs) == [3, 9]
    assert beams.shape == got.shape
    judged = Judge(twins, got, mask)
    assert judged.worst() <= 4 * judged.error


@torch.no_grad()
def test_a_window_ends_a_graph_too(gpu: coppice.Connection) -> None:
    model = tiny.mistral(window=16, **SIZES).to("cuda", torch.bfloat16)
    ids = tiny.draw(1, 10).cuda()
    with coppice.hf.attach(model, gpu) as shared, coppice.hf.capture(model):
        with shared.cache(ids) as cache:
            with pytest.raises(coppice.Unsupported, match="sliding_window of the config is 16"):
                model.generate(ids, past_key_values=cache, max_new_tokens=12)
            assert cache.n_cached == [16]
        [workspace] = shared._idle
        assert list(workspace.graphs) == [1]


@torch.no_grad()
def test_parameters_of_the_daemons(socket: str, tmp_path: Path) -> None:
    """One copy, wherever each model sees it; also beyond the connection that they came by."""
    ids, mask = batch()
    given = tiny.llama(seed=31, **SIZES).to("cuda", torch.bfloat16)
    given.save_pretrained(tmp_path)
    want = logits(given, ids, mask)
    models = [tiny.llama(seed=n, **SIZES).to("cuda", torch.bfloat16) for n in (32, 33)]
    with coppice.connect(socket) as connection:
        for model in models:
            with coppice.open_weights(connection, tmp_path) as weights:
                coppice.hf.share_weights(model, weights)
    for model in models:
        assert torch.equal(logits(model, ids, mask), want)
    for one, other in zip(*(model.parameters() for model in models)):
        one.fill_(3)
        assert (other == 3).all()


def test_parameters_on_another_device(gpu: coppice.Connection, tmp_path: Path) -> None:
    tiny.llama(**SIZES).to(torch.bfloat16).save_pretrained(tmp_path)
    model = tiny.llama(**SIZES).to(torch.bfloat16)
    with coppice.open_weights(gpu, tmp_path) as weights:
        with pytest.raises(coppice.Invalid, match="is on cpu, the daemon's weights on cuda:0"):
            coppice.hf.share_weights(model, weights)
