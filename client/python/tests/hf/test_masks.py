"""What a model's layers may see, and what they ask of their attention: other than the daemon's is
refused, by whatever way it comes: the config's windows, a mask, or an option."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import tiny
import torch
import transformers as hf
from transformers import masking_utils
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.llama import modeling_llama

import coppice
import coppice.hf
from coppice.hf import _options

SALTS = itertools.count(20000)
IDS = tiny.draw(2, 12, seed=90)
WINDOW = "sliding_window of the config is 16, and a row has 17 tokens"
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)


def doge() -> Any:
    """Its attention sees what it finds worth seeing; with the weights that it is born with, all."""
    sizes = {key: value for key, value in tiny.SIZES.items() if key != "head_dim"}
    model = tiny.made(hf.DogeForCausalLM, hf.DogeConfig(**sizes))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.A.normal_()
    return model


def phimoe(window: int | None = 16) -> Any:
    config = hf.PhimoeConfig(**tiny.SIZES, **tiny.EXPERTS, sliding_window=window)
    return tiny.made(hf.PhimoeForCausalLM, config)


def qwen2_moe(is_windowed: bool = True) -> Any:
    sizes = {**tiny.SIZES, **EXPERTS, "shared_expert_intermediate_size": 32}
    windows = dict(use_sliding_window=is_windowed, sliding_window=16, max_window_layers=3)
    return tiny.made(hf.Qwen2MoeForCausalLM, hf.Qwen2MoeConfig(**sizes, **windows))


def moshi() -> Any:
    """Its window is one of the cache alone, which is not what its masks say."""
    return tiny.made(hf.MoshiForCausalLM, hf.MoshiConfig(**tiny.SIZES, sliding_window=16))


def gemma3_of_images() -> Any:
    text = dict(query_pre_attn_scalar=64, sliding_window=100, layer_types=tiny.WINDOWS)
    vision = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, image_size=28)
    config = hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(**tiny.SIZES, **text),
        vision_config=hf.SiglipVisionConfig(**vision, num_attention_heads=2, patch_size=14),
        mm_tokens_per_image=4,
        image_token_id=3,
        boi_token_id=1,
        eoi_token_id=2,
    )
    return tiny.made(hf.Gemma3ForConditionalGeneration, config)


def generate(
    connection: coppice.Connection, model: Any, ids: torch.Tensor, n_new: int, **options: Any
) -> torch.Tensor:
    """Of a model that is not attached; nothing is cached."""
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(ids) as cache:
            fixed = dict(max_new_tokens=n_new, do_sample=False, pad_token_id=0)
            text: torch.Tensor = model.generate(ids, past_key_values=cache, **fixed, **options)
    return text


def check_same(
    connection: coppice.Connection, model: Any, ids: torch.Tensor, n_new: int, **options: Any
) -> None:
    fixed = dict(max_new_tokens=n_new, do_sample=False, pad_token_id=0)
    want = model.generate(ids, **fixed, **options)
    assert torch.equal(generate(connection, model, ids, n_new, **options), want)


@pytest.mark.parametrize("make", [phimoe, qwen2_moe, moshi, lambda: tiny.mistral(16)])
def test_windows(connection: coppice.Connection, make: Any) -> None:
    """A text may be as long as one; of a row that has padding, what is not."""
    model = make()
    check_same(connection, model, IDS, 5)  # the last token is not fed
    left = torch.ones_like(IDS[:1])
    left[0, :5] = 0
    with pytest.raises(coppice.Unsupported, match=WINDOW):
        generate(connection, model, IDS, 6)
    with coppice.hf.attach(model, connection) as shared, torch.no_grad():
        with shared.cache(IDS[:1], left) as cache:
            fixed = dict(attention_mask=left, max_new_tokens=10, pad_token_id=0)
            model.generate(IDS[:1], past_key_values=cache, **fixed)
            assert cache.n_cached == [16]


@pytest.mark.parametrize("make", [lambda: phimoe(None), lambda: qwen2_moe(False)])
def test_masks_of_windows_that_no_layer_has(connection: coppice.Connection, make: Any) -> None:
    """qwen2_moe makes one of 0 tokens."""
    check_same(connection, make(), IDS, 8)


WINDOWED = (
    "afmoe beam cohere2 cohere2_moe cwm exaone4 exaone_moe flint gemma3_text gpt_oss granite_swa "
    "granitemoe_swa kolibri1 ministral ministral3 mistral mixtral modernbert-decoder olmo3 phi3 "
    "qwen3_moe starcoder2"
).split()
MORE_SIZES = dict(
    **EXPERTS,
    num_local_experts=4,
    shared_expert_intermediate_size=32,
    n_routed_experts=4,
    n_group=1,
    topk_group=1,
    num_shared_experts=1,
    moe_num_experts=4,
    sliding_window=16,
    use_sliding_window=True,
    max_window_layers=3,
    local_attention=16,
)


def windowed(kind: str) -> Any:
    """Of each kind of layer there is one."""
    make = hf.CONFIG_MAPPING[kind]
    base = make()
    sizes = {**MORE_SIZES, **tiny.SIZES}
    keys: dict[str, Any] = {key: size for key, size in sizes.items() if hasattr(base, key)}
    if types := getattr(base, "layer_types", None):
        keys["layer_types"] = (list(dict.fromkeys(types)) * 3)[:3]
    return tiny.made(getattr(hf, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]), make(**keys))


@pytest.mark.parametrize("kind", WINDOWED)
def test_windows_of_many_kinds(connection: coppice.Connection, kind: str) -> None:
    model, ids = windowed(kind), tiny.draw(1, 17, seed=91)
    with pytest.raises(coppice.Unsupported, match="sliding_window of the config is 16"):
        generate(connection, model, ids, 1)


def test_the_name_of_a_window_in_the_configs_file(connection: coppice.Connection) -> None:
    model = tiny.mistral(16)
    model.config.attribute_map = {"sliding_window": "attention_window_size"}
    model.config.attention_window_size = 16
    with pytest.raises(coppice.Unsupported, match="attention_window_size of the config is 16"):
        generate(connection, model, tiny.draw(1, 17), 1)


def test_a_mask_that_is_the_layers_own(connection: coppice.Connection) -> None:
    with pytest.raises(coppice.Unsupported, match="attention_mask: DogeAttention"):
        generate(connection, doge(), IDS, 1)


class Made:
    """A model that is Llama but for how it makes its mask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def by(self, make: Any, **keys: Any) -> Any:
        self._monkeypatch.setattr(modeling_llama, "create_causal_mask", make)
        return tiny.llama(**keys)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    with torch.no_grad():
        yield Made(monkeypatch)


