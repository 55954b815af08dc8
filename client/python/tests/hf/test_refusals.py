"""What cannot be done is an exception that says why; and nothing is left behind."""

from __future__ import annotations

import errno
import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from harness import await_seqs, n_arena_maps, n_descriptors, running

import coppice
import coppice.hf

SALTS = itertools.count(1)
IDS = tiny.draw(2, 12, seed=50)


@pytest.fixture
def model() -> Any:
    return tiny.model("llama")


@pytest.fixture
def shared(connection: coppice.Connection, model: Any) -> Iterator[coppice.hf.SharedKV]:
    """Nothing is cached of what other tests have computed."""
    with torch.no_grad(), coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        yield shared


def gemma2() -> Any:
    return tiny.made(hf.Gemma2ForCausalLM, hf.Gemma2Config(**tiny.SIZES))


def bart() -> Any:
    sizes = dict(vocab_size=96, d_model=32, encoder_layers=1, decoder_layers=1)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2)
    return tiny.made(hf.BartForConditionalGeneration, hf.BartConfig(**sizes, **heads))


def bidirectional() -> Any:
    keys = dict(use_bidirectional_attention=True)
    return tiny.made(hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**tiny.SIZES, **keys))


def mamba() -> Any:
    sizes = dict(vocab_size=96, hidden_size=32, num_hidden_layers=1, state_size=4)
    return hf.MambaForCausalLM(hf.MambaConfig(**sizes))


def opt() -> Any:
    sizes = dict(vocab_size=96, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    return tiny.made(hf.OPTForCausalLM, hf.OPTConfig(**sizes, ffn_dim=32, word_embed_proj_dim=32))


def jetmoe() -> Any:
    return tiny.made(hf.JetMoeForCausalLM, hf.JetMoeConfig(**tiny.SIZES, kv_channels=16))


def diffllama() -> Any:
    return tiny.made(hf.DiffLlamaForCausalLM, hf.DiffLlamaConfig(**tiny.SIZES))


def bert() -> Any:
    return hf.BertLMHeadModel(hf.BertConfig(**tiny.SIZES)).eval()


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (bert, "is_decoder"),
        (gemma2, "attn_logit_softcapping"),
        (bart, "is_encoder_decoder"),
        (bidirectional, "use_bidirectional_attention"),
        (mamba, "layer_types"),
        (opt, "model_type of the config is opt"),
        (jetmoe, "model_type of the config is jetmoe"),
        (diffllama, "model_type of the config is diffllama"),
        (lambda: tiny.llama().double(), "float64"),
    ],
)
def test_models_that_are_not_supported(
    connection: coppice.Connection, make: Any, key: str
) -> None:
    with pytest.raises(coppice.Unsupported, match=key):
        coppice.hf.attach(make(), connection)


def test_a_text_longer_than_the_window(connection: coppice.Connection) -> None:
    model = tiny.mistral(window=16)
    ids = tiny.draw(1, 12)
    with coppice.hf.attach(model, connection) as shared, shared.cache(ids) as cache:
        with pytest.raises(coppice.Unsupported, match="sliding_window of the config is 16"):
            model.generate(ids, past_key_values=cache, max_new_tokens=8)
        assert cache.n_cached == [16]


def test_heads_that_the_daemon_refuses(connection: coppice.Connection) -> None:
    model = tiny.llama(head_dim=8)
    with pytest.raises(coppice.Error, match="head_dim"):
        coppice.hf.attach(model, connection)
    assert model.config._attn_implementation == "eager"


def test_without_a_cache_of_the_daemons(shared: coppice.hf.SharedKV, model: Any) -> None:
    for options in ({}, dict(cache_implementation="static"), dict(use_cache=False)):
        with pytest.raises(coppice.Invalid, match="needs past_key_values"):
            model.generate(IDS, max_new_tokens=2, **options)
    with shared.cache(IDS) as cache, pytest.raises(ValueError, match="cache_implementation"):
        model.generate(IDS, past_key_values=cache, cache_implementation="static")


def test_a_closed_cache(shared: coppice.hf.SharedKV, model: Any) -> None:
    cache = shared.cache(IDS)
    cache.close()
    cache.close()
    assert cache.closed
    with pytest.raises(coppice.Closed, match="the cache is closed"):
        model.generate(IDS, past_key_values=cache)
    for use in (cache.reset, cache.check, lambda: cache.reorder_cache(torch.tensor([0]))):
        with pytest.raises(coppice.Closed):
            use()


def test_the_end_of_attachment(connection: coppice.Connection, model: Any) -> None:
    shared = coppice.hf.attach(model, connection)
    cache = shared.cache(IDS)
    shared.close()
    assert cache.closed and shared.closed and model.config._attn_implementation == "eager"
    with pytest.raises(coppice.Closed, match="SharedKV"):
        shared.cache(IDS)
    with pytest.raises(coppice.Closed):
        model(IDS, past_key_values=cache)


def test_a_graph_without_a_gpu(model: Any) -> None:
    with pytest.raises(coppice.Invalid, match="the model is on cpu"):
        coppice.hf.capture(model)


