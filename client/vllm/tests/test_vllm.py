"""vLLM itself, with attention at the daemon: its tokens, what is shared, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from coppice_vllm.backend import Impl
from coppice_vllm.config import complaints, salt_of, weights_hash

DOCUMENT = [(i * 7 + 3) % 90 + 5 for i in range(100)]


def request(own: int, document: list[int] = DOCUMENT, **options: Any) -> dict[str, Any]:
    return dict(tokens=[*document, 5 + own, 6, 7 + own], **options)


def tokens_of(told: Any) -> list[list[int]]:
    return [answer["tokens"] for answer in told["answers"]]


def cached_of(told: Any) -> list[int]:
    return [answer["cached"] for answer in told["answers"]]


def test_tokens_are_vllms_own(pair: Any) -> None:
    """A document is computed once for all requests of a batch, and once for both processes."""
    one, other, own = pair
    requests = [request(i) for i in range(4)]
    want = own.serve(*requests)
    got = one.serve(*requests)
    assert tokens_of(got) == tokens_of(want)
    assert cached_of(got) == [0, 100, 100, 100] and cached_of(want) == [0] * 4
    assert got["n_seqs"] == 0
    got = other.serve(*requests, request(9))
    assert tokens_of(got)[:4] == tokens_of(want)
    assert cached_of(got) == [102, 102, 102, 102, 100]


def test_both_at_once(pair: Any) -> None:
    """Whoever comes first computes the document; the other waits for it."""
    one, other, own = pair
    document = [(i * 11 + 1) % 90 + 5 for i in range(200)]
    requests = [request(i, document, max_tokens=16) for i in range(3)]
    want = own.serve(*requests)
    one.ask(*requests)
    other.ask(*requests)
    told = [one.told(), other.told()]
    assert [tokens_of(x) for x in told] == [tokens_of(want)] * 2
    assert sorted(min(cached_of(x)) for x in told)[0] == 0
    assert sum(n == 0 for x in told for n in cached_of(x)) == 1


def test_sampling_and_prompts_of_one_token(pair: Any) -> None:
    one, _, own = pair
    sampled: dict[str, Any] = dict(temperature=1.0, top_k=20, seed=3)
    requests = [dict(tokens=[7]), request(1, **sampled), request(2, DOCUMENT[:5], **sampled)]
    assert tokens_of(one.serve(*requests)) == tokens_of(own.serve(*requests))


def test_logprobs_of_a_prompt_that_is_cached(pair: Any) -> None:
    """They are wanted of every token, so that all are computed."""
    one, _, own = pair
    asked = request(1, prompt_logprobs=0)
    got, want = one.serve(dict(asked)), own.serve(dict(asked))
    assert cached_of(got) == [0]
    pairs = zip(got["answers"][0]["prompt_logprobs"], want["answers"][0]["prompt_logprobs"])
    assert max(abs(a - b) for a, b in pairs) < 1e-2
    assert tokens_of(got) == tokens_of(want)


def test_chunks_and_preemption(start: Callable[..., Any], pair: Any) -> None:
    """Prompts go in chunks beside other requests' tokens; and where vLLM has no blocks left, a
    request starts anew, and finds what it had computed."""
    _, _, own = pair
    settings = dict(max_num_batched_tokens=48, block_size=16, num_gpu_blocks_override=31)
    ours = start(coppice=True, **settings).ready()
    requests = [request(20 + i, DOCUMENT[i:], max_tokens=40) for i in range(5)]
    got = ours.serve(*requests)
    assert got["n_preempted"] > 0
    assert tokens_of(got) == tokens_of(own.serve(*requests))
    assert got["n_seqs"] == 0


def test_options_that_are_refused() -> None:
    def config(**keys: Any) -> Any:
        return SimpleNamespace(
            parallel_config=SimpleNamespace(
                world_size_across_dp=keys.get("world", 1),
                distributed_executor_backend=keys.get("executor"),
            ),
            cache_config=SimpleNamespace(enable_prefix_caching=keys.get("prefixes", False)),
            model_config=SimpleNamespace(
                is_multimodal_model=keys.get("modal", False),
                enable_prompt_embeds=keys.get("embeds", False),
            ),
            scheduler_config=SimpleNamespace(async_scheduling=keys.get("ahead", False)),
            speculative_config=keys.get("drafts"),
            lora_config=keys.get("lora"),
        )

    assert complaints(config()) == []
    for key, word in dict(
        world="tensor",
        executor="uni",
        prefixes="prefix",
        modal="modalities",
        embeds="embeddings",
        ahead="async",
        drafts="speculative",
        lora="LoRA",
    ).items():
        value: Any = {"world": 2, "executor": "mp"}.get(key, True)
        [sentence] = complaints(config(**{key: value}))
        assert word in sentence


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (dict(alibi_slopes=[0.5]), "slopes of ALiBi"),
        (dict(sliding_window=16), "sliding windows"),
        (dict(logits_soft_cap=30.0), "capped scores"),
        (dict(kv_sharing_target_layer_name="a.0"), "layers that share K and V"),
        (dict(attn_type="encoder_only"), "attention of the kind encoder_only"),
        (dict(kv_cache_dtype="fp8"), "KV of the kind fp8"),
        (dict(sinks=torch.zeros(4)), "sinks"),
        (dict(use_alibi_sqrt=False), "use_alibi_sqrt"),
    ],
)
def test_layers_that_are_refused(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"the model has .*{sentence}, which the daemon has not"):
        Impl(4, 32, 0.1, 2, **keys)


def test_layers_that_are_not_refused() -> None:
    assert Impl(4, 32, 0.1, 2, sinks=None).num_kv_heads == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(coppice=True, kv_transfer_config=None), "goes with its connector"),
        (dict(coppice=True, enable_prefix_caching=True), "--no-enable-prefix-caching"),
        (dict(coppice=True, load_format="dummy"), "weights_hash"),
    ],
)
def test_engines_that_do_not_start(
    start: Callable[..., Any], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(EOFError, match=sentence):
        start(**settings).ready()


def test_what_engines_share_by(tmp_path: Path) -> None:
    """The files of a folder, and how they are read; a salt by the request's."""

    def config(**extra: Any) -> Any:
        return SimpleNamespace(
            kv_transfer_config=SimpleNamespace(get_from_extra_config=extra.get),
            model_config=SimpleNamespace(
                model=str(tmp_path), quantization=None, dtype="float16", hf_overrides={}
            ),
            load_config=SimpleNamespace(load_format="auto"),
        )

    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = weights_hash(config())
    assert weights_hash(config()) == first
    (tmp_path / "model.safetensors").write_bytes(b"12")
    assert weights_hash(config()) != first
    assert weights_hash(config(weights_hash=7)) == 7
    assert salt_of(None) == 0 and salt_of("a") not in (0, salt_of("b"))