ALL_SEE_ALL = dict(sliding_window=16, layer_types=["full_attention"] * 3)
sliding = masking_utils.create_sliding_window_causal_mask


def test_a_window_of_the_mask_alone(connection: coppice.Connection, made: Made) -> None:
    model = made.by(sliding, **ALL_SEE_ALL)
    assert not any(hf.DynamicCache(config=model.config).is_sliding)
    check_same(connection, model, IDS, 5)
    with pytest.raises(coppice.Unsupported, match=WINDOW):
        generate(connection, model, IDS, 6)


def test_chunks_of_the_mask_alone(connection: coppice.Connection, made: Made) -> None:
    def chunks(config: Any, **given: Any) -> Any:
        config.attention_chunk_size = 16
        try:
            return masking_utils.create_chunked_causal_mask(config, **given)
        finally:
            del config.attention_chunk_size

    model = made.by(chunks)
    check_same(connection, model, IDS, 5)
    with pytest.raises(coppice.Unsupported, match="attention_chunk_size of the config is 16"):
        generate(connection, model, IDS, 6)


def test_a_mask_that_comes_to_no_layer(connection: coppice.Connection, made: Made) -> None:
    causal = masking_utils.create_causal_mask

    def both(**given: Any) -> Any:
        sliding(**given)
        return causal(**given)

    check_same(connection, made.by(both, **ALL_SEE_ALL), IDS, 8)