def test_a_cache_that_nobody_closes(
    connection: coppice.Connection, shared: coppice.hf.SharedKV, model: Any
) -> None:
    cache = shared.cache(IDS)
    model(IDS, past_key_values=cache)
    del cache


def test_other_tokens_than_the_caches(shared: coppice.hf.SharedKV, model: Any) -> None:
    with shared.cache(IDS) as cache:
        with pytest.raises(coppice.Invalid, match="other tokens than"):
            model(tiny.draw(2, 12, seed=51), past_key_values=cache)
        with pytest.raises(coppice.Invalid, match="2 rows, the model is given 3"):
            model(tiny.draw(3, 12), past_key_values=cache)
        model(IDS, past_key_values=cache)
        whole = dict(attention_mask=torch.ones_like(IDS), position_ids=torch.arange(12)[None])
        with pytest.raises(coppice.Invalid, match="all these tokens are in the cache"):
            model(IDS, past_key_values=cache, **whole)


def test_a_cache_of_another_model(
    connection: coppice.Connection, shared: coppice.hf.SharedKV, model: Any
) -> None:
    other = tiny.model("qwen3")
    with coppice.hf.attach(other, connection), shared.cache(IDS) as cache:
        with pytest.raises(coppice.Invalid, match="another model"):
            other(IDS, past_key_values=cache)


def test_masks(shared: coppice.hf.SharedKV, model: Any) -> None:
    right = torch.ones_like(IDS)
    right[0, -3:] = 0
    with pytest.raises(coppice.Unsupported, match="padding on the left"):
        shared.cache(IDS, right)
    with pytest.raises(coppice.Invalid, match="attention_mask is"):
        shared.cache(IDS, right[:, 1:])
    with pytest.raises(coppice.Invalid, match="padding alone"):
        shared.cache(IDS, torch.zeros_like(IDS))
    with shared.cache(IDS) as cache:
        with pytest.raises(coppice.Unsupported, match="padding on the left"):
            model(IDS, attention_mask=right, past_key_values=cache)
        with pytest.raises(coppice.Unsupported, match="one of padding"):
            model(IDS, attention_mask=torch.ones(2, 1, 12, 12), past_key_values=cache)
        with pytest.raises(coppice.Invalid, match="12 tokens for 5 columns"):
            model(IDS, attention_mask=right[:, :5] | 1, past_key_values=cache)


def test_positions(shared: coppice.hf.SharedKV, model: Any) -> None:
    left = torch.ones_like(IDS)
    left[0, :3] = 0
    with shared.cache(IDS, left) as cache:
        with pytest.raises(coppice.Invalid, match="position_ids are wanted"):
            model(IDS, attention_mask=left, past_key_values=cache)
        with pytest.raises(coppice.Invalid, match="do not count"):
            positions = torch.arange(12)[None]
            model(IDS, attention_mask=left, position_ids=positions, past_key_values=cache)
        with pytest.raises(coppice.Unsupported, match="input_ids"):
            model(inputs_embeds=torch.zeros(2, 12, 64), past_key_values=cache)


@pytest.mark.parametrize("ids", [torch.zeros(0, 4, dtype=torch.int64), torch.arange(4)])
def test_prompts_of_no_use(shared: coppice.hf.SharedKV, ids: torch.Tensor) -> None:
    with pytest.raises(coppice.Invalid, match="input_ids is"):
        shared.cache(ids)


def rows(n_heads: int, **options: Any) -> torch.Tensor:
    return torch.zeros(2, n_heads, 12, 16, **options)


@pytest.mark.parametrize(
    ("q", "sentence"),
    [
        (rows(4, dtype=torch.float64), "q is of torch.float64"),
        (rows(4, device="meta"), "q is on meta"),
        (rows(2), r"q is \[2, 2, 12, 16\], wanted: \[2, 4, 12, 16\]"),
    ],
)
def test_tensors(shared: coppice.hf.SharedKV, model: Any, q: torch.Tensor, sentence: str) -> None:
    with shared.cache(IDS) as cache:
        cache.begin(dict(input_ids=IDS))
        k, v = cache.update(rows(2), rows(2), 0)
        with pytest.raises(coppice.Invalid, match=sentence):
            coppice.hf.attention(model.model.layers[0].self_attn, q, k, v)


def test_any_stride_will_do(shared: coppice.hf.SharedKV, model: Any) -> None:
    q = torch.randn(2, 16, 12, 4).permute(0, 3, 2, 1)
    k = torch.randn(2, 12, 2, 32)[..., ::2].transpose(1, 2)
    with shared.cache(IDS) as cache:
        cache.begin(dict(input_ids=IDS))
        k, v = cache.update(k, k.clone(), 0)
        o, _ = coppice.hf.attention(model.model.layers[0].self_attn, q, k, v)
    attention = torch.nn.functional.scaled_dot_product_attention
    want = attention(q, k, v, is_causal=True, enable_gqa=True)
    assert torch.allclose(o, want.transpose(1, 2), atol=1e-5)


def test_gradients_and_dropout(shared: coppice.hf.SharedKV, model: Any) -> None:
    with shared.cache(IDS) as cache, torch.enable_grad():
        with pytest.raises(coppice.Invalid, match="no_grad"):
            model(IDS, past_key_values=cache)


def test_a_pass_without_memory(
    shared: coppice.hf.SharedKV, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one does not use what was given back for it."""

    def none(*_: Any) -> None:
        raise coppice.NoRoom(errno.ENOSPC, "no room")

    last, many = IDS[:, 8:], tiny.draw(2, 100, seed=53)
    with shared.cache(IDS) as cache:
        want = model(IDS, past_key_values=cache).logits[:, -1]
        cache.crop(-4)
        model(last, past_key_values=cache)
        cache.crop(-4)
        with monkeypatch.context() as patched, pytest.raises(coppice.NoRoom):
            patched.setattr(coppice.hf._workspace, "arena_on", none)
            model(torch.cat([last, many], 1), past_key_values=cache)
        got = model(last, past_key_values=cache).logits[:, -1]
        assert torch.allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_pass_that_breaks_off(shared: coppice.hf.SharedKV, model: Any) -> None:
    """Its tokens are not there afterwards, and the cache goes on."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with shared.cache(IDS) as cache:
        want = model(IDS, past_key_values=cache).logits[:, -1]
        cache.crop(-4)
        hook = model.model.layers[1].mlp.register_forward_pre_hook(fail)
        with pytest.raises(ZeroDivisionError):
            model(IDS[:, 8:], past_key_values=cache)
        hook.remove()
        assert cache.get_seq_length() == 8
        got = model(IDS[:, 8:], past_key_values=cache).logits[:, -1]
        assert torch.allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_daemon_that_dies(tmp_path: Path, model: Any) -> None:
    with running(tmp_path) as daemon, coppice.connect(daemon.socket) as connection:
        with coppice.hf.attach(model, connection) as shared, torch.no_grad():
            cache = shared.cache(IDS)
            model(IDS, past_key_values=cache)
            daemon.kill()
            with pytest.raises(coppice.DaemonGone):
                model(IDS[:, :1], past_key_values=cache)
        assert cache.closed
    with pytest.raises(coppice.NoDaemon):
        coppice.connect(daemon.socket)


def test_refusals_again_and_again(
    connection: coppice.Connection, shared: coppice.hf.SharedKV, model: Any
) -> None:
    """Of sequences, arenas, lanes, pages, descriptors and mappings none is left."""
    other, right = gemma2(), torch.ones_like(IDS)
    right[0, -3:] = 0

    def a_model_that_is_not_supported() -> None:
        coppice.hf.attach(other, connection)

    def a_mask_of_no_use() -> None:
        shared.cache(IDS, right)

    def other_tokens() -> None:
        with shared.cache(IDS) as cache:
            model(tiny.draw(2, 12, seed=51), past_key_values=cache)

    def a_tensor_of_another_shape() -> None:
        with shared.cache(IDS) as cache:
            cache.begin(dict(input_ids=IDS))
            k, v = cache.update(rows(2), rows(2), 0)
            coppice.hf.attention(model.model.layers[0].self_attn, rows(2), k, v)

    def a_closed_cache() -> None:
        cache = shared.cache(IDS)
        model(IDS[:, cache.get_seq_length() :], past_key_values=cache)
        cache.close()
        model(IDS, past_key_values=cache)

    def a_pass_that_breaks_off() -> None:
        with shared.cache(IDS) as cache, torch.enable_grad():
            model(IDS, past_key_values=cache)

    cases: list[tuple[Any, type[coppice.Error]]] = [
        (a_model_that_is_not_supported, coppice.Unsupported),
        (a_mask_of_no_use, coppice.Unsupported),
        (other_tokens, coppice.Invalid),
        (a_tensor_of_another_shape, coppice.Invalid),
        (a_closed_cache, coppice.Closed),
        (a_pass_that_breaks_off, coppice.Invalid),
    ]

    def counts(n: int) -> tuple[int, ...]:
        for case, error in cases * n:
            with pytest.raises(error):
                case()
        gc.collect()
        await_seqs(connection, 0)
        stats = connection.stats()
        told = (stats.n_arenas, stats.n_lanes, stats.pool_used_bytes)
        return (*told, n_descriptors(), n_arena_maps())

    before, after = counts(5), counts(20)
    assert after == before


def test_other_weights_share_nothing(connection: coppice.Connection) -> None:
    model, ids = tiny.llama(seed=60), tiny.draw(1, 12)
    for i, n_cached in enumerate([0, 11, 0]):
        if i == 2:
            with torch.no_grad():
                model.model.layers[0].mlp.up_proj.weight[3, 5] += 1e-6
        with torch.no_grad(), coppice.hf.attach(model, connection) as shared:
            with shared.cache(ids) as cache:
                assert cache.n_cached == [n_cached]
                model(ids if not n_cached else ids[:, n_cached:], past_key_values=cache)
            with shared.cache(ids, salt=5) as cache:
                assert cache.n_cached == [0]