def nothing(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q < 0


def all_but_the_third(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return kv != 2


@pytest.mark.parametrize(
    ("overlay", "is_refused"),
    [
        (dict(or_mask_function=nothing), False),
        (dict(and_mask_function=masking_utils.sliding_window_overlay(100)), False),
        (dict(block_sequence_ids=torch.full((2, 12), -1)), False),
        (dict(and_mask_function=all_but_the_third), True),
        (dict(and_mask_function=masking_utils.sliding_window_overlay(8)), True),
        (dict(or_mask_function=masking_utils.bidirectional_mask_function), True),
        (dict(block_sequence_ids=torch.tensor([[-1] * 4 + [0] * 4 + [-1] * 4] * 2)), True),
    ],
)
def test_overlays(
    connection: coppice.Connection, made: Made, overlay: dict[str, Any], is_refused: bool
) -> None:
    model = made.by(functools.partial(masking_utils.create_causal_mask, **overlay))
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(IDS) as cache:
            if is_refused:
                with pytest.raises(coppice.Unsupported, match="llama masks by"):
                    model(IDS, past_key_values=cache)
                return
            got = model(IDS, past_key_values=cache).logits
    assert torch.allclose(got, model(IDS).logits, rtol=1e-3, atol=1e-3)


def test_masks_that_are_not_causal(connection: coppice.Connection) -> None:
    model = tiny.llama()
    model.config.is_causal = False
    with pytest.raises(coppice.Unsupported, match="is_causal of the config is False"):
        generate(connection, model, IDS, 1)


def test_texts_with_marks_for_images(connection: coppice.Connection) -> None:
    model = gemma3_of_images()
    marks = torch.zeros_like(IDS)
    check_same(connection, model, IDS, 6, token_type_ids=marks)
    marks[:, 4:8] = 1
    with pytest.raises(coppice.Unsupported, match="gemma3_text masks by"):
        generate(connection, model, IDS, 6, token_type_ids=marks)


@pytest.fixture
def layer(connection: coppice.Connection) -> Iterator[Any]:
    """attend(mask, **options), of a pass that has begun."""
    model = tiny.model("llama")
    with torch.no_grad(), coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(IDS) as cache:
            cache.begin(dict(input_ids=IDS))

            def attend(mask: Any = None, **options: Any) -> Any:
                q, k, v = (torch.randn(2, n_heads, 12, 16) for n_heads in (4, 2, 2))
                k, v = cache.update(k, v, 0)
                module = model.model.layers[0].self_attn
                return coppice.hf.attention(module, q, k, v, mask, **options)

            yield attend


@pytest.mark.parametrize("shape", [(2, 1, 12, 12), (2, 12)])
def test_a_mask_is_not_passed_over(layer: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(coppice.Unsupported, match="attention_mask: LlamaAttention"):
        layer(torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("name", ["block_indices", "position_bias", "cu_seq_lens_q", "other"])
def test_an_option_is_not_passed_over(layer: Any, name: str) -> None:
    """block_indices is minimax_m3_vl's, of those that attention is to see."""
    with pytest.raises(coppice.Unsupported, match=f"^{name}: "):
        layer(**{name: torch.zeros(2, dtype=torch.int64)})
    layer(**{name: None})


def test_options_that_change_nothing(layer: Any) -> None:
    with pytest.raises(coppice.Unsupported, match="is_causal is False"):
        layer(is_causal=False)
    fixed = dict(is_causal=True, dropout=0.0, output_attentions=False, softcap=None)
    layer(**fixed, **{name: torch.zeros(2, 12) for name in _options.HARMLESS})


def test_an_option_of_the_pass(connection: coppice.Connection) -> None:
    """Layers hand on what the model is given."""
    model = tiny.model("llama")
    with torch.no_grad(), coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(IDS) as cache, pytest.raises(coppice.Unsupported, match="^seq_idx: "):
            model(IDS, past_key_values=cache, seq_idx=torch.zeros_like(IDS))
